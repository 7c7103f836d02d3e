#include "memcalc/spec/hf_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/hf_decoders.h"
#include "memcalc/spec/hf_families.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/native_format.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

// One function a family, one line a key, in the order of transformers' configuration_*.py. Numbers and names given
// as fallback are the defaults there (5.17).

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
    const std::int64_t layer =
        checked_add(checked_multiply(4, linear_parameters(spec.hidden_size, spec.hidden_size)),
                    checked_multiply(2, linear_parameters(spec.hidden_size, spec.intermediate_size)));
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
    const std::int64_t layer = checked_add(checked_multiply(4, linear_parameters(spec.n_embd, spec.n_embd)),
                                           checked_multiply(2, linear_parameters(spec.n_embd, spec.n_inner)));
    const std::int64_t rows = 2 * spec.vocab_size + spec.n_positions + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.n_layer), checked_multiply(rows, spec.n_embd));
  });
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
    return checked_multiply(
        spec.num_hidden_layers,
        checked_add(checked_multiply(4, linear_parameters(spec.hidden_size, spec.hidden_size)),
                    checked_multiply(2, linear_parameters(spec.hidden_size, spec.intermediate_size))));
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
  spec.image_size = config.json().optional_int("image_size", kSizeRange).value_or(224);  // the weights' crop_size
  return spec;
}

struct Family {
  std::string_view model_type;
  Architecture (*read)(HfReader&);
};

constexpr std::array kFamilies = {
    Family{"bart", hf::bart},
    Family{"bert", bert},
    Family{"clip", hf::clip},
    Family{"deepseek_v2", hf::deepseek_v2},
    Family{"deepseek_v3", hf::deepseek_v3},
    Family{"deit", deit},
    Family{"distilbert", hf::distilbert},
    Family{"electra", electra},
    Family{"gemma", hf::gemma},
    Family{"gemma2", hf::gemma2},
    Family{"gemma3_text", hf::gemma3_text},
    Family{"gpt2", gpt2},
    Family{"gpt_neox", hf::gpt_neox},
    Family{"gpt_oss", hf::gpt_oss},
    Family{"llama", hf::llama},
    Family{"mistral", hf::mistral},
    Family{"mixtral", hf::mixtral},
    Family{"mt5", hf::mt5},
    Family{"olmo2", hf::olmo2},
    Family{"opt", hf::opt},
    Family{"phi", hf::phi},
    Family{"phi3", hf::phi3},
    Family{"qwen2", hf::qwen2},
    Family{"qwen3", hf::qwen3},
    Family{"qwen3_moe", hf::qwen3_moe},
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
    "albert",       "bloom",    "convnext",   "convnextv2", "deberta",      "deberta-v2",  "dinov2",
    "efficientnet", "falcon",   "gemma3",     "glm",        "glm4",         "glm4_moe",    "gpt_bigcode",
    "gpt_neo",      "gptj",     "granite",    "kimi_k2",    "llama4",       "llama4_text", "llava",
    "longformer",   "mamba",    "mamba2",     "mbart",      "mobilenet_v2", "modernbert",  "mpt",
    "nemotron",     "olmo",     "pegasus",    "qwen2_moe",  "qwen2_vl",     "resnet",      "siglip",
    "smollm3",      "stablelm", "starcoder2", "swin",       "wav2vec2",     "xlm-roberta",
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

void tie_head_as_transformers(ModelSpec& model) {
  T5Spec* const t5 = std::get_if<T5Spec>(&model.architecture);
  if (t5 == nullptr || t5->tie_word_embeddings) return;
  t5->tie_word_embeddings = true;
  t5->tied_by_transformers = true;
  model.assumptions.emplace_back(
      "the head shares the embedding's weight, which is what transformers 5.17 makes of this config.json whatever it "
      "says of tie_word_embeddings; a checkpoint with a head of its own (FLAN-T5, mT5) keeps it: --no-tie");
}

std::span<const std::string_view> modelled_types() { return kModelledTypes; }

ModelSpec model_from_hf_config(const JsonObject& config, std::string name) {
  if (is_lit_config(config)) return model_from_lit_config(config, std::move(name));
  const std::string model_type = config.required_string("model_type");
  const Family& family = family_of(config, model_type);
  HfReader reader(config, model_type);
  ModelSpec model;
  model.checkpoint_quantization = checkpoint_quantization(reader, model_type);
  model.name = std::move(name);
  model.model_type = model_type;
  model.architecture = family.read(reader);
  model.checkpoint_dtype = reader.dtype();
  model.assumptions = reader.assumptions();
  return model;
}

std::string config_name(const JsonObject& config, const std::string& path) {
  // A hub id or the directory that from_pretrained() was given; its last part is the name.
  std::string given = config.nullable_string("_name_or_path").value_or("");
  while (given.ends_with('/')) given.pop_back();
  const std::string last = given.substr(given.rfind('/') + 1);  // npos + 1 == 0
  if (!last.empty() && last != "." && last != "..") return last;
  const fs::path file = fs::path(path).filename();
  if (file != "config.json") return file.stem().string();
  std::error_code status;
  const fs::path directory = fs::absolute(path, status).lexically_normal().parent_path().filename();
  return status || directory.empty() ? file.stem().string() : directory.string();
}

}  // namespace memcalc
