// config.json of DeBERTa v2 and v3, as transformers 5.17 reads it: models/deberta_v2.
#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <vector>

#include "memcalc/families/deberta_v2/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// "p2c|c2p": the parts, without blanks and in small letters.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, '|');) {
    std::erase(part, ' ');
    std::transform(part.begin(), part.end(), part.begin(), [](unsigned char c) { return std::tolower(c); });
    parts.push_back(part);
  }
  return parts;
}

bool has(const std::vector<std::string>& parts, const char* part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

/// pos_att_type: a list, or the older text.
std::vector<std::string> position_attention(const HfReader& config) {
  if (!config.json().has("pos_att_type") || config.json().is_null("pos_att_type")) return {};
  if (config.json().is_string("pos_att_type")) return parts_of(config.json().required_string("pos_att_type"));
  return config.json().optional_strings("pos_att_type");
}

/// -1 or absent: none.
std::int64_t positive(const HfReader& config, std::string_view key) {
  return std::max<std::int64_t>(config.json().nullable_int(key, {-1, kSizeRange.max}).value_or(-1), 0);
}

void read_positions(HfReader& config, DebertaV2Spec& spec) {
  spec.position_biased_input = config.flag("position_biased_input", true);
  const std::vector<std::string> attends = position_attention(config);
  spec.content_to_position = has(attends, "c2p");
  spec.position_to_content = has(attends, "p2c");
  if (!config.flag("relative_attention", false)) return;
  const std::int64_t buckets = positive(config, "position_buckets");
  const std::int64_t given = positive(config, "max_relative_positions");
  spec.position_span = buckets > 0 ? buckets : given > 0 ? given : spec.max_position_embeddings;
  spec.buckets_positions = buckets > 0;
  spec.norms_positions = has(parts_of(config.json().nullable_string("norm_rel_ebd").value_or("none")), "layer_norm");
  spec.shares_keys = config.json().optional_bool("share_att_key").value_or(false);
}

Architecture deberta_v2(HfReader& config) {
  DebertaV2Spec spec;
  spec.vocab_size = config.size({"vocab_size"}, 128100);
  spec.hidden_size = config.size({"hidden_size"}, 1536);
  spec.embedding_size = config.nullable_size("embedding_size").value_or(spec.hidden_size);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 24, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 24);
  spec.intermediate_size = config.size({"intermediate_size"}, 6144);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.hidden_dropout_prob = config.probability("hidden_dropout_prob", 0.1);
  spec.attention_probs_dropout_prob = config.probability("attention_probs_dropout_prob", 0.1);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 512);
  spec.type_vocab_size = config.size({"type_vocab_size"}, 0, {0, kSizeRange.max});
  read_positions(config, spec);
  spec.pooler_hidden_act = config.activation("pooler_hidden_act", "gelu");
  spec.pooler_dropout = config.probability("pooler_dropout", 0);
  spec.cls_dropout = config.json().nullable_double("cls_dropout", {0, 1});
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  config.only_flag("legacy", true);  // the head that people's checkpoints have
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  const std::int64_t head_dim = spec.hidden_size / spec.num_attention_heads;
  if (config.nullable_size("attention_head_size").value_or(head_dim) != head_dim) {
    config.only_absent("attention_head_size");
  }
  if (config.nullable_size("pooler_hidden_size").value_or(spec.hidden_size) != spec.hidden_size) {
    config.only_absent("pooler_hidden_size");
  }
  // The convolution beside the first layer, which v2's xlarge and xxlarge have.
  if (config.json().nullable_int("conv_kernel_size", {0, kSizeRange.max}).value_or(0) != 0) {
    config.only_absent("conv_kernel_size");
  }
  config.check_parameter_count([&] {
    const std::int64_t layer =
        checked_add(checked_multiply(6, linear_parameters(spec.hidden_size, spec.hidden_size)),
                    checked_multiply(2, linear_parameters(spec.hidden_size, spec.intermediate_size)));
    const std::int64_t rows = checked_add(checked_add(spec.vocab_size, spec.max_position_embeddings),
                                          checked_add(2 * spec.position_span, spec.type_vocab_size));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(rows, std::max(spec.hidden_size, spec.embedding_size)));
  });
  return spec;
}

}  // namespace

const Family kDebertaV2 = {
    .model_type = "deberta-v2",
    .kind = FamilyKind::kEncoder,
    .read = deberta_v2,
    .build = build_deberta_v2,
    .size_keys = kEncoderKeys,
    .measured = kEncoderTasks,
    .is_eager = [](const Behaviors&) { return true; },
    .answers_questions = true,
};

}  // namespace memcalc::family
