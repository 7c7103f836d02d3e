// The shapes that a user's own layers pass on, and what cannot follow what. Every message names the layer's place in
// the file and the shapes that do not fit. Covered by tests/unit/spec_custom_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc::custom {

/// What one sample looks like between two layers; the batch stands before it.
struct SampleShape {
  std::vector<std::int64_t> sizes;
  bool is_ids = false;  // int64 token ids, which only an embedding takes

  [[nodiscard]] int rank() const { return static_cast<int>(sizes.size()); }
  [[nodiscard]] std::int64_t last() const { return sizes.back(); }
  [[nodiscard]] bool operator==(const SampleShape&) const = default;
};

/// "[batch, 3, 64, 64]"
[[nodiscard]] std::string shown(const SampleShape& shape);

/// Of the input as the file describes it, and as --image and --seq change it.
[[nodiscard]] SampleShape input_shape(const CustomSpec& spec);
[[nodiscard]] SampleShape input_shape(const CustomSpec& spec, const RunSpec& run);

/// After a layer that is no container. Throws Error(kInput) where it cannot take `in`.
[[nodiscard]] SampleShape output_shape(const Layer& layer, const SampleShape& in);

/// Follows all layers to the loss and returns what they end in. Throws Error(kInput) where two do not fit, or where a
/// tensor of `batch` samples has more than 2^40 elements: the sums of a run then stay within 63 bits.
SampleShape check_shapes(const CustomSpec& spec, const SampleShape& input, std::int64_t batch);

struct AttentionSizes {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};
[[nodiscard]] AttentionSizes attention_sizes(const AttentionLayer& layer, std::int64_t width);

/// The first embedding among the layers, whose weight a tied head shares; null where there is none.
[[nodiscard]] const EmbeddingLayer* first_embedding(const Layers& layers);

}  // namespace memcalc::custom
