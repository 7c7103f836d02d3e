// config.json of Ministral 3 and Mistral 3, as transformers 5.17 reads it: models/ministral3, models/mistral3.
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/ministral3/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// Without it the forward of transformers fails.
void check_query_scale(const HfReader& config) {
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const std::optional<JsonObject> rope = config.json().nullable_object(name);
    if (rope && !rope->has("llama_4_scaling_beta")) {
      throw config.json().error(name, "has no llama_4_scaling_beta; accepted: a number, which scales the queries");
    }
  }
}

Architecture ministral3(HfReader& config) {
  Ministral3Spec spec;
  read_decoder(config,
               {.vocab_size = 131072,
                .intermediate_size = 14336,
                .num_hidden_layers = 34,
                .num_key_value_heads = 8,
                .head_dim = 128,
                .max_position_embeddings = 262144},
               spec);
  spec.sliding_window = config.nullable_size("sliding_window");
  spec.yarn_positions = has_yarn_positions(config, true);
  check_query_scale(config);
  return spec;
}

/// Its text_config alone, which is Mistral's unless it says Ministral 3's.
Architecture mistral3(HfReader& config) {
  const std::optional<JsonObject> text = config.json().nullable_object("text_config");
  if (!text) throw config.json().error("text_config", "missing; accepted: the configuration of the text model");
  const std::string type = text->nullable_string("model_type").value_or("mistral");
  if (type != "mistral" && type != "ministral3") {
    throw text->error("model_type", type + " is not modelled; accepted: mistral, ministral3", ErrorCode::kUnsupported);
  }
  HfReader reader(*text, type);
  Architecture architecture = type == "mistral" ? kMistral.read(reader) : ministral3(reader);
  for (std::string& line : reader.assumptions()) config.assume(std::move(line));
  config.assume("mistral3 sees images too: this is its text model (" + type +
                ") alone, without the vision tower (not modelled)");
  return architecture;
}

constexpr Task kMinistral3Measured[] = {Task::kCausalLm};
constexpr std::string_view kMinistral3Plan[] = {"q_proj",    "k_proj",  "v_proj",    "o_proj",
                                                "gate_proj", "up_proj", "down_proj", "lm_head"};

}  // namespace

const Family kMinistral3 = {
    .model_type = "ministral3",
    .kind = FamilyKind::kDecoder,
    .read = ministral3,
    .build = build_ministral3,
    .size_keys = kDecoderKeys,
    .measured = kMinistral3Measured,
    .tp_plan = kMinistral3Plan,
    .dropout_is_module = false,
    .fp8_layers = true,
};

const Family kMistral3 = {
    .model_type = "mistral3",
    .kind = FamilyKind::kDecoder,
    .read = mistral3,
    .build = build_mistral3,
    .measured = {},
    .tp_plan = kMinistral3Plan,
    .dropout_is_module = false,
    .fp8_layers = true,
};

}  // namespace memcalc::family
