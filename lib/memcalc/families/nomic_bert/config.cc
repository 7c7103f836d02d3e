// config.json of Nomic BERT, as transformers 5.17 reads it: models/nomic_bert.
#include "memcalc/families/nomic_bert/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture nomic_bert(HfReader& config) {
  NomicBertSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 30528);
  spec.hidden_size = config.size({"hidden_size"}, 768);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 12);
  spec.intermediate_size = config.size({"intermediate_size"}, 3072);
  spec.hidden_act = config.activation("hidden_act", "silu");
  spec.hidden_dropout_prob = config.probability("hidden_dropout_prob", 0);
  spec.attention_probs_dropout_prob = config.probability("attention_probs_dropout_prob", 0);
  spec.classifier_dropout = config.json().nullable_double("classifier_dropout", {0, 1});
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 2048);
  spec.type_vocab_size = config.size({"type_vocab_size"}, 2);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  const std::optional<std::int64_t> head_dim = config.nullable_size("head_dim");
  if (!head_dim) config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.head_dim = head_dim.value_or(spec.hidden_size / spec.num_attention_heads);
  if (spec.head_dim % 2 != 0) {
    throw config.json().error(
        head_dim ? "head_dim" : "hidden_size",
        "gives a head of " + std::to_string(spec.head_dim) + "; accepted: an even one (rotary positions turn pairs)");
  }
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const std::optional<JsonObject> rope = config.json().nullable_object(name);
    if (!rope) continue;
    const std::string type = rope->nullable_string("rope_type").value_or("default");
    if (type != "default" && type != "linear") throw rope->error_found("rope_type", "default, linear");
  }
  config.check_parameter_count([&] {
    const std::int64_t heads = checked_multiply(spec.num_attention_heads, spec.head_dim);
    const std::int64_t layer =
        checked_add(checked_multiply(4, linear_parameters(spec.hidden_size, heads)),
                    checked_multiply(3, linear_parameters(spec.hidden_size, spec.intermediate_size)));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size + spec.type_vocab_size, spec.hidden_size));
  });
  return spec;
}

}  // namespace

const Family kNomicBert = {
    .model_type = "nomic_bert",
    .kind = FamilyKind::kEncoder,
    .read = nomic_bert,
    .build = build_nomic_bert,
    .size_keys = with(kEncoderKeys, 4, {"head_dim", ""}),
    .measured = kEncoderTasks,
};

}  // namespace memcalc::family
