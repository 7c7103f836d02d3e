// ModelSpec: a model's architecture as plain values. One struct per family, so that a family has no fields it
// does not use; the key names are those of the family's Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "memcalc/base/dtype.h"

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

/// LLaMA 1 to 3.2, TinyLlama, SmolLM2 (models/llama) and Mistral (models/mistral).
struct LlamaSpec {
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
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  std::optional<std::int64_t> sliding_window;  // Mistral: a mask is built where the sequence reaches it
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

/// A classifier of torchvision.models by its function's name; its layers are tables in models/*.cc.
struct TorchvisionSpec {
  std::string architecture;  // "resnet50"
  std::int64_t num_classes = 1000;
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

using Architecture =
    std::variant<BertSpec, Gpt2Spec, LlamaSpec, VitSpec, TorchvisionSpec, DistilBertSpec, T5Spec,
                 BartSpec, WhisperSpec>;

struct ModelSpec {
  std::string name;        // registry name, or the path it was read from
  std::string model_type;  // of config.json: "bert", "llama", …
  Architecture architecture;
  std::optional<DType> checkpoint_dtype;             // torch_dtype / dtype of config.json
  std::optional<std::int64_t> published_parameters;  // of the base checkpoint, as its authors or the hub state it
  std::string source;                                // where the values come from
  std::string date;                                  // when they were read, ISO 8601
  std::vector<std::string> assumptions;              // every value taken from transformers' defaults, one line each
};

}  // namespace memcalc
