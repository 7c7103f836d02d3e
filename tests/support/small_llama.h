// A model whose sizes few numbers of ranks divide, and what its runs on several GPUs hold when their steps are over.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/paths.h"

namespace memcalc::test {

inline const DeviceSpec& device() {
  static const DeviceSpec spec = SpecRegistry(specs_dir().string()).device("h200-sxm");
  return spec;
}

// Sizes that three ranks do not divide: 101 rows of the embedding, 100 of the feed-forward layers.
inline ModelSpec small_llama() {
  constexpr const char* kConfig =
      R"({"model_type": "llama", "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 100, "max_position_embeddings": 64,
          "tie_word_embeddings": false})";
  return model_from_hf_config(JsonDocument::parse(kConfig, "small").root(), "small");
}

// Bytes by category that live when the last step is over: parameters, their gradients, the optimizer's states.
using Held = std::array<Bytes, kCategoryCount>;

inline Held held_at_end(const Trace& trace) {
  Held held{};
  for (const Event& event : trace.events) {
    if (!event.moves_block()) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    held[static_cast<std::size_t>(block.category)] +=
        event.kind == EventKind::kAllocate ? block.requested : -block.requested;
  }
  return held;
}

inline Bytes of(const Held& held, Category category) { return held[static_cast<std::size_t>(category)]; }

inline Held sum_over_ranks(const RunSpec& run, const ModelSpec& model = small_llama()) {
  Held sum{};
  for (std::int64_t rank = 0; rank < run.parallel.gpus; ++rank) {
    const Held held = held_at_end(run_symbolically(model, run, device(), rank).trace);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += held[i];
  }
  return sum;
}

struct Whole {
  std::vector<Shape> shapes;
  Bytes parameters = 0;
  Bytes buffers = 0;
};

inline Whole whole_model() {
  const RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  const SymbolicRun run = run_symbolically(small_llama(), resolve(small_llama(), options).run, device());
  Whole whole;
  for (const ParameterInfo& each : run.parameters) {
    whole.shapes.push_back(each.shape);
    whole.parameters += each.elements * 4;
  }
  whole.buffers = of(held_at_end(run.trace), Category::kWeights) - whole.parameters;
  return whole;
}

// Padded to rows that the ranks divide: FSDP2 pads each parameter.
inline Bytes padded(const Whole& whole, std::int64_t ranks) {
  Bytes bytes = 0;
  for (Shape shape : whole.shapes) {
    shape[0] = ceil_div(shape[0], ranks) * ranks;
    bytes += shape.elements() * 4;
  }
  return bytes;
}

}  // namespace memcalc::test
