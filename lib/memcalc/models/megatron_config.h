// TransformerConfig of Megatron-core: what a Megatron run builds, from a ModelSpec and a RunSpec, and which layers a
// pipeline stage holds.
// MIRRORS(megatron, "core/transformer/transformer_config.py", "0.14.0")
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/linear_attention_spec.h"
#include "memcalc/spec/megatron_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

class MegatronMemory;
class MegatronModel;
class ModuleBuilder;
struct MegatronChunk;
struct MegatronConfig;

/// One chunk's modules, on the builder's tape.
using BuildMegatron = std::unique_ptr<MegatronModel>(ModuleBuilder&, const MegatronConfig&, MegatronMemory&,
                                                     const MegatronChunk&);
BuildMegatron build_megatron_gpt, build_megatron_bert, build_megatron_t5;

struct MegatronExperts {
  ExpertsSpec experts;
  std::int64_t shared_intermediate_size = 0;  // 0: no shared experts
  std::vector<bool> dense_layers;             // one for each layer
};

/// A layer of core/models/hybrid: a mixer or a feed-forward part alone, where a GPT's layer has both.
enum class MegatronLayerKind : std::uint8_t { kBoth, kMamba, kAttention, kMlp };

struct MegatronConfig {
  BuildMegatron* build = build_megatron_gpt;
  std::int64_t num_layers = 0;      // T5: of the encoder
  std::int64_t decoder_layers = 0;  // T5
  std::int64_t hidden_size = 0;
  std::int64_t ffn_hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_query_groups = 0;
  std::int64_t kv_channels = 0;
  std::int64_t padded_vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t token_types = 0;  // BERT, which has its heads with them: BertLMHead, pooler, binary head
  bool head_bias = false;
  bool swiglu = true;
  bool rms_norm = true;
  bool bias_linear = false;
  bool qkv_bias = false;
  bool qk_layernorm = false;
  bool rotary = true;  // else learned positions, or none
  bool has_positions = true;
  bool shares_embeddings = false;
  double hidden_dropout = 0;
  double attention_dropout = 0;
  std::optional<MegatronExperts> moe;
  std::optional<LatentAttentionSpec> latent;
  std::vector<MegatronLayerKind> blocks;  // one for each layer; empty: all have both parts
  std::optional<Mamba2MixerSpec> mamba;

  std::int64_t micro_batch_size = 1;
  std::int64_t sequence_length = 0;
  std::int64_t target_length = 0;  // T5: decoder-seq-length
  Parallel parallel;
  MegatronLayout options;
  std::int64_t expert_tensor = 1;
  Checkpointing checkpointing = Checkpointing::kNone;

  /// Tokens of a micro-batch along the sequence that this rank's layers see between tensor-parallel regions.
  [[nodiscard]] std::int64_t local_sequence() const {
    return sequence_length / parallel.context / (parallel.sequence_parallel ? parallel.tensor : 1);
  }
  /// Of a head's width, those that rotate (rotary_pos_embedding.py, rotary_percent).
  [[nodiscard]] std::int64_t rotary_channels() const {
    return static_cast<std::int64_t>(static_cast<double>(kv_channels) * options.rotary_percent);
  }
  [[nodiscard]] bool learns_positions() const { return has_positions && !rotary; }
  [[nodiscard]] MegatronLayerKind block(std::int64_t layer) const {
    return blocks.empty() ? MegatronLayerKind::kBoth : blocks[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] bool is_dense(std::int64_t layer) const {
    return !moe || moe->dense_layers[static_cast<std::size_t>(layer)];
  }
};

/// What decoders with rotary positions have: of the families that Megatron-core builds.
void take_decoder(MegatronConfig& config, const RotaryDecoderSpec& spec);

/// Throws Error(kUnsupported) for an architecture that Megatron-core's GPT model does not have.
[[nodiscard]] MegatronConfig megatron_config(const ModelSpec& model, const RunSpec& run);

/// What one model chunk of a pipeline stage holds.
struct MegatronChunk {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embeds = false;    // pre_process: the first chunk of the first stage
  bool predicts = false;  // post_process: final norm, head, loss
};

/// Of the whole model, the vocabulary padded.
struct MegatronCount {
  std::int64_t total = 0;
  std::int64_t inactive = 0;  // of experts that a token does not take
};
[[nodiscard]] MegatronCount count_parameters(const MegatronConfig& config);

/// The chunks of a stage, one without interleaving.
[[nodiscard]] std::vector<MegatronChunk> chunks_of_stage(const MegatronConfig& config, std::int64_t stage);

}  // namespace memcalc
