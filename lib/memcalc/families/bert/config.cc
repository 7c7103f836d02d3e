// config.json of BERT and what is written like it, as transformers 5.17 reads it: models/bert, models/roberta,
// models/xlm_roberta, models/camembert, models/electra.
#include <algorithm>
#include <string>

#include "memcalc/families/bert/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

enum class BertKind { kBert, kRoberta, kXlmRoberta, kElectra };  // CamemBERT's classes are XLM-RoBERTa's

BertSpec bert_block(HfReader& config, BertKind kind) {
  BertSpec spec;
  spec.head_comes_first = kind == BertKind::kXlmRoberta;
  const bool roberta = kind == BertKind::kRoberta || spec.head_comes_first;
  const bool electra = kind == BertKind::kElectra;
  spec.is_roberta = roberta;
  spec.is_electra = electra;
  spec.vocab_size = config.size({"vocab_size"}, kind == BertKind::kRoberta ? 50265 : 30522);
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
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.intermediate_size, 2);
    const std::int64_t rows = spec.vocab_size + spec.max_position_embeddings + spec.type_vocab_size + spec.num_labels;
    const std::int64_t width = std::max(spec.hidden_size, spec.embedding_size);
    return checked_add(checked_multiply(layer, spec.num_hidden_layers), checked_multiply(rows, width));
  });
  return spec;
}

Architecture bert(HfReader& config) { return bert_block(config, BertKind::kBert); }

Architecture roberta(HfReader& config) { return bert_block(config, BertKind::kRoberta); }

Architecture xlm_roberta(HfReader& config) { return bert_block(config, BertKind::kXlmRoberta); }

Architecture electra(HfReader& config) { return bert_block(config, BertKind::kElectra); }

}  // namespace

const Family kBert = {
    .model_type = "bert",
    .kind = FamilyKind::kEncoder,
    .read = bert,
    .build = build_bert,
    .size_keys = kEncoderKeys,
    .measured = kEncoderTasks,
    .answers_questions = true,
    .to_megatron = bert_to_megatron,
};

const Family kCamembert = {
    .model_type = "camembert",
    .kind = FamilyKind::kEncoder,
    .read = xlm_roberta,
    .build = build_bert,
    .size_keys = kEncoderKeys,
    .measured = kEncoderTasks,
    .answers_questions = true,
};

const Family kRoberta = {
    .model_type = "roberta",
    .kind = FamilyKind::kEncoder,
    .read = roberta,
    .build = build_bert,
    .size_keys = kEncoderKeys,
    .measured = kEncoderTasks,
    .answers_questions = true,
};

const Family kXlmRoberta = {
    .model_type = "xlm-roberta",
    .kind = FamilyKind::kEncoder,
    .read = xlm_roberta,
    .build = build_bert,
    .size_keys = kEncoderKeys,
    .measured = kClassifierAndMaskedLm,
    .answers_questions = true,
};

const Family kElectra = {
    .model_type = "electra",
    .kind = FamilyKind::kEncoder,
    .read = electra,
    .build = build_bert,
    .size_keys = kEncoderKeys,
    .measured = kEncoderTasks,
    .is_eager = [](const Behaviors& b) -> bool { return b.electra_eager; },
    .answers_questions = true,
};

}  // namespace memcalc::family
