// An architecture by a few sizes: of a family alone (--arch llama --layers 24 …), or as changes of a named model's
// config (--model llama-3-8b --layers 8). The values go into a config.json under the family's own keys and through its
// reader, so limits, defaults and what is told about them are those of a file.
// Covered by tests/unit/spec_architecture_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace memcalc {

struct ArchitectureChanges {
  std::optional<std::int64_t> layers;         // --layers; of an encoder and a decoder: each
  std::optional<std::int64_t> hidden;         // --hidden
  std::optional<std::int64_t> heads;          // --heads
  std::optional<std::int64_t> kv_heads;       // --kv-heads
  std::optional<std::int64_t> head_dim;       // --head-dim
  std::optional<std::int64_t> ffn;            // --ffn: the feed-forward layers' width
  std::optional<std::int64_t> vocabulary;     // --vocab
  std::optional<std::int64_t> max_positions;  // --max-positions
  std::optional<bool> tie;                    // --tie, --no-tie: the head's weight is the embedding's
  std::optional<std::int64_t> image;          // --image, of a model with a position for each patch of its images

  [[nodiscard]] bool empty() const;
  /// "layers=8, tie=false"
  [[nodiscard]] std::string text() const;
};

}  // namespace memcalc
