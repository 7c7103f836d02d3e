// config.json of Llama 3.2 Vision, as transformers 5.17 reads it: models/mllama.
#include <string>
#include <vector>

#include "memcalc/families/mllama/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture mllama_text(HfReader& config) {
  MllamaTextSpec spec;
  read_decoder(config,
               {.vocab_size = 128256,
                .intermediate_size = 14336,
                .num_hidden_layers = 40,
                .num_key_value_heads = 8,
                .max_position_embeddings = 131072},
               spec);
  spec.looks_at_images.assign(static_cast<std::size_t>(spec.num_hidden_layers), false);
  const JsonObject& json = config.json();
  const bool named = json.has("cross_attention_layers") && !json.is_null("cross_attention_layers");
  const std::vector<std::int64_t> layers =
      named ? json.required_ints("cross_attention_layers", {0, spec.num_hidden_layers - 1})
            : std::vector<std::int64_t>{3, 8, 13, 18, 23, 28, 33, 38};
  for (const std::int64_t layer : layers) {
    if (layer < spec.num_hidden_layers) spec.looks_at_images[static_cast<std::size_t>(layer)] = true;
  }
  return spec;
}

/// Its text_config alone.
Architecture mllama(HfReader& config) {
  const std::optional<JsonObject> text = config.json().nullable_object("text_config");
  if (!text) throw config.json().error("text_config", "missing; accepted: the configuration of the text model");
  HfReader reader(*text, "mllama_text_model");
  Architecture architecture = mllama_text(reader);
  for (std::string& line : reader.assumptions()) config.assume(std::move(line));
  config.assume(
      "mllama sees images too: this is MllamaForCausalLM, its text model, without the vision tower (not modelled) and "
      "with the layers that attend to images, which a text alone passes by");
  return architecture;
}

}  // namespace

const Family kMllama = {
    .model_type = "mllama",
    .kind = FamilyKind::kDecoder,
    .read = mllama,
    .build = build_mllama_text,
    .measured = {},
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

const Family kMllamaTextModel = {
    .model_type = "mllama_text_model",
    .kind = FamilyKind::kDecoder,
    .read = mllama_text,
    .build = build_mllama_text,
    .size_keys = kUnsizedHeadKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
