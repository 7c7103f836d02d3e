// Internal to spec/hf_*.cc: reads the keys of a config.json with transformers' defaults, and keeps the list of the
// defaults it took.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/limits.h"

namespace memcalc {

/// 2^40: far beyond any model, and a product of three such sizes is still caught by check_parameter_count.
inline constexpr IntRange kSizeRange = {1, std::int64_t{1} << 40U};
inline constexpr IntRange kLayerRange = {1, kMostLayers};

/// Weights of a linear layer with bias; the counts of the readers only have to be of the right magnitude.
[[nodiscard]] inline std::int64_t linear_parameters(std::int64_t rows, std::int64_t columns) {
  return checked_add(checked_multiply(rows, columns), columns);
}

/// Those of a layer: attention's four products of `width`, and the MLP's, of which a gated one has three.
[[nodiscard]] inline std::int64_t layer_parameters(std::int64_t width, std::int64_t mlp_width, int mlp_products) {
  return checked_add(checked_multiply(4, linear_parameters(width, width)),
                     checked_multiply(mlp_products, linear_parameters(width, mlp_width)));
}

class HfReader {
 public:
  HfReader(const JsonObject& config, std::string model_type);
  HfReader(const JsonObject&& config, std::string model_type) = delete;  // reads it as long as it lives

  /// A size. Several names: the family's own first, then those that transformers maps to it (attribute_map).
  [[nodiscard]] std::int64_t size(std::initializer_list<std::string_view> names, std::int64_t fallback,
                                  IntRange range = kSizeRange);
  /// A size that may be absent or null; then nothing, and no assumption.
  [[nodiscard]] std::optional<std::int64_t> nullable_size(std::string_view key) const;
  /// A dropout probability.
  [[nodiscard]] double probability(std::string_view key, double fallback);
  [[nodiscard]] bool flag(std::string_view key, bool fallback);
  /// The name of an activation function that transformers knows.
  [[nodiscard]] std::string activation(std::string_view key, std::string_view fallback);
  /// From the length of id2label, else num_labels, else 2.
  [[nodiscard]] std::int64_t num_labels(bool list_default);
  /// dtype, or its older name torch_dtype.
  [[nodiscard]] std::optional<DType> dtype() const;

  /// Throws Error(kUnsupported) where `key` is present and differs from the only value that is modelled.
  void only_flag(std::string_view key, bool modelled) const;
  void only_absent(std::string_view key) const;
  /// Throws Error(kInput) unless `divisor` divides `value`.
  void divides(std::string_view divisor_key, std::int64_t divisor, std::string_view key, std::int64_t value) const;
  /// Throws Error(kOverflow) where `count()` (parameters of the model) times 16 bytes leaves 63 bits.
  template <typename Count>
  void check_parameter_count(const Count& count) const;

  void assume(std::string line) { assumptions_.push_back(std::move(line)); }
  [[nodiscard]] std::vector<std::string> assumptions() const;
  [[nodiscard]] const JsonObject& json() const { return config_; }

 private:
  void note_default(std::string_view key, const std::string& value);
  [[nodiscard]] Error too_large() const;

  const JsonObject& config_;
  std::string model_type_;
  std::vector<std::string> default_sizes_;  // "vocab_size = 30522"
  std::vector<std::string> assumptions_;
};

template <typename Count>
void HfReader::check_parameter_count(const Count& count) const {
  // 16 bytes: weight, gradient and two optimizer states in float32.
  try {
    static_cast<void>(checked_multiply(count(), 16));
  } catch (const Error&) {
    throw too_large();
  }
}

}  // namespace memcalc
