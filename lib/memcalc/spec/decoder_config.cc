#include "memcalc/spec/decoder_config.h"

#include <string>

namespace memcalc::family {

std::int64_t rotary_dim(HfReader& config, std::string_view key, double fallback, std::int64_t head_dim) {
  constexpr DoubleRange range = {0, 1};
  std::optional<double> factor = config.json().nullable_double(key, range);
  for (const std::string_view nested : {"rope_parameters", "rope_scaling"}) {
    if (factor) break;
    if (const std::optional<JsonObject> rope = config.json().nullable_object(nested)) {
      factor = rope->nullable_double("partial_rotary_factor", range);
    }
  }
  if (!factor) factor = config.probability(key, fallback);  // lists the default
  const auto dim = static_cast<std::int64_t>(static_cast<double>(head_dim) * *factor);
  if (dim < 2 || dim % 2 != 0) {
    throw config.json().error(key, "rotates " + std::to_string(dim) + " of " + std::to_string(head_dim) +
                                       " numbers of a head; accepted: an even number of 2 or more");
  }
  return dim;
}

bool capped(const HfReader& config, std::string_view key, bool fallback) {
  if (!config.json().has(key)) return fallback;
  return config.json().nullable_double(key, {0, 1e9}).value_or(0) > 0;
}

void read_decoder(HfReader& config, const DecoderDefaults& defaults, RotaryDecoderSpec& spec) {
  spec.vocab_size = config.size({"vocab_size"}, defaults.vocab_size);
  spec.hidden_size = config.size({"hidden_size"}, defaults.hidden_size);
  spec.intermediate_size = defaults.reads_intermediate_size
                               ? config.size({"intermediate_size"}, defaults.intermediate_size)
                               : defaults.intermediate_size;
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, defaults.num_hidden_layers, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, defaults.num_attention_heads);
  if (config.json().is_null("num_key_value_heads")) {
    spec.num_key_value_heads = spec.num_attention_heads;
  } else {
    spec.num_key_value_heads =
        config.size({"num_key_value_heads"}, defaults.num_key_value_heads.value_or(spec.num_attention_heads));
  }
  spec.hidden_act = defaults.activation_key.empty() ? std::string(defaults.activation)
                                                    : config.activation(defaults.activation_key, defaults.activation);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, defaults.max_position_embeddings);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", defaults.tie_word_embeddings);
  spec.attention_dropout = config.json().is_null("attention_dropout")
                               ? 0
                               : config.probability("attention_dropout", defaults.attention_dropout);
  std::optional<std::int64_t> head_dim = defaults.fixed_head_dim;
  if (!head_dim) head_dim = config.nullable_size("head_dim");
  if (!head_dim && defaults.head_dim) head_dim = config.size({"head_dim"}, *defaults.head_dim);
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
    const std::int64_t layer =
        checked_add(linear_parameters(spec.hidden_size, checked_multiply(heads, spec.head_dim)),
                    checked_multiply(3, linear_parameters(spec.hidden_size, spec.intermediate_size)));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size + spec.num_labels, spec.hidden_size));
  });
}

std::vector<bool> layer_types(HfReader& config, std::int64_t layers) {
  std::vector<bool> sliding;
  if (!config.json().has("layer_types") || config.json().is_null("layer_types")) return sliding;
  for (const std::string& type : config.json().optional_strings("layer_types")) {
    if (type != "sliding_attention" && type != "full_attention") {
      throw config.json().error("layer_types", "'" + type +
                                                   "' is not modelled; accepted: full_attention, "
                                                   "sliding_attention");
    }
    sliding.push_back(type == "sliding_attention");
  }
  if (static_cast<std::int64_t>(sliding.size()) != layers) {
    throw config.json().error("layer_types", "has " + std::to_string(sliding.size()) +
                                                 " entries; accepted: one for each of num_hidden_layers (" +
                                                 std::to_string(layers) + ")");
  }
  return sliding;
}

std::vector<bool> sliding_but_every(std::int64_t pattern, std::int64_t layers) {
  std::vector<bool> sliding;
  for (std::int64_t i = 0; i < layers; ++i) sliding.push_back((i + 1) % pattern != 0);
  return sliding;
}

void read_window(HfReader& config, RotaryDecoderSpec& spec, std::int64_t fallback) {
  if (!config.json().is_null("sliding_window")) spec.sliding_window = config.size({"sliding_window"}, fallback);
}

bool has_yarn_positions(const HfReader& config, bool fallback) {
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const std::optional<JsonObject> rope = config.json().nullable_object(name);
    if (!rope) continue;
    for (const std::string_view key : {"rope_type", "type"}) {
      if (const std::optional<std::string> type = rope->nullable_string(key)) return *type == "yarn";
    }
    return false;
  }
  return fallback;
}

ExpertsSpec read_experts(HfReader& config, std::initializer_list<std::string_view> count_names, std::int64_t count,
                         std::int64_t per_token, std::int64_t intermediate_size, const RotaryDecoderSpec& spec) {
  constexpr IntRange range = {1, 1023};  // torch's grouped_mm takes fewer than 1024 groups
  ExpertsSpec experts;
  experts.count = config.size(count_names, count, range);
  experts.per_token = config.size({"num_experts_per_tok"}, per_token, range);
  experts.intermediate_size = intermediate_size;
  if (experts.per_token > experts.count) {
    throw config.json().error("num_experts_per_tok", "found " + std::to_string(experts.per_token) +
                                                         "; accepted: up to " + std::string(*count_names.begin()) +
                                                         " (" + std::to_string(experts.count) + ")");
  }
  config.check_parameter_count([&] {
    const std::int64_t expert = checked_multiply(3, linear_parameters(spec.hidden_size, intermediate_size));
    return checked_multiply(checked_multiply(expert, experts.count), spec.num_hidden_layers);
  });
  return experts;
}

std::vector<bool> read_dense_layers(HfReader& config, std::int64_t layers) {
  std::vector<bool> dense;
  const std::int64_t step = config.size({"decoder_sparse_step"}, 1);
  for (std::int64_t i = 0; i < layers; ++i) dense.push_back((i + 1) % step != 0);
  if (config.json().has("mlp_only_layers") && !config.json().is_null("mlp_only_layers")) {
    for (const std::int64_t layer : config.json().required_ints("mlp_only_layers", {0, kLayerRange.max})) {
      if (layer < layers) dense[static_cast<std::size_t>(layer)] = true;
    }
  }
  return dense;
}

ExpertGroups read_groups(HfReader& config, std::int64_t groups, std::int64_t chosen, std::int64_t fewest,
                         const ExpertsSpec& experts) {
  ExpertGroups read;
  read.n_group = config.size({"n_group"}, groups);
  read.topk_group = config.size({"topk_group"}, chosen);
  config.divides("n_group", read.n_group, "n_routed_experts", experts.count);
  const std::int64_t in_group = experts.count / read.n_group;
  if (in_group < fewest) {
    throw config.json().error("n_group", "leaves " + std::to_string(in_group) +
                                             " experts for each group; accepted: a number that leaves " +
                                             std::to_string(fewest) + " or more");
  }
  if (read.topk_group > read.n_group) {
    throw config.json().error("topk_group", "found " + std::to_string(read.topk_group) + "; accepted: up to n_group (" +
                                                std::to_string(read.n_group) + ")");
  }
  return read;
}

void refuse_auxiliary_loss(const HfReader& config) { config.only_flag("output_router_logits", false); }

void refuse_router_noise(const HfReader& config) {
  if (config.json().optional_double("router_jitter_noise", {0, 1}).value_or(0) == 0) return;
  throw config.json().error("router_jitter_noise", "noise before the router is not modelled; accepted: 0",
                            ErrorCode::kUnsupported);
}

}  // namespace memcalc::family
