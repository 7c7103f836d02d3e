#include "memcalc/spec/hf_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/hf_families.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

// One function a family, one line a key, in the order of transformers' configuration_*.py. Numbers and names given
// as fallback are the defaults there (5.17).

using hf::matrix;

enum class BertKind { kBert, kRoberta, kElectra };

BertSpec bert_block(HfReader& config, BertKind kind) {
  BertSpec spec;
  const bool roberta = kind == BertKind::kRoberta;
  const bool electra = kind == BertKind::kElectra;
  spec.is_roberta = roberta;
  spec.is_electra = electra;
  spec.vocab_size = config.size({"vocab_size"}, roberta ? 50265 : 30522);
  if (electra) spec.embedding_size = config.size({"embedding_size"}, 128);
  spec.hidden_size = config.size({"hidden_size"}, electra ? 256 : 768);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, electra ? 4 : 12);
  spec.intermediate_size = config.size({"intermediate_size"}, electra ? 1024 : 3072);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.hidden_dropout_prob = config.probability("hidden_dropout_prob", 0.1);
  spec.attention_probs_dropout_prob = config.probability("attention_probs_dropout_prob", 0.1);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 512);
  spec.type_vocab_size = config.size({"type_vocab_size"}, 2);
  spec.classifier_dropout = config.json().nullable_double("classifier_dropout", {0, 1});
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  if (roberta) {
    // RobertaEmbeddings numbers positions from pad_token_id + 1.
    const std::int64_t pad = config.json().nullable_int("pad_token_id", {0, kSizeRange.max}).value_or(1);
    spec.first_position = pad + 1;
    if (spec.max_position_embeddings <= spec.first_position) {
      throw config.json().error("max_position_embeddings", "found " + std::to_string(spec.max_position_embeddings) +
                                                               "; accepted: more than pad_token_id + 1 (" +
                                                               std::to_string(spec.first_position) +
                                                               "), where RoBERTa's positions start");
    }
  }
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.only_flag("is_decoder", false);
  config.only_flag("add_cross_attention", false);
  if (config.json().nullable_int("chunk_size_feed_forward", {0, kSizeRange.max}).value_or(0) != 0) {
    config.only_absent("chunk_size_feed_forward");
  }
  config.check_parameter_count([&] {
    const std::int64_t layer = checked_add(checked_multiply(4, matrix(spec.hidden_size, spec.hidden_size)),
                                           checked_multiply(2, matrix(spec.hidden_size, spec.intermediate_size)));
    const std::int64_t rows = spec.vocab_size + spec.max_position_embeddings + spec.type_vocab_size + spec.num_labels;
    const std::int64_t width = std::max(spec.hidden_size, spec.embedding_size);
    return checked_add(checked_multiply(layer, spec.num_hidden_layers), checked_multiply(rows, width));
  });
  return spec;
}

Architecture bert(HfReader& config) { return bert_block(config, BertKind::kBert); }
Architecture roberta(HfReader& config) { return bert_block(config, BertKind::kRoberta); }
Architecture electra(HfReader& config) { return bert_block(config, BertKind::kElectra); }

Architecture gpt2(HfReader& config) {
  Gpt2Spec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50257);
  spec.n_positions = config.size({"n_positions", "max_position_embeddings"}, 1024);
  spec.n_embd = config.size({"n_embd", "hidden_size"}, 768);
  spec.n_layer = config.size({"n_layer", "num_hidden_layers"}, 12, kLayerRange);
  spec.n_head = config.size({"n_head", "num_attention_heads"}, 12);
  spec.n_inner = config.nullable_size("n_inner").value_or(4 * spec.n_embd);  // GPT2Block
  spec.activation_function = config.activation("activation_function", "gelu_new");
  spec.resid_pdrop = config.probability("resid_pdrop", 0.1);
  spec.embd_pdrop = config.probability("embd_pdrop", 0.1);
  spec.attn_pdrop = config.probability("attn_pdrop", 0.1);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  config.divides("n_head", spec.n_head, "n_embd", spec.n_embd);
  config.only_flag("scale_attn_weights", true);
  config.only_flag("scale_attn_by_inverse_layer_idx", false);
  config.only_flag("reorder_and_upcast_attn", false);
  config.only_flag("add_cross_attention", false);
  config.check_parameter_count([&] {
    const std::int64_t layer = checked_add(checked_multiply(4, matrix(spec.n_embd, spec.n_embd)),
                                           checked_multiply(2, matrix(spec.n_embd, spec.n_inner)));
    const std::int64_t rows = 2 * spec.vocab_size + spec.n_positions + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.n_layer), checked_multiply(rows, spec.n_embd));
  });
  return spec;
}

// What llama and mistral share; the fallbacks that differ are arguments.
struct LlamaDefaults {
  std::int64_t intermediate_size;
  std::int64_t max_position_embeddings;
  std::optional<std::int64_t> num_key_value_heads;  // absent: as many as attention heads
};

LlamaSpec llama_block(HfReader& config, const LlamaDefaults& defaults) {
  LlamaSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 32000);
  spec.hidden_size = config.size({"hidden_size"}, 4096);
  spec.intermediate_size = config.size({"intermediate_size"}, defaults.intermediate_size);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 32, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 32);
  if (config.json().is_null("num_key_value_heads")) {
    spec.num_key_value_heads = spec.num_attention_heads;
  } else {
    spec.num_key_value_heads =
        config.size({"num_key_value_heads"}, defaults.num_key_value_heads.value_or(spec.num_attention_heads));
  }
  spec.hidden_act = config.activation("hidden_act", "silu");
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, defaults.max_position_embeddings);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  spec.attention_dropout = config.json().is_null("attention_dropout") ? 0 : config.probability("attention_dropout", 0);
  const std::optional<std::int64_t> head_dim = config.nullable_size("head_dim");
  spec.head_dim = head_dim.value_or(spec.hidden_size / spec.num_attention_heads);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  // With its own head_dim a model needs no such multiple; LlamaConfig asks for it all the same.
  if (!head_dim) config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.divides("num_key_value_heads", spec.num_key_value_heads, "num_attention_heads", spec.num_attention_heads);
  if (spec.head_dim % 2 != 0) {
    throw config.json().error(
        head_dim ? "head_dim" : "hidden_size",
        "gives a head of " + std::to_string(spec.head_dim) + "; accepted: an even one (rotary positions turn pairs)");
  }
  config.check_parameter_count([&] {
    const std::int64_t heads = checked_multiply(2, checked_add(spec.num_attention_heads, spec.num_key_value_heads));
    const std::int64_t layer = checked_add(matrix(spec.hidden_size, checked_multiply(heads, spec.head_dim)),
                                           checked_multiply(3, matrix(spec.hidden_size, spec.intermediate_size)));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size + spec.num_labels, spec.hidden_size));
  });
  return spec;
}

Architecture llama(HfReader& config) {
  LlamaSpec spec =
      llama_block(config, {.intermediate_size = 11008, .max_position_embeddings = 2048, .num_key_value_heads = {}});
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  return spec;
}

Architecture mistral(HfReader& config) {
  LlamaSpec spec =
      llama_block(config, {.intermediate_size = 14336, .max_position_embeddings = 131072, .num_key_value_heads = 8});
  if (!config.json().is_null("sliding_window")) spec.sliding_window = config.size({"sliding_window"}, 4096);
  return spec;
}

VitSpec vit_or_deit(HfReader& config, bool deit) {
  VitSpec spec;
  spec.is_deit = deit;
  spec.hidden_size = config.size({"hidden_size"}, 768);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 12);
  spec.intermediate_size = config.size({"intermediate_size"}, 3072);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.hidden_dropout_prob = config.probability("hidden_dropout_prob", 0.0);
  spec.attention_probs_dropout_prob = config.probability("attention_probs_dropout_prob", 0.0);
  spec.image_size = config.size({"image_size"}, 224);
  spec.patch_size = config.size({"patch_size"}, 16);
  spec.num_channels = config.size({"num_channels"}, 3);
  spec.qkv_bias = config.flag("qkv_bias", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.check_parameter_count([&] {
    return checked_multiply(spec.num_hidden_layers,
                            checked_add(checked_multiply(4, matrix(spec.hidden_size, spec.hidden_size)),
                                        checked_multiply(2, matrix(spec.hidden_size, spec.intermediate_size))));
  });
  return spec;
}

Architecture vit(HfReader& config) { return vit_or_deit(config, /*deit=*/false); }
Architecture deit(HfReader& config) { return vit_or_deit(config, /*deit=*/true); }

/// Our own key for what has no config.json: the name of a function in torchvision.models.
Architecture torchvision(HfReader& config) {
  TorchvisionSpec spec;
  spec.architecture = config.json().required_string("architecture");
  spec.num_classes = config.json().optional_int("num_classes", kSizeRange).value_or(1000);
  return spec;
}

struct Family {
  std::string_view model_type;
  Architecture (*read)(HfReader&);
};

constexpr std::array kFamilies = {
    Family{"bart", hf::bart},
    Family{"bert", bert},
    Family{"deit", deit},
    Family{"distilbert", hf::distilbert},
    Family{"electra", electra},
    Family{"gpt2", gpt2},
    Family{"llama", llama},
    Family{"mistral", mistral},
    Family{"mt5", hf::mt5},
    Family{"roberta", roberta},
    Family{"t5", hf::t5},
    Family{"torchvision", torchvision},
    Family{"vit", vit},
    Family{"whisper", hf::whisper},
};

constexpr auto kModelledTypes = [] {
  std::array<std::string_view, kFamilies.size()> names;
  std::transform(kFamilies.begin(), kFamilies.end(), names.begin(),
                 [](const Family& family) { return family.model_type; });
  return names;
}();

// transformers' names that people meet; with one of these the file is right and memcalc is not there yet.
constexpr std::string_view kOtherTypes[] = {
    "albert", "bloom", "clip", "convnext", "convnextv2", "deberta", "deberta-v2", "deepseek_v2",
    "deepseek_v3", "dinov2", "efficientnet", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4",
    "glm4_moe", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "granite", "kimi_k2", "llama4",
    "llama4_text", "llava", "longformer", "mamba", "mamba2", "mbart", "mixtral", "mobilenet_v2", "modernbert", "mpt",
    "nemotron", "olmo", "olmo2", "opt", "pegasus", "phi", "phi3", "qwen2", "qwen2_moe", "qwen2_vl", "qwen3",
    "qwen3_moe", "resnet", "siglip", "smollm3", "stablelm", "starcoder2", "swin", "wav2vec2",
    "xlm-roberta",
};

const Family& family_of(const JsonObject& config, const std::string& model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  const std::vector<std::string> modelled(kModelledTypes.begin(), kModelledTypes.end());
  if (std::find(std::begin(kOtherTypes), std::end(kOtherTypes), model_type) != std::end(kOtherTypes)) {
    throw config.error("model_type", model_type + " is not modelled yet; modelled: " + join(modelled),
                       ErrorCode::kUnsupported);
  }
  throw config.error_found("model_type", "one of " + join(modelled) + did_you_mean(model_type, modelled));
}

}  // namespace

std::span<const std::string_view> modelled_types() { return kModelledTypes; }

ModelSpec model_from_hf_config(const JsonObject& config, std::string name) {
  const std::string model_type = config.required_string("model_type");
  const Family& family = family_of(config, model_type);
  HfReader reader(config, model_type);
  reader.only_absent("quantization_config");
  ModelSpec model;
  model.name = std::move(name);
  model.model_type = model_type;
  model.architecture = family.read(reader);
  model.checkpoint_dtype = reader.dtype();
  model.assumptions = reader.assumptions();
  return model;
}

ModelSpec read_hf_config(const std::string& path) {
  const JsonDocument document = JsonDocument::read_file(path);
  ModelSpec model = model_from_hf_config(document.root(), path);
  model.source = path;
  return model;
}

}  // namespace memcalc
