// MIRRORS(transformers, "activations.py", "5.17.0")
#include "memcalc/spec/hf_reader.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

// The keys of transformers' ACT2CLS (activations.py), without those that hold parameters (prelu, xielu).
constexpr std::array<std::string_view, 23> kActivations = {"gelu",
                                                           "gelu_10",
                                                           "gelu_accurate",
                                                           "gelu_fast",
                                                           "gelu_new",
                                                           "gelu_python",
                                                           "gelu_python_tanh",
                                                           "gelu_pytorch_tanh",
                                                           "hardswish",
                                                           "laplace",
                                                           "leaky_relu",
                                                           "linear",
                                                           "mish",
                                                           "quick_gelu",
                                                           "relu",
                                                           "relu2",
                                                           "relu6",
                                                           "sigmoid",
                                                           "silu",
                                                           "sqrtsoftplus",
                                                           "swish",
                                                           "tanh",
                                                           "xielu"};

constexpr std::array<std::string_view, 4> kDTypes = {"bfloat16", "float16", "float32", "float64"};
constexpr std::array<DType, 4> kDTypeValues = {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64};

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

HfReader::HfReader(const JsonObject& config, std::string model_type)
    : config_(config), model_type_(std::move(model_type)) {}

std::int64_t HfReader::size(std::initializer_list<std::string_view> names, std::int64_t fallback, IntRange range) {
  std::optional<std::int64_t> value;
  std::string_view found;
  for (const std::string_view name : names) {
    const std::optional<std::int64_t> candidate = config_.optional_int(name, range);
    if (value && candidate && *value != *candidate) {
      throw config_.error(name, "found " + std::to_string(*candidate) + ", but " + std::string(found) + " is " +
                                    std::to_string(*value) + "; accepted: one of the two names, or equal values");
    }
    if (!value && candidate) {
      value = candidate;
      found = name;
    }
  }
  if (value) return *value;
  const std::string_view own = *names.begin();
  default_sizes_.push_back(std::string(own) + " = " + std::to_string(fallback));
  // "hiden_size" would otherwise vanish among the keys that nobody reads.
  for (const std::string& key : config_.keys()) {
    if (key.size() < 5 || edit_distance(key, own) > 2) continue;
    assume("key '" + one_line(key) + "' of config.json is ignored; did you mean '" + std::string(own) + "'?");
  }
  return fallback;
}

std::optional<std::int64_t> HfReader::nullable_size(std::string_view key) const {
  return config_.nullable_int(key, kSizeRange);
}

double HfReader::probability(std::string_view key, double fallback) {
  const std::optional<double> value = config_.optional_double(key, {0, 1});
  if (!value) note_default(key, shown(fallback));
  return value.value_or(fallback);
}

bool HfReader::flag(std::string_view key, bool fallback) {
  const std::optional<bool> value = config_.optional_bool(key);
  if (!value) note_default(key, fallback ? "true" : "false");
  return value.value_or(fallback);
}

std::string HfReader::activation(std::string_view key, std::string_view fallback) {
  std::optional<std::string> value = config_.optional_choice(key, kActivations);
  if (!value) note_default(key, std::string(fallback));
  return value ? *value : std::string(fallback);
}

std::int64_t HfReader::num_labels(bool list_default) {
  // PreTrainedConfig.__post_init__: id2label decides; num_labels counts only where id2label is absent.
  if (const std::optional<JsonObject> labels = config_.nullable_object("id2label")) {
    if (labels->size() == 0) throw config_.error_found("id2label", "at least one label");
    return static_cast<std::int64_t>(labels->size());
  }
  const std::optional<std::int64_t> value = config_.nullable_int("num_labels", kSizeRange);
  if (!value && list_default) note_default("num_labels", "2");
  return value.value_or(2);
}

std::optional<DType> HfReader::dtype() const {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    if (!config_.has(key) || config_.is_null(key)) continue;
    const std::string name = config_.required_choice(key, kDTypes);
    return kDTypeValues[static_cast<std::size_t>(std::find(kDTypes.begin(), kDTypes.end(), name) - kDTypes.begin())];
  }
  return std::nullopt;
}

void HfReader::only_flag(std::string_view key, bool modelled) const {
  if (config_.optional_bool(key).value_or(modelled) == modelled) return;
  throw config_.error(key, std::string(modelled ? "false" : "true") + " is not modelled for " + model_type_ + " yet",
                      ErrorCode::kUnsupported);
}

void HfReader::only_absent(std::string_view key) const {
  if (!config_.has(key) || config_.is_null(key)) return;
  throw config_.error(key, "is not modelled for " + model_type_ + " yet; remove the key to see the plain model",
                      ErrorCode::kUnsupported);
}

void HfReader::divides(std::string_view divisor_key, std::int64_t divisor, std::string_view key,
                       std::int64_t value) const {
  if (value % divisor == 0) return;
  throw config_.error(key, "found " + std::to_string(value) + "; accepted: a multiple of " + std::string(divisor_key) +
                               " (" + std::to_string(divisor) + ")");
}

void HfReader::note_default(std::string_view key, const std::string& value) {
  assumptions_.push_back(std::string(key) + " = " + value + " (absent from config.json; transformers' default)");
}

Error HfReader::too_large() const {
  return config_.error("", "the parameters need more than 2^63 - 1 bytes: check layers, vocabulary and hidden size",
                       ErrorCode::kOverflow);
}

std::vector<std::string> HfReader::assumptions() const {
  std::vector<std::string> lines;
  // Sizes in one line, first: a config.json that names almost none describes another model than its owner thinks.
  if (!default_sizes_.empty()) {
    lines.push_back(join(default_sizes_) + " (absent from config.json; transformers' default" +
                    (default_sizes_.size() > 1 ? "s" : "") + " for " + model_type_ + ")");
  }
  lines.insert(lines.end(), assumptions_.begin(), assumptions_.end());
  return lines;
}

}  // namespace memcalc
