// MIRRORS(transformers, "loss/loss_utils.py", "5.17.0")
// MIRRORS(transformers, "models/albert/modeling_albert.py", "5.17.0")
// MIRRORS(transformers, "models/bert/modeling_bert.py", "5.17.0")
// MIRRORS(transformers, "models/roberta/modeling_roberta.py", "5.17.0")
#include "memcalc/models/encoder_parts.h"

#include <algorithm>
#include <utility>

#include "memcalc/models/hooked_module.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

Tensor positions_of_tokens(const Tensor& input_ids, bool adds_past) {
  Tensor mask = no_grad::to(no_grad::not_equal(input_ids), DType::kInt32);
  Tensor incremental_indices = no_grad::to(no_grad::cumsum(mask, 1), DType::kInt32);
  if (adds_past) incremental_indices = no_grad::add(std::move(incremental_indices));
  incremental_indices = no_grad::multiply(std::move(incremental_indices), mask);
  Tensor positions = no_grad::add(no_grad::to(incremental_indices, DType::kInt64));
  drop(mask, incremental_indices);
  return positions;
}

BertEmbeddings::BertEmbeddings(ModuleBuilder& b, const Sizes& sizes, bool counts_tokens, double dropout_p)
    : dropout_p(dropout_p), counts_tokens(counts_tokens) {
  word_embeddings = Embedding(b, "word_embeddings", sizes.vocabulary, sizes.width);
  const auto make_positions = [&] {
    position_embeddings = Embedding(b, "position_embeddings", sizes.positions, sizes.width);
  };
  const bool replaces = counts_tokens && b.tape.behaviors.roberta_positions_twice;
  if (!counts_tokens || replaces) make_positions();
  token_type_embeddings = Embedding(b, "token_type_embeddings", sizes.token_types, sizes.width);
  layer_norm = LayerNorm(b, "LayerNorm", sizes.width);
  position_ids = unsqueeze(b.buffer({sizes.positions}, DType::kInt64), 0);
  token_type_ids = b.buffer({1, sizes.positions}, DType::kInt64);
  if (counts_tokens && !replaces) make_positions();
}

Tensor BertEmbeddings::forward(const Tensor& input_ids, const Tensor& own_token_types) const {
  const std::int64_t batch = input_ids.size(0);
  const std::int64_t sequence = input_ids.size(1);
  Tensor positions = counts_tokens ? positions_of_tokens(input_ids, true) : slice(position_ids, 1, 0, sequence);
  Tensor token_types = own_token_types;
  const bool in_place = input_ids.tape().behaviors.adds_positions_in_place;
  if (!token_types.defined()) {
    token_types = in_place ? slice(token_type_ids, 1, 0, sequence) : no_grad::gather(token_type_ids, positions);
    token_types = expand(token_types, {batch, sequence});
  }
  Tensor inputs_embeds = word_embeddings(input_ids);
  Tensor type_embeds = token_type_embeddings(token_types);
  Tensor embeddings = inputs_embeds + type_embeds;
  Tensor position_embeds = position_embeddings(positions);
  embeddings = in_place ? add_in_place(embeddings, position_embeds) : embeddings + position_embeds;
  embeddings = layer_norm(embeddings);
  embeddings = dropout(embeddings, dropout_p);
  drop(positions, inputs_embeds, token_types, type_embeds, position_embeds);  // arguments first
  return embeddings;
}

Tensor ResidualOutput::forward(const Tensor& x, const Tensor& input_tensor) const {
  Tensor hidden_states = dense(x);
  hidden_states = dropout(hidden_states, dropout_p);
  hidden_states = layer_norm(hidden_states + input_tensor);
  return hidden_states;
}

MaskedLmHead::MaskedLmHead(ModuleBuilder& b, const Names& names, const Sizes& sizes, std::string activation,
                           bool is_tied)
    : names_(names), activation_(std::move(activation)), is_tied_(is_tied) {
  const Shape vocabulary{sizes.vocabulary};
  b.scope(names.head, [&] {
    if (names.norm_first) {
      norm_ = LayerNorm(b, names.norm, sizes.embedding);
      if (is_tied) head_bias_ = b.until_tied(vocabulary);
    }
    dense_ = Linear(b, names.dense, sizes.hidden, sizes.embedding);
    if (!names.norm_first) norm_ = LayerNorm(b, names.norm, sizes.embedding);
    if (!is_tied) {
      decoder_.weight = b.parameter("decoder.weight", {sizes.vocabulary, sizes.embedding});
      decoder_.bias = b.parameter_before("decoder.bias", vocabulary,
                                         std::string(names.norm_first ? names.norm : names.dense) + ".weight", false);
      return 0;
    }
    own_weight_ = b.until_tied({sizes.vocabulary, sizes.embedding});
    own_bias_ = b.until_tied(vocabulary);
    if (!names.norm_first) head_bias_ = b.until_tied(vocabulary);
    return 0;
  });
}

/// The weight by the word embeddings, the bias by the head's, each bias after a padded copy (_adjust_bias).
void MaskedLmHead::tie(ModuleBuilder& b, const Embedding& word_embeddings) {
  if (!is_tied_) return;
  const Shape vocabulary = own_bias_.shape();
  own_weight_.reset();
  Tensor padded = b.until_tied(vocabulary);
  drop(own_bias_, padded);
  decoder_.weight = word_embeddings.weight;
  // The bias is the head's own parameter, so module.parameters() gives it before those of its layers.
  const std::string first = names_.head + "." + std::string(names_.norm_first ? names_.norm : names_.dense) + ".weight";
  decoder_.bias = b.parameter_before(names_.head + ".bias", vocabulary, first, false);
  head_bias_.reset();
  const auto place_of = [&b](const auto& is_it) {
    return std::find_if(b.parameters.begin(), b.parameters.end(), is_it);
  };
  const auto of_head = place_of([&](const Parameter& each) { return each.name == first; });
  const auto tied = place_of([&](const Parameter& each) { return each.tensor.impl() == decoder_.weight.impl(); });
  if (of_head < tied) tied->name = names_.head + ".decoder.weight";
}

Tensor MaskedLmHead::scores(const Tensor& sequence) const {
  Tensor x = dense_(sequence);
  x = activation_function(activation_, x);
  x = norm_(x);
  return decoder_(x);
}

Tensor MaskedLmHead::operator()(const Tensor& sequence) const {
  ModuleHooks* hooks = sequence.tape().modes.module_hooks;
  if (hooks == nullptr || !is_tied_) return scores(sequence);
  // self.bias, which the decoder shares
  return between_hooks(*hooks, this, {&decoder_.bias}, sequence, [this](const Tensor& x) { return scores(x); });
}

Tensor ClassificationHead::operator()(const Tensor& features) const {
  Tensor x = open_slices(select(open_slices(features, {0}), 1), {1});
  x = dropout(x, dropout_p);
  x = dense(x);
  x = activation == "tanh" ? tanh(x) : gelu(x);
  x = dropout(x, dropout_p);
  return out_proj(x);
}

Tensor masked_lm_loss(const Tensor& logits, const Tensor& labels, const Tensor& number_of_items) {
  Tensor upcast = view(to_dtype(logits, DType::kFloat32), {-1, logits.size(-1)});
  Tensor loss = cross_entropy(upcast, view(labels, {-1}), reduction_beside(number_of_items));
  if (number_of_items.defined()) loss = divide(loss, number_of_items);
  upcast.reset();
  return loss;
}

void set_label_loss(ModelOutput& output, const Tensor& labels, std::int64_t classes) {
  if (labels.defined()) output.loss = cross_entropy(view(output.logits, {-1, classes}), view(labels, {-1}));
}

}  // namespace memcalc
