// config.json of T5, FLAN-T5 and mT5, as transformers 5.17 reads it: models/t5, models/mt5.
// MIRRORS(transformers, "models/mt5/configuration_mt5.py", "5.17.0")
// MIRRORS(transformers, "models/t5/configuration_t5.py", "5.17.0")
#include <array>
#include <string>

#include "memcalc/families/t5/spec.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc::family {
namespace {

// feed_forward_proj: an activation, or "gated-" and an activation. "gated-gelu" means gelu_new.
constexpr std::array<std::string_view, 8> kProjections = {"relu",       "gelu",           "gelu_new",   "silu",
                                                          "gated-gelu", "gated-gelu_new", "gated-relu", "gated-silu"};

struct T5Defaults {
  std::int64_t vocab_size, d_ff, num_layers, num_heads;
  std::string_view feed_forward_proj;
};

T5Spec t5_block(HfReader& config, const T5Defaults& defaults) {
  T5Spec spec;
  spec.vocab_size = config.size({"vocab_size"}, defaults.vocab_size);
  spec.d_model = config.size({"d_model", "hidden_size"}, 512);
  spec.d_kv = config.size({"d_kv", "head_dim"}, 64);
  spec.d_ff = config.size({"d_ff"}, defaults.d_ff);
  spec.num_layers = config.size({"num_layers", "num_hidden_layers"}, defaults.num_layers, kLayerRange);
  spec.num_decoder_layers = config.json().nullable_int("num_decoder_layers", kLayerRange).value_or(spec.num_layers);
  spec.num_heads = config.size({"num_heads", "num_attention_heads"}, defaults.num_heads);
  spec.relative_attention_num_buckets = config.size({"relative_attention_num_buckets"}, 32);
  spec.dropout_rate = config.probability("dropout_rate", 0.1);
  std::string projection(defaults.feed_forward_proj);
  if (const auto given = config.json().optional_choice("feed_forward_proj", kProjections)) {
    projection = *given;
  } else {
    config.assume("feed_forward_proj = " + projection + " (absent from config.json; transformers' default)");
  }
  spec.is_gated_act = projection.starts_with("gated-");
  spec.dense_act_fn = spec.is_gated_act ? projection.substr(6) : projection;
  if (projection == "gated-gelu") spec.dense_act_fn = "gelu_new";
  // transformers 5.17 always says true, but keeps lm_head apart where the checkpoint holds one of its own: as the files
  // of T5 1.1, FLAN-T5 and mT5, which say false.
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  config.only_flag("is_encoder_decoder", true);
  config.check_parameter_count([&] {
    const std::int64_t inner = checked_multiply(spec.num_heads, spec.d_kv);
    const std::int64_t layer = checked_add(checked_multiply(8, linear_parameters(spec.d_model, inner)),
                                           checked_multiply(3, linear_parameters(spec.d_model, spec.d_ff)));
    return checked_add(checked_multiply(layer, spec.num_layers + spec.num_decoder_layers),
                       checked_multiply(2 * spec.vocab_size, spec.d_model));
  });
  return spec;
}

Architecture t5(HfReader& config) {
  T5Spec spec = t5_block(
      config, {.vocab_size = 32128, .d_ff = 2048, .num_layers = 6, .num_heads = 8, .feed_forward_proj = "relu"});
  // T5Config: the key decides about the scale, not about the tie.
  spec.scale_decoder_outputs = spec.tie_word_embeddings;
  return spec;
}

Architecture mt5(HfReader& config) {
  T5Spec spec = t5_block(
      config, {.vocab_size = 250112, .d_ff = 1024, .num_layers = 8, .num_heads = 6, .feed_forward_proj = "gated-gelu"});
  // MT5Config ties in every case from 5.0 on; before, it did not where config.json is silent.
  if (!config.flag("tie_word_embeddings", false)) spec.tied_by_transformers = true;
  spec.scale_decoder_outputs = false;
  return spec;
}

constexpr SizeKeysOfFamily kT5Keys = {{{"num_layers", "num_decoder_layers"},
                                       {"d_model", ""},
                                       {"num_heads", ""},
                                       {},
                                       {"d_kv", ""},
                                       {"d_ff", ""},
                                       {"vocab_size", ""},
                                       {},
                                       {"tie_word_embeddings", ""}}};
constexpr SpecialTokens kTokens = {.begins = false, .has_decoder_start = true};

bool is_eager(const Behaviors& behaviors) { return behaviors.t5_attention == T5Attention::kEager; }

/// configuration_t5.py, configuration_mt5.py: "we tie weights always"; only a checkpoint that holds a head of its own
/// keeps it (modeling_utils.py, tie_weights).
void tie_head(ModelSpec& model) {
  if (model.architecture.as<T5Spec>().tie_word_embeddings) return;
  T5Spec& spec = model.architecture.change<T5Spec>();
  spec.tie_word_embeddings = true;
  spec.tied_by_transformers = true;
  model.assumptions.emplace_back(
      "the head shares the embedding's weight, which is what transformers 5.17 makes of this config.json whatever it "
      "says of tie_word_embeddings; a checkpoint with a head of its own (FLAN-T5, mT5) keeps it: --no-tie");
}

}  // namespace

const Family kT5 = {
    .model_type = "t5",
    .kind = FamilyKind::kEncoderDecoder,
    .read = t5,
    .build = build_t5,
    .size_keys = kT5Keys,
    .measured = kSeq2SeqAlone,
    .special_tokens = kTokens,
    .is_eager = is_eager,
    .dropout_is_module = false,
    .shares_position_bias = true,
    .decoder_config_is_copy = true,
    .instructions_per_operator = 90,
    .as_transformers = tie_head,
    .to_megatron = t5_to_megatron,
};

const Family kMt5 = {
    .model_type = "mt5",
    .kind = FamilyKind::kEncoderDecoder,
    .read = mt5,
    .build = build_t5,
    .size_keys = kT5Keys,
    .measured = kSeq2SeqAlone,
    .special_tokens = kTokens,
    .is_eager = is_eager,
    .dropout_is_module = false,
    .shares_position_bias = true,
    .decoder_config_is_copy = true,
    .instructions_per_operator = 78,  // of T5's code with gated layers: 4,843 in 62 operators in bfloat16
    .as_transformers = tie_head,
};

}  // namespace memcalc::family
