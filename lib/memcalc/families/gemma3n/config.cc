// config.json of Gemma 3n, as transformers 5.17 reads it: models/gemma3n. Those of the hub have the text model's in
// text_config.
// MIRRORS(transformers, "models/gemma3n/configuration_gemma3n.py", "5.17.0")
#include <algorithm>
#include <string>

#include "memcalc/families/gemma3n/spec.h"
#include "memcalc/spec/config_part.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/text_config.h"

namespace memcalc::family {
namespace {

constexpr std::int64_t kWidth = 16384;

/// A number for every layer, or a list of one for each.
std::vector<std::int64_t> widths_of_layers(HfReader& config, std::int64_t layers) {
  NumberOrList read = number_or_list(config.json(), "intermediate_size", kWidth, kSizeRange);
  if (!read.is_list) read.numbers.assign(static_cast<std::size_t>(layers), config.size({"intermediate_size"}, kWidth));
  if (static_cast<std::int64_t>(read.numbers.size()) != layers) {
    throw config.json().error("intermediate_size", "has " + std::to_string(read.numbers.size()) +
                                                       " numbers; accepted: one for each of num_hidden_layers (" +
                                                       std::to_string(layers) + ")");
  }
  return read.numbers;
}

/// activation_sparsity_pattern: shares of each layer; without it 0.95 of the first ten layers where there are more.
std::vector<bool> sparse_layers(const HfReader& config, std::int64_t layers) {
  const JsonObject& json = config.json();
  std::vector<bool> sparse;
  if (!json.has("activation_sparsity_pattern") || json.is_null("activation_sparsity_pattern")) {
    for (std::int64_t i = 0; i < layers; ++i) sparse.push_back(layers > 10 && i < 10);
    return sparse;
  }
  for (const JsonNode& member : json.node().children) {
    if (member.key != "activation_sparsity_pattern") continue;
    if (member.kind != JsonNode::Kind::kArray) throw json.error_found(member.key, "an array of numbers");
    for (const JsonNode& share : member.children) sparse.push_back(share.number > 0);
  }
  if (static_cast<std::int64_t>(sparse.size()) != layers) {
    throw json.error("activation_sparsity_pattern", "has " + std::to_string(sparse.size()) +
                                                        " numbers; accepted: one for each of num_hidden_layers (" +
                                                        std::to_string(layers) + ")");
  }
  return sparse;
}

Architecture gemma3n_text(HfReader& config) {
  Gemma3nSpec spec;
  read_decoder(config,
               {.vocab_size = 262400,
                .hidden_size = 2048,
                .intermediate_size = kWidth,
                .num_hidden_layers = 35,
                .num_attention_heads = 8,
                .num_key_value_heads = 2,
                .head_dim = 256,
                .activation_key = "hidden_activation",
                .activation = "gelu_pytorch_tanh",
                .max_position_embeddings = 32768,
                .tie_word_embeddings = true,
                .reads_intermediate_size = false},
               spec);
  const std::int64_t layers = spec.num_hidden_layers;
  spec.intermediate_sizes = widths_of_layers(config, layers);
  spec.intermediate_size = *std::max_element(spec.intermediate_sizes.begin(), spec.intermediate_sizes.end());
  spec.sparse_layers = sparse_layers(config, layers);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.sliding_window = config.size({"sliding_window"}, 512);
  spec.sliding_layers = layer_types(config, layers);
  if (spec.sliding_layers.empty()) spec.sliding_layers = sliding_but_every(5, layers);
  spec.final_softcap = capped(config, "final_logit_softcapping", true);
  spec.kv_shared_layers = config.json().nullable_int("num_kv_shared_layers", {0, kLayerRange.max}).value_or(15);
  spec.per_layer_input = config.size({"hidden_size_per_layer_input"}, 256);
  spec.per_layer_vocabulary = config.size({"vocab_size_per_layer_input"}, 262144);
  spec.laurel_rank = config.size({"laurel_rank"}, 64);
  spec.altup_num_inputs = config.size({"altup_num_inputs"}, 4, {2, 64});
  spec.altup_clips = !config.json().is_null("altup_coef_clip");
  spec.altup_correct_scale = config.flag("altup_correct_scale", true);
  if (spec.shares_keys(layers - 1)) {
    const auto own = spec.sliding_layers.begin() + (layers - spec.kv_shared_layers);
    for (auto shared = own; shared != spec.sliding_layers.end(); ++shared) {
      if (std::find(spec.sliding_layers.begin(), own, *shared) != own) continue;
      throw config.json().error("num_kv_shared_layers",
                                "leaves no layer of a type whose keys a later one shares; accepted: a smaller number");
    }
  }
  config.check_parameter_count([&] {
    return checked_add(
        checked_multiply(spec.per_layer_vocabulary, checked_multiply(layers, spec.per_layer_input)),
        checked_multiply(layers, checked_multiply(8, linear_parameters(spec.hidden_size, spec.intermediate_size))));
  });
  return spec;
}

Architecture gemma3n(HfReader& config) {
  const JsonObject text_json = config.json().required_object("text_config");
  HfReader text(text_json, "gemma3n_text");
  Architecture architecture = gemma3n_text(text);
  for (std::string& line : text.assumptions()) config.assume(std::move(line));
  config.assume(
      "gemma3n is its text model (text_config) alone: what sees images (timm's MobileNet v5) and hears is not "
      "modelled");
  return architecture;
}

constexpr Family family_of_gemma3n(std::string_view model_type, Architecture (*read)(HfReader&)) {
  return {.model_type = model_type,
          .kind = FamilyKind::kDecoder,
          .read = read,
          .build = build_gemma3n,
          .measured = kCausalLmAlone,
          .dropout_is_module = false,
          .compiled_whole_alone = true};
}

}  // namespace

const Family kGemma3n = family_of_gemma3n("gemma3n", gemma3n);
const Family kGemma3nText = family_of_gemma3n("gemma3n_text", gemma3n_text);

}  // namespace memcalc::family
