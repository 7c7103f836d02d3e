// ModelSpec: a model's architecture as plain values. One struct per family, so that a family has no fields it
// does not use; the key names are those of the family's Hugging Face config.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/architecture_changes.h"
#include "memcalc/spec/custom_spec.h"
#include "memcalc/spec/fine_tuning.h"
#include "memcalc/spec/weights.h"

namespace memcalc {

/// BERT, RoBERTa and ELECTRA (transformers models/bert, models/roberta, models/electra): post-norm encoder, learned
/// positions.
struct BertSpec {
  std::int64_t vocab_size = 0;
  std::int64_t embedding_size = 0;  // ELECTRA: projected to hidden_size where it differs; 0: hidden_size
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;  // "gelu", "gelu_new", "relu", …
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  std::optional<double> classifier_dropout;  // absent: hidden_dropout_prob
  bool tie_word_embeddings = true;
  std::int64_t first_position = 0;  // RoBERTa: pad_token_id + 1; that many rows of the positions are never reached
  bool is_roberta = false;  // positions start after the padding id; the classification head has its own dense layer
  bool is_electra = false;  // the classification head is like RoBERTa's, with GELU
};

/// DistilBERT (models/distilbert): BERT without token types and pooler.
struct DistilBertSpec {
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t n_layers = 0;
  std::int64_t n_heads = 0;
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t num_labels = 2;
  std::string activation;
  double dropout = 0;
  double attention_dropout = 0;
  double seq_classif_dropout = 0;
  bool tie_word_embeddings = true;
};

/// GPT-2 (transformers models/gpt2): pre-norm decoder with a fused, transposed QKV projection (Conv1D).
struct Gpt2Spec {
  std::int64_t vocab_size = 0;
  std::int64_t n_embd = 0;
  std::int64_t n_layer = 0;
  std::int64_t n_head = 0;
  std::int64_t n_positions = 0;
  std::int64_t n_inner = 0;  // 4 * n_embd where config.json has null
  std::int64_t num_labels = 2;
  std::string activation_function;  // "gelu_new", …
  double resid_pdrop = 0;
  double embd_pdrop = 0;
  double attn_pdrop = 0;
  bool tie_word_embeddings = true;
};

/// What the decoders with rotary positions share, from LLaMA on: RMS norms, grouped key and value heads.
struct RotaryDecoderSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;  // "silu", …
  double attention_dropout = 0;
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  bool yarn_positions = false;                 // rope_type "yarn": frequencies made in more steps
  std::optional<std::int64_t> sliding_window;  // a mask is built where the sequence reaches it
};

/// LLaMA 1 to 3.2, TinyLlama, SmolLM2 (models/llama) and Mistral (models/mistral), whose window holds for every layer.
struct LlamaSpec : RotaryDecoderSpec {
  bool mlp_bias = false;
};

/// Qwen2 and 2.5 (models/qwen2): biases on query, key and value only.
struct Qwen2Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;  // empty: none
};

/// Qwen3 (models/qwen3): query and key are normalised head by head.
struct Qwen3Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;  // empty: none
};

/// Gemma 1 (models/gemma): scaled embeddings, norms that multiply by 1 + weight.
struct GemmaSpec : RotaryDecoderSpec {};

/// Gemma 2 (models/gemma2): four norms a layer, soft caps, local and global layers in turn.
struct Gemma2Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  bool attention_softcap = true;  // attn_logit_softcapping: eager attention only
  bool final_softcap = true;      // final_logit_softcapping
};

/// Gemma 3's text model (models/gemma3): four norms, normalised query and key, rotary positions of two kinds.
struct Gemma3Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  bool final_softcap = false;
};

/// Phi-3 and Phi-4 (models/phi3): fused projections.
struct Phi3Spec : RotaryDecoderSpec {
  std::int64_t rotary_dim = 0;  // of head_dim: the part that is rotated
  double resid_pdrop = 0;
};

/// OLMo 2 (models/olmo2): norms after attention and MLP, over all heads of query and key.
struct Olmo2Spec : RotaryDecoderSpec {};

/// Mixtures of experts: each token passes through some of a layer's many MLPs.
struct ExpertsSpec {
  std::int64_t count = 0;              // of each layer
  std::int64_t per_token = 0;          // num_experts_per_tok
  std::int64_t intermediate_size = 0;  // of one expert
};

/// Mixtral (models/mixtral): LLaMA with experts in every layer.
struct MixtralSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
};

/// Qwen3-MoE (models/qwen3_moe): Qwen3 with experts in the layers that are not dense.
struct Qwen3MoeSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  bool norm_topk_prob = false;
  std::vector<bool> dense_layers;  // one for each layer
};

/// gpt-oss (models/gpt_oss): attention sinks, local and global layers in turn, experts with biases.
struct GptOssSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::vector<bool> sliding_layers;
};

/// DeepSeek's multi-head latent attention: keys and values from a compressed state, positions on a part of each head.
struct LatentAttentionSpec {
  std::optional<std::int64_t> q_lora_rank;  // absent: queries are not compressed
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
};

/// What DeepSeek-V2 and V3 share. head_dim is qk_rope_head_dim, as in their configurations.
struct DeepseekSpec : RotaryDecoderSpec {
  LatentAttentionSpec latent;
  ExpertsSpec experts;
  std::int64_t n_shared_experts = 0;
  std::int64_t first_k_dense_replace = 0;  // so many layers have an MLP instead
  std::int64_t n_group = 0;                // the experts' groups, where the router first chooses among them; else 0
  std::int64_t topk_group = 0;
};

/// DeepSeek-V2 (models/deepseek_v2): softmax router, rotary positions as complex numbers.
struct DeepseekV2Spec : DeepseekSpec {
  bool mlp_bias = false;
};

/// DeepSeek-V3 and R1 (models/deepseek_v3): sigmoid router with a correction bias.
struct DeepseekV3Spec : DeepseekSpec {
  bool norm_topk_prob = true;
  bool rope_interleave = true;
};

/// Phi-1 to 2 (models/phi): attention and MLP side by side behind one layer norm.
struct PhiSpec : RotaryDecoderSpec {
  std::int64_t rotary_dim = 0;
  bool qk_layernorm = false;
  double resid_pdrop = 0;
  double embd_pdrop = 0;
};

/// GPT-NeoX and Pythia (models/gpt_neox): fused QKV, rotary positions on a part of each head.
struct GptNeoxSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t rotary_dim = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;
  double attention_dropout = 0;
  double hidden_dropout = 0;
  bool attention_bias = true;
  bool use_parallel_residual = true;
  bool tie_word_embeddings = false;
};

/// OPT (models/opt): learned positions with two extra rows; the 350m model norms after and projects its embeddings.
struct OptSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t word_embed_proj_dim = 0;
  std::int64_t num_labels = 2;
  std::string activation_function;
  double dropout = 0;
  double attention_dropout = 0;
  bool do_layer_norm_before = true;
  bool remove_final_layer_norm = false;
  bool enable_bias = true;
  bool tie_word_embeddings = true;
};

/// T5, FLAN-T5 (models/t5) and mT5 (models/mt5): encoder-decoder with relative positions and a norm before each layer.
struct T5Spec {
  std::int64_t vocab_size = 0;
  std::int64_t d_model = 0;
  std::int64_t d_kv = 0;
  std::int64_t d_ff = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_decoder_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t relative_attention_num_buckets = 0;
  std::string dense_act_fn;  // what follows "gated-" in feed_forward_proj, or all of it
  bool is_gated_act = false;
  double dropout_rate = 0;
  bool scale_decoder_outputs = true;  // T5 1.0: before the head
  bool tie_word_embeddings = true;
  bool tied_by_transformers = false;  // the config says otherwise; releases before 5.0 followed it
};

/// ViT and DeiT for image classification (models/vit, models/deit).
struct VitSpec {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t num_channels = 3;
  std::int64_t num_labels = 2;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  bool qkv_bias = true;
  bool is_deit = false;  // a distillation token beside the class token
};

/// One of CLIP's encoders: a norm before each half, no dropout but of the attention.
struct ClipTower {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::string hidden_act;
  double attention_dropout = 0;
};

/// CLIP (models/clip): images and captions, projected into one space.
struct ClipSpec {
  ClipTower text, vision;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t num_channels = 3;
  std::int64_t projection_dim = 0;
  bool pools_at_highest_id = false;  // text eos_token_id 2, as configurations before transformers 4.31 have it
};

/// A classifier of torchvision.models by its function's name; its layers are tables in models/*.cc.
struct TorchvisionSpec {
  std::string architecture;  // "resnet50"
  std::int64_t num_classes = 1000;
  std::int64_t image_size = 224;  // that its weights were trained with
};

/// BART (models/bart): encoder-decoder with learned positions, norms behind each layer.
struct BartSpec {
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t d_model = 0;
  std::int64_t encoder_layers = 0;
  std::int64_t encoder_ffn_dim = 0;
  std::int64_t encoder_attention_heads = 0;
  std::int64_t decoder_layers = 0;
  std::int64_t decoder_ffn_dim = 0;
  std::int64_t decoder_attention_heads = 0;
  std::string activation_function;
  double dropout = 0;
  double attention_dropout = 0;
  double activation_dropout = 0;
  bool tie_word_embeddings = true;
};

/// Whisper (models/whisper): as BART, with norms before each layer, and two convolutions over mel features in front of
/// the encoder. max_position_embeddings is of the decoder (max_target_positions).
struct WhisperSpec : BartSpec {
  std::int64_t num_mel_bins = 0;
  std::int64_t max_source_positions = 0;
};

struct Program;

/// A module's recorded forward pass (spec/program.h).
struct ProgramSpec {
  std::shared_ptr<const Program> program;
};

using Architecture =
    std::variant<BertSpec, Gpt2Spec, LlamaSpec, Qwen2Spec, Qwen3Spec, GemmaSpec, Gemma2Spec, Gemma3Spec, Phi3Spec,
                 Olmo2Spec, PhiSpec, GptNeoxSpec, OptSpec, VitSpec, TorchvisionSpec, DistilBertSpec, T5Spec, BartSpec,
                 WhisperSpec, CustomSpec, MixtralSpec, Qwen3MoeSpec, GptOssSpec, DeepseekV2Spec, DeepseekV3Spec,
                 ClipSpec, ProgramSpec>;

struct ModelSpec {
  std::string name;       // registry name, or the path it was read from
  std::string reference;  // what was asked for: a registry's name, a path (--model); empty: nothing that has a name
  std::string family;     // a family by itself (--arch)
  ArchitectureChanges changes;  // sizes that were asked for beside it
  std::string model_type;       // of transformers: "bert", "gpt2", "llama", …; ours: "torchvision", "layers"
  Architecture architecture;
  std::optional<DType> checkpoint_dtype;  // torch_dtype / dtype of config.json; else that of the weights
  Quantization checkpoint_quantization = Quantization::kNone;  // quantization_config of config.json: mxfp4, fp8
  std::optional<std::int64_t> published_parameters;  // of the base checkpoint, as its authors or the hub state it
  std::string source;                                // where the values come from
  std::string date;                                  // when they were read, ISO 8601
  std::vector<std::string> assumptions;              // every value taken from transformers' defaults, one line each
  std::shared_ptr<const Weights> weights;            // on disk beside the config.json; null: none were given
};

}  // namespace memcalc
