// config.json of DistilBERT, as transformers 5.17 reads it: models/distilbert.
#include "memcalc/families/distilbert/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture distilbert(HfReader& config) {
  DistilBertSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 30522);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 512);
  spec.n_layers = config.size({"n_layers", "num_hidden_layers"}, 6, kLayerRange);
  spec.n_heads = config.size({"n_heads", "num_attention_heads"}, 12);
  spec.dim = config.size({"dim", "hidden_size"}, 768);
  spec.hidden_dim = config.size({"hidden_dim"}, 3072);
  spec.dropout = config.probability("dropout", 0.1);
  spec.attention_dropout = config.probability("attention_dropout", 0.1);
  spec.activation = config.activation("activation", "gelu");
  spec.seq_classif_dropout = config.probability("seq_classif_dropout", 0.2);
  spec.qa_dropout = config.probability("qa_dropout", 0.1);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  config.divides("n_heads", spec.n_heads, "dim", spec.dim);
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.dim, spec.hidden_dim, 2);
    const std::int64_t rows = 2 * spec.vocab_size + spec.max_position_embeddings + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.n_layers), checked_multiply(rows, spec.dim));
  });
  return spec;
}

constexpr SizeKeysOfFamily kDistilbertKeys = {{{"n_layers", ""},
                                               {"dim", ""},
                                               {"n_heads", ""},
                                               {},
                                               {},
                                               {"hidden_dim", ""},
                                               {"vocab_size", ""},
                                               {"max_position_embeddings", ""},
                                               {"tie_word_embeddings", ""}}};

}  // namespace

const Family kDistilBert = {
    .model_type = "distilbert",
    .kind = FamilyKind::kEncoder,
    .read = distilbert,
    .build = build_distilbert,
    .size_keys = kDistilbertKeys,
    .measured = kEncoderTasks,
    .answers_questions = true,
};

}  // namespace memcalc::family
