// DeepSeek-V4's compressed keys: one for so many tokens, and an indexer that chooses among them.
// MIRRORS(transformers, "models/deepseek_v4/modeling_deepseek_v4.py", "5.17.0")
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/families/deepseek_v4/spec.h"
#include "memcalc/models/kv_cache.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc::deepseek_v4 {

/// DeepseekV4RotaryEmbedding: frequencies of layers with a window alone, and of those with compressed keys.
struct Rotaries {
  std::array<RotaryEmbedding, 2> types;  // "main", "compress"

  Rotaries() = default;
  Rotaries(ModuleBuilder& b, const DeepseekV4Spec& spec);
  void initialize(ModuleBuilder& b) const;
  /// One angle a pair, [1 or B, S, rotary_dim / 2], in the type of x.
  [[nodiscard]] std::pair<Tensor, Tensor> forward(std::size_t type, const Tensor& x, const Tensor& position_ids) const;
};

/// apply_rotary_pos_emb: the last numbers of each head, neighbours by neighbours. x [B, H, S, D].
[[nodiscard]] Tensor rotate_last(const Tensor& x, Tensor cos, Tensor sin);

/// DeepseekV4CSACache, DeepseekV4HCACache: what a layer's cache holds. The pairs: of the compressor, of its indexer.
struct LayerStates {
  Tensor window, full;
  std::array<Tensor, 2> buffer_kv, buffer_gate, compressed, overlap_kv, overlap_gate;

  /// update() at the first forward pass: key and value are one.
  [[nodiscard]] Tensor update(const Tensor& states);
  /// The cache gets them, in the order in which they die.
  void keep(KeyValueCache& cache);
};

/// What makes compressed states of hidden states: DeepseekV4HCACompressor's first half, which the other compressor and
/// the indexer repeat with windows that overlap.
struct Pooling {
  std::int64_t rate, head_dim;
  bool overlaps;
  Linear kv_proj, gate_proj;
  Tensor position_bias;
  RmsNorm kv_norm;

  Pooling(ModuleBuilder& b, const DeepseekV4Spec& spec, std::int64_t rate, std::int64_t head_dim, bool overlaps);

  /// The locals of forward, in the order in which they die.
  struct Locals {
    Tensor kv, gate, chunk_kv, chunk_gate, new_kv, new_gate, compressed, positions, cos, sin;
    void clear() { drop(kv, gate, chunk_kv, chunk_gate, new_kv, new_gate, compressed, positions, cos, sin); }
  };
  /// `place`: 0 of a compressor, 1 of an indexer. Throws Error(kUnsupported) where an overlapping one has no window.
  [[nodiscard]] Locals forward(const Tensor& hidden_states, const Rotaries& rotaries, std::size_t place,
                               LayerStates* states) const;

 private:
  void overlap(Locals& of, std::int64_t windows) const;
};

/// DeepseekV4Indexer with its scorer: which compressed keys a query attends to. It learns nothing from the loss.
struct Indexer {
  std::int64_t heads, head_dim, topk;
  Pooling pooling;
  Linear q_b_proj;
  Rotaries rotary_emb;
  Linear weights_proj;

  Indexer(ModuleBuilder& b, const DeepseekV4Spec& spec, std::vector<Rotaries>& rotaries);
  /// [B, S, topk] int64; -1 where there is no such key yet.
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& q_residual, const Tensor& position_ids,
                               LayerStates* states) const;

 private:
  [[nodiscard]] Tensor scores(const Tensor& q, const Tensor& compressed_kv, const Tensor& hidden_states) const;
};

/// DeepseekV4HCACompressor, DeepseekV4CSACompressor
struct Compressor {
  Pooling pooling;
  Rotaries rotary_emb;
  std::optional<Indexer> indexer;

  Compressor(ModuleBuilder& b, const DeepseekV4Spec& spec, CompressedKeys keys, std::vector<Rotaries>& rotaries);
  /// The keys [B, 1, L, D], and what is added to their scores [B, 1, S, L]; undefined where there are no keys.
  [[nodiscard]] std::pair<Tensor, Tensor> forward(const Tensor& hidden_states, const Tensor& q_residual,
                                                  const Tensor& position_ids, LayerStates* states) const;

 private:
  [[nodiscard]] std::pair<Tensor, Tensor> all_keys(Pooling::Locals& of, const Tensor& position_ids) const;
  [[nodiscard]] std::pair<Tensor, Tensor> chosen_keys(Pooling::Locals& of, const Tensor& hidden_states,
                                                      const Tensor& q_residual, const Tensor& position_ids,
                                                      LayerStates* states) const;
};

}  // namespace memcalc::deepseek_v4
