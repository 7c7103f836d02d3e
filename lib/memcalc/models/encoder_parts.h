// What encoders of BERT's line share: embeddings, the second half of a block, heads and their losses. transformers
// copies these classes from file to file (modeling_bert.py, modeling_roberta.py, modeling_albert.py, modeling_mpnet.py,
// modeling_deberta_v2.py).
// Covered by tests/measured/program_test.cc.
#pragma once

#include <string>
#include <string_view>

#include "memcalc/models/model.h"

namespace memcalc {

/// create_position_ids_from_input_ids: positions count the tokens that are not padding, [B, S] int64. RoBERTa's adds
/// the length of a cache, MPNet's does not.
[[nodiscard]] Tensor positions_of_tokens(const Tensor& input_ids, bool adds_past);

/// BertEmbeddings, AlbertEmbeddings; RobertaEmbeddings where `counts_tokens`. [B, S, width]
struct BertEmbeddings {
  struct Sizes {
    std::int64_t vocabulary = 0, positions = 0, token_types = 0, width = 0;
  };

  Embedding word_embeddings, position_embeddings, token_type_embeddings;
  LayerNorm layer_norm;
  Tensor position_ids, token_type_ids;
  double dropout_p = 0;
  bool counts_tokens = false;

  BertEmbeddings() = default;
  BertEmbeddings(ModuleBuilder& b, const Sizes& sizes, bool counts_tokens, double dropout_p);

  /// `own_token_types`: undefined where the batch has none.
  [[nodiscard]] Tensor forward(const Tensor& input_ids, const Tensor& own_token_types) const;
};

/// BertSelfOutput and BertOutput: dense, dropout, residual, norm.
struct ResidualOutput {
  Linear dense;
  LayerNorm layer_norm;
  double dropout_p;

  ResidualOutput(ModuleBuilder& b, std::int64_t in, std::int64_t out, double dropout_p)
      : dense(b, "dense", in, out), layer_norm(b, "LayerNorm", out), dropout_p(dropout_p) {}

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& input_tensor) const;
};

/// BertLMPredictionHead, RobertaLMHead, AlbertMLMHead and their copies: dense, activation, norm, decoder. The decoder's
/// weight is tied to the word embeddings, its bias is the head's own parameter.
class MaskedLmHead {
 public:
  struct Names {
    std::string head;              // the module's path
    std::string_view dense, norm;  // within it
    bool norm_first = false;       // of the two it is made first
  };
  struct Sizes {
    std::int64_t hidden = 0, embedding = 0, vocabulary = 0;
  };

  MaskedLmHead() = default;
  /// The layers; the decoder's own weight and biases live until they are tied.
  MaskedLmHead(ModuleBuilder& b, const Names& names, const Sizes& sizes, std::string activation, bool is_tied);
  /// tie_weights, once all of the model's modules are made; nothing where there is no such head. A parameter that two
  /// modules have goes by the first one's name: the head's, where it was made before the embeddings.
  void tie(ModuleBuilder& b, const Embedding& word_embeddings);

  [[nodiscard]] Tensor operator()(const Tensor& sequence) const;

 private:
  [[nodiscard]] Tensor scores(const Tensor& sequence) const;

  Names names_;
  Linear dense_, decoder_;
  LayerNorm norm_;
  std::string activation_;
  bool is_tied_ = false;
  Tensor own_weight_, own_bias_, head_bias_;
};

/// F.cross_entropy(logits.view(-1, classes), labels.view(-1)), where the batch has labels.
void set_label_loss(ModelOutput& output, const Tensor& labels, std::int64_t classes);

/// loss_utils.py, ForMaskedLMLoss: float32 logits; summed and divided by `number_of_items` where that is defined.
[[nodiscard]] Tensor masked_lm_loss(const Tensor& logits, const Tensor& labels, const Tensor& number_of_items);

/// x = features[:, 0, :]; dropout, dense, an activation, dropout, out_proj: RobertaClassificationHead and its copies.
struct ClassificationHead {
  Linear dense, out_proj;
  std::string_view activation;  // "tanh", "gelu"
  double dropout_p = 0;

  ClassificationHead() = default;
  ClassificationHead(ModuleBuilder& b, std::int64_t width, std::int64_t num_labels, std::string_view activation,
                     double dropout_p)
      : dense(b, "classifier.dense", width, width),
        out_proj(b, "classifier.out_proj", width, num_labels),
        activation(activation),
        dropout_p(dropout_p) {}

  [[nodiscard]] Tensor operator()(const Tensor& features) const;
};

}  // namespace memcalc
