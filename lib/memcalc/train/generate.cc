#include "memcalc/train/generate.h"

#include <algorithm>
#include <utility>

#include "memcalc/models/image_text.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/module_walks.h"
#include "memcalc/train/sampled_scores.h"

namespace memcalc {

std::vector<ExecutedToken> executed_tokens(std::int64_t new_tokens, std::size_t layers,
                                           std::int64_t most_layer_tokens) {
  constexpr std::int64_t kFirst = 16, kLast = 16;
  std::vector<ExecutedToken> tokens;
  const bool all = new_tokens <= kFirst + kLast ||
                   new_tokens <= most_layer_tokens / static_cast<std::int64_t>(std::max<std::size_t>(layers, 1));
  for (std::int64_t i = 0; i < new_tokens; ++i) {
    if (!all && i == kFirst) {
      i = new_tokens - kLast;
      tokens.push_back({i, i - kFirst});
    } else {
      tokens.push_back({i, 0});
    }
  }
  return tokens;
}

Generation::Generation(Tape& tape, Model& model, GenerationCall call, const SpecialTokens& tokens,
                       std::int64_t most_layer_tokens)
    : tape_(tape),
      model_(model),
      call_(std::move(call)),
      tokens_(tokens),
      most_layer_tokens_(most_layer_tokens),
      repeats_(tape.kernels.repeats) {
  if (!call_.forward) call_.forward = [&model](const Batch& batch) { return model.forward(batch); };
  cache_.self_attention = KeyValueCache(model.sliding_window);
}

Tensor Generation::run(const Batch& batch) {
  const Scoped<bool> integers(tape_.kernels.integers, true);
  record_host_work(tape_, HostWork::kGenerateCall);
  const Tensor& inputs_tensor = batch.input_ids.defined() ? batch.input_ids : batch.input_features;
  const std::int64_t batch_size = inputs_tensor.size(0);
  prepare_special_tokens();
  if (model_.is_encoder_decoder) {
    // Bytecode instructions of Python before the first token: 91,000 to 104,000 of decoders, 151,000 and 169,000 of T5
    // and BART, 206,000 of Whisper, whose generate() is its own (tests/measured/python_counts.jsonl).
    record_host_work(tape_, HostWork::kGenerateEncoder, batch.input_ids.defined() ? 1 : 2);
    record_host_work(tape_, HostWork::kModelCall);
    encoder_outputs_ = model_.encode(batch);
    attention_mask_ = batch.attention_mask;
    input_ids_ = decoder_start(batch_size);
    if (batch.decoder_input_ids.defined()) input_ids_ = batch.decoder_input_ids;  // Whisper's, as they are
  } else {
    if (batch_size > 1 && !batch.attention_mask.defined()) look_for_right_padding(batch.input_ids);
    if (batch.attention_mask.defined() && batch_size > 1) {
      const Tensor padded = no_grad::equal(no_grad::select(batch.attention_mask, 1));
      read_on_host(no_grad::any(padded));
    }
    attention_mask_ = batch.attention_mask.defined() ? batch.attention_mask : attention_mask_for(batch.input_ids);
    if (model_.takes_position_ids) position_ids_ = position_ids_for(attention_mask_);
    if (model_.images != nullptr) prepare_images(batch);
    input_ids_ = batch.input_ids;
  }
  const std::int64_t copies = std::max(call_.beams, call_.return_sequences);
  if (copies > 1) expand_inputs(batch, copies);
  if (tokens_.forces_end) force_end();
  // generate() keeps its own model_kwargs while the decoding method's grow.
  Tensor input_ids = input_ids_, attention_mask = attention_mask_, position_ids = position_ids_;
  Tensor result = call_.beams > 1 ? beam_search(batch) : sample(batch);
  cache_size_ = cache_.size();
  drop(input_ids_, attention_mask_, token_types_, position_ids_);
  drop(bos_, pad_, decoder_start_);  // generation_config; the end's tensor is a processor's, too
  drop(attention_mask, position_ids, encoder_outputs_, labels_);
  cache_.clear();
  drop(has_right_padding_, input_ids, eos_, forced_eos_);
  return result;
}

void Generation::prepare_special_tokens() {
  const auto token = [&](bool given) { return given ? no_grad::from_list(tape_, {1}) : Tensor(); };
  bos_ = token(tokens_.begins);
  eos_ = token(tokens_.ends);
  pad_ = token(true);
  decoder_start_ = token(tokens_.has_decoder_start);
  if (!tokens_.ends) return;
  {  // torch.isin(eos_token_tensor, pad_token_tensor).any()
    const Tensor found = no_grad::isin(eos_, pad_);
    read_on_host(no_grad::any(found));
  }
  const Tensor negative = no_grad::less(eos_);
  read_on_host(no_grad::any(negative));
}

/// ForcedEOSTokenLogitsProcessor: (eos_token_id < 0).any()
void Generation::force_end() {
  forced_eos_ = no_grad::from_list(tape_, {1});
  const Tensor negative = no_grad::less(forced_eos_);
  read_on_host(no_grad::any(negative));
}

/// torch.sum(inputs_tensor[:, -1] == pad_token) > 0, which generate() keeps.
void Generation::look_for_right_padding(const Tensor& input_ids) {
  has_right_padding_ = no_grad::greater(no_grad::sum(no_grad::equal(no_grad::select(input_ids, 1))));
}

/// _prepare_attention_mask_for_generation
Tensor Generation::attention_mask_for(const Tensor& input_ids) const {
  Tensor default_mask = no_grad::ones(tape_, input_ids.shape(), DType::kInt64);
  Tensor is_pad_token_in_inputs = no_grad::any(no_grad::isin(input_ids, pad_));
  Tensor differs_from_end, can_infer;
  if (tokens_.ends) {
    differs_from_end = no_grad::bitwise_not(no_grad::any(no_grad::isin(eos_, pad_)));
    can_infer = no_grad::multiply(is_pad_token_in_inputs, differs_from_end);
  } else {
    can_infer = no_grad::multiply(is_pad_token_in_inputs);
  }
  Tensor from_padding = no_grad::to(no_grad::not_equal(input_ids), DType::kInt64);
  Tensor inferred = no_grad::multiply(from_padding, can_infer);
  Tensor otherwise = no_grad::multiply(default_mask, no_grad::bitwise_not(can_infer));
  Tensor mask = no_grad::add(inferred, otherwise);
  drop(otherwise, inferred);
  drop(default_mask, is_pad_token_in_inputs, differs_from_end, can_infer, from_padding);
  return mask;
}

/// _prepare_position_ids_for_generation
Tensor Generation::position_ids_for(const Tensor& attention_mask) {
  Tensor position_ids = no_grad::subtract(no_grad::cumsum(attention_mask, 1));
  position_ids = no_grad::masked_fill(position_ids, no_grad::equal(attention_mask));
  return position_ids;
}

/// What a model of images and text is given beside the text.
void Generation::prepare_images(const Batch& batch) {
  // PreTrainedConfig._get_generation_parameters makes the whole configuration anew, `self.__class__().to_dict()`:
  // Python like that of an encoder's, of eight models of images and text 4.2 to 5.3 times as much (Gemma 3's 1.9),
  // timed on a CPU beside a tiny LLaMA's generate() on 2026-11-29.
  record_host_work(tape_, HostWork::kGenerateEncoder, 5);
  Batch with_mask = batch;
  with_mask.attention_mask = attention_mask_;
  with_mask.padded = batch.attention_mask.defined() && call_.padded;
  position_ids_ = model_.images->positions_for_generation(with_mask, position_ids_);
  const GrowingTypes& types = model_.images->growing_types();
  if (types.place && *types.place < batch.others.size()) token_types_ = batch.others[*types.place];
}

/// torch.ones((batch_size, 1)) * decoder_start_token_id
Tensor Generation::decoder_start(std::int64_t batch_size) const {
  return no_grad::multiply(no_grad::ones(tape_, {batch_size, 1}, DType::kInt64));
}

/// _expand_inputs_for_generation: so many copies of every tensor. The arguments live until the call returns; the
/// encoder's output is replaced in place.
void Generation::expand_inputs(const Batch& batch, std::int64_t copies) {
  const auto repeated = [&](const Tensor& x) { return no_grad::repeat_interleave(x, copies); };
  Tensor input_ids = repeated(input_ids_);
  Tensor attention_mask = attention_mask_.defined() ? repeated(attention_mask_) : Tensor();
  Tensor position_ids = position_ids_.defined() ? repeated(position_ids_) : Tensor();
  if (batch.labels.defined()) labels_ = repeated(batch.labels);  // an evaluation hands them over, too
  if (encoder_outputs_.defined()) encoder_outputs_ = repeated(encoder_outputs_);
  input_ids_ = std::move(input_ids);
  attention_mask_ = std::move(attention_mask);
  position_ids_ = std::move(position_ids);
}

Tensor Generation::positions_of_call(const Tensor& position_ids) const {
  const bool from_one = model_.images != nullptr && model_.images->counts_from_one();
  return from_one ? no_grad::add(position_ids) : position_ids;
}

/// prepare_inputs_for_generation and the forward pass over the prompt; its arguments die with the call.
ModelOutput Generation::prefill(const Batch& batch) {
  Batch model_inputs;
  ids_of(model_inputs) = no_grad::clone(input_ids_);
  model_inputs.attention_mask = attention_mask_;
  model_inputs.padded = batch.attention_mask.defined() && call_.padded;
  model_inputs.position_ids = positions_of_call(position_ids_);
  if (model_.images != nullptr) {
    model_inputs.pixel_values = batch.pixel_values;
    model_inputs.others = batch.others;
  }
  model_inputs.encoder_outputs = encoder_outputs_;
  model_inputs.past_key_values = call_.caches ? &cache_ : nullptr;
  model_inputs.logits_to_keep = model_.is_encoder_decoder ? 0 : 1;
  cache_.rewind();
  record_host_work(tape_, HostWork::kModelCall);
  return call_.forward(model_inputs);
}

/// The same for one token, without a cache for all of them. `model_inputs` is the loop's variable, whose former value
/// dies as it is assigned.
ModelOutput Generation::decode(const Tensor& input_ids, const Batch& batch, Batch& model_inputs) {
  Batch next;
  const auto last_token = [](const Tensor& x) { return no_grad::clone(no_grad::slice(x, -1, x.size(-1) - 1, 1)); };
  ids_of(next) = call_.caches ? last_token(input_ids) : no_grad::clone(input_ids);
  if (position_ids_.defined()) next.position_ids = call_.caches ? last_token(position_ids_) : position_ids_;
  if (token_types_.defined()) {
    const GrowingTypes& types = model_.images->growing_types();
    next.token_type_ids = types.repeats_last ? last_token(token_types_) : token_types_;
    if (!types.handed_on) next.token_type_ids.reset();
  }
  if (next.position_ids.defined()) next.position_ids = positions_of_call(next.position_ids);
  next.attention_mask = attention_mask_;
  next.padded = batch.attention_mask.defined() && call_.padded;
  next.encoder_outputs = encoder_outputs_;
  next.past_key_values = call_.caches ? &cache_ : nullptr;
  next.logits_to_keep = model_.is_encoder_decoder ? 0 : 1;
  drop(ids_of(model_inputs), model_inputs.position_ids, model_inputs.token_type_ids,
       model_inputs.attention_mask);  // in the order of its keys
  model_inputs = next;
  next.clear();
  cache_.rewind();
  record_host_work(tape_, HostWork::kModelCall);
  return call_.forward(model_inputs);
}

/// _update_model_kwargs_for_generation: positions and mask grow by `added` tokens (by one, but where tokens were
/// skipped).
void Generation::update_model_kwargs(std::int64_t added) {
  if (model_.is_encoder_decoder) return;
  const std::int64_t rows = attention_mask_.size(0);
  Tensor token_types;  // as the positions and the mask the former ones die behind what is made of all three
  if (token_types_.defined()) {
    const Tensor next = model_.images->growing_types().repeats_last
                            ? no_grad::slice(token_types_, 1, token_types_.size(1) - 1, 1)
                            : no_grad::new_zeros(tape_, {rows, added}, token_types_.dtype());
    token_types = no_grad::cat(token_types_, no_grad::expand(next, {rows, added}), 1);
  }
  Tensor next_position_ids;
  if (position_ids_.defined()) {
    next_position_ids = no_grad::add(
        no_grad::add(no_grad::arange(tape_, 1), no_grad::slice(position_ids_, -1, position_ids_.size(-1) - 1, 1)));
    Shape added_shape = position_ids_.shape();  // 2D, 3D of Qwen2-VL
    added_shape[-1] = added;
    next_position_ids = no_grad::cat(position_ids_, no_grad::expand(next_position_ids, added_shape), -1);
  }
  Tensor attention_mask = no_grad::cat(
      attention_mask_, no_grad::expand(no_grad::new_ones(tape_, {rows, 1}, attention_mask_.dtype()), {rows, added}), 1);
  token_types_ = std::move(token_types);
  position_ids_ = std::move(next_position_ids);
  attention_mask_ = std::move(attention_mask);
}

/// outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
Tensor Generation::last_logits(const ModelOutput& outputs) {
  return no_grad::copy_to(no_grad::select(outputs.logits, 1), DType::kFloat32);
}

/// MinLengthLogitsProcessor and MinNewTokensLengthLogitsProcessor, which differ in their order: the end's score becomes
/// -inf. ForcedEOSTokenLogitsProcessor gives the last token's scores anew.
Tensor Generation::process_logits(const Tensor& input_ids, const Tensor& scores, const ExecutedToken& token) const {
  Tensor processed = call_.score_rules.has(ScoreRule::kRepetitionPenalty) ? penalised(scores, input_ids) : scores;
  const bool is_last = token.index == call_.new_tokens - 1;
  const bool delays_end = tokens_.ends && call_.at_least;
  for (const bool clones_first : {false, true}) {
    if (!delays_end) break;
    Tensor scores_processed, vocabulary, eos_token_mask;
    if (clones_first) scores_processed = no_grad::clone(scores);
    vocabulary = no_grad::arange(tape_, scores.size(1));
    eos_token_mask = no_grad::isin(vocabulary, eos_);
    if (!clones_first) scores_processed = no_grad::clone(scores);
    scores_processed = where(eos_token_mask, processed);
    drop(vocabulary, eos_token_mask);
    processed = std::move(scores_processed);
  }
  if (tokens_.forces_end && is_last) processed = no_grad::full_like(processed);
  if (call_.suppressed_at_begin.defined()) processed = suppress(std::move(processed), token);
  return warped(call_.score_rules, std::move(processed));
}

/// SuppressTokensAtBeginLogitsProcessor, which looks for its tokens every time, and SuppressTokensLogitsProcessor.
Tensor Generation::suppress(Tensor processed, const ExecutedToken& token) const {
  for (const bool at_begin : {true, false}) {
    if (!at_begin && !call_.suppressed.defined()) break;
    Tensor vocabulary = no_grad::arange(tape_, processed.size(1));
    Tensor suppress_token_mask = no_grad::isin(vocabulary, at_begin ? call_.suppressed_at_begin : call_.suppressed);
    if (!at_begin || token.index == 0) processed = where(suppress_token_mask, processed);
    drop(vocabulary, suppress_token_mask);
  }
  return processed;
}

Tensor Generation::is_done(const Tensor& input_ids) const {
  const Shape rows{input_ids.size(0)};
  Tensor done = no_grad::full(tape_, rows, DType::kBool);
  {
    const Tensor too_long = no_grad::full(tape_, rows, DType::kBool);  // MaxLengthCriteria
    done = no_grad::bitwise_or(done, too_long);
  }
  if (!tokens_.ends) return done;
  Tensor ended;
  {
    const Tensor last = slice(input_ids, 1, 0, 1);
    const Tensor found = no_grad::isin(last, eos_);
    ended = no_grad::any(found, 1);
  }
  done = no_grad::bitwise_or(done, ended);
  return done;
}

std::vector<ExecutedToken> Generation::tokens_to_execute() const {
  if (!call_.caches) return executed_tokens(call_.new_tokens, 1, 0);  // each runs the whole model on all tokens
  return executed_tokens(call_.new_tokens, cache_.self_attention.layers(), most_layer_tokens_);
}

void Generation::begin_token(const ExecutedToken& token) {
  if (!call_.evaluates) tape_.moment.phase = token.index == 0 ? Phase::kForward : Phase::kDecode;
  tape_.kernels.repeats = repeats_ * (token.skipped + 1);
  cache_.self_attention.skip(token.skipped);
  record_host_work(tape_, HostWork::kGeneratedToken);
}

Tensor Generation::sample(const Batch& batch) {
  const std::int64_t batch_size = input_ids_.size(0);
  Tensor unfinished_sequences = no_grad::ones(tape_, {batch_size}, DType::kInt64);
  Tensor next_token_logits, next_token_scores, probabilities, next_tokens;
  Batch model_inputs;
  ModelOutput outputs = prefill(batch);
  // _optimize_model_for_decode: behind the prompt experts are told to take batched products, and at the end grouped
  // ones again, each a walk over all modules.
  if (model_.inactive_parameters > 0)
    record_host_work(tape_, HostWork::kWalkedModule, 2 * count_modules(model_.parameters).all);
  for (const ExecutedToken& token : tokens_to_execute()) {
    begin_token(token);
    if (token.skipped > 0) update_model_kwargs(token.skipped);
    const auto repeated = [&](std::int64_t count) {
      return no_grad::expand(no_grad::unsqueeze(next_tokens, 1), {batch_size, count});
    };
    const bool reads_all = !call_.caches && token.skipped > 0;
    if (reads_all) input_ids_ = no_grad::cat(input_ids_, repeated(token.skipped), 1);
    if (token.index > 0) outputs = decode(input_ids_, batch, model_inputs);
    update_model_kwargs(1);
    next_token_logits = last_logits(outputs);
    next_token_scores = process_logits(input_ids_, next_token_logits, token);
    if (call_.samples) {
      probabilities = softmax(next_token_scores);
      next_tokens = no_grad::multinomial_once(probabilities);
    } else {
      next_tokens = no_grad::argmax_last(next_token_scores);
    }
    if (tokens_.ends) {  // next_tokens * unfinished + pad * (1 - unfinished)
      const Tensor running = no_grad::multiply(next_tokens, unfinished_sequences);
      const Tensor padding = no_grad::multiply(pad_, no_grad::subtract(unfinished_sequences));
      next_tokens = no_grad::add(running, padding);
    }
    input_ids_ = no_grad::cat(input_ids_, repeated(reads_all ? 1 : token.skipped + 1), 1);
    {
      const Tensor going_on = no_grad::bitwise_not(is_done(input_ids_));
      unfinished_sequences = no_grad::bitwise_and(unfinished_sequences, going_on);
    }
    {
      const Tensor most = no_grad::max(unfinished_sequences);
      read_on_host(no_grad::equal(most));  // StopCheck
    }
    outputs.clear();
  }
  Tensor result = input_ids_;
  tape_.kernels.repeats = repeats_;
  drop(attention_mask_, position_ids_, unfinished_sequences);
  drop(ids_of(model_inputs), model_inputs.position_ids, model_inputs.attention_mask);
  drop(next_token_logits, next_token_scores, probabilities, next_tokens);
  return result;
}

}  // namespace memcalc
