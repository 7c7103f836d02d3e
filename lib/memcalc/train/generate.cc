#include "memcalc/train/generate.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kTensor{"aten::tensor"}, kOnes{"aten::ones"}, kIsIn{"aten::isin"}, kAny{"aten::any"};
constexpr Operator kEq{"aten::eq"}, kNe{"aten::ne"}, kNot{"aten::bitwise_not"}, kMul{"aten::mul"}, kAdd{"aten::add"};
constexpr Operator kSub{"aten::sub"}, kLt{"aten::lt"}, kGt{"aten::gt"}, kCumsum{"aten::cumsum"};
constexpr Operator kMaskedFill{"aten::masked_fill"}, kToCopy{"aten::_to_copy"}, kClone{"aten::clone"};
constexpr Operator kArange{"aten::arange"}, kCat{"aten::cat"}, kNewOnes{"aten::new_ones"}, kArgmax{"aten::argmax"};
constexpr Operator kFull{"aten::full"}, kOr{"aten::bitwise_or"}, kAnd{"aten::bitwise_and"}, kMax{"aten::max"};
constexpr Operator kRepeat{"aten::repeat_interleave"};

/// A scalar on the card that dies at once: what `if tensor` and .item() read.
void read_scalar(Tape& tape, const Operator& op, DType dtype = DType::kBool) {
  tape.memory.scratch(size_of(dtype), op);
}

}  // namespace

SpecialTokens special_tokens_of(std::string_view model_type) {
  constexpr std::string_view kNone[] = {"qwen2", "qwen3", "qwen3_moe", "gpt_oss"};
  if (std::find(std::begin(kNone), std::end(kNone), model_type) != std::end(kNone)) {
    return {.begins = false, .ends = false};
  }
  if (model_type == "olmo2") return {.begins = false};
  if (model_type == "t5" || model_type == "mt5") return {.begins = false, .has_decoder_start = true};
  return {.has_decoder_start = model_type == "bart" || model_type == "whisper"};
}

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

Generation::Generation(Tape& tape, Model& model, const RunSpec& run, const SpecialTokens& tokens,
                       std::int64_t most_layer_tokens)
    : tape_(tape), model_(model), run_(run), tokens_(tokens), most_layer_tokens_(most_layer_tokens) {
  cache_.self_attention = KeyValueCache(model.sliding_window);
}

Tensor Generation::run(const Batch& batch) {
  const Tensor& inputs_tensor = batch.input_ids.defined() ? batch.input_ids : batch.input_features;
  const std::int64_t batch_size = inputs_tensor.size(0);
  prepare_special_tokens();
  if (model_.is_encoder_decoder) {
    encoder_outputs_ = model_.encode(batch);
    attention_mask_ = batch.attention_mask;
    input_ids_ = decoder_start(batch_size);
  } else {
    if (batch_size > 1 && !batch.attention_mask.defined()) look_for_right_padding(batch.input_ids);
    if (batch.attention_mask.defined() && batch_size > 1) {
      const Tensor padded = tape_.empty({batch_size}, DType::kBool, kEq);
      read_scalar(tape_, kAny);
    }
    attention_mask_ = batch.attention_mask.defined() ? batch.attention_mask : attention_mask_for(batch.input_ids);
    position_ids_ = position_ids_for(attention_mask_);
    input_ids_ = batch.input_ids;
  }
  if (run_.inference()->beams > 1) expand_inputs();
  // generate() keeps its own model_kwargs while the decoding method's grow.
  Tensor input_ids = input_ids_, attention_mask = attention_mask_, position_ids = position_ids_;
  Tensor result = run_.inference()->beams > 1 ? beam_search(batch) : sample(batch);
  cache_size_ = cache_.size();
  drop(input_ids_, attention_mask_, position_ids_);
  drop(bos_, pad_, decoder_start_);  // generation_config; the end's tensor is a processor's, too
  drop(attention_mask, position_ids, encoder_outputs_);
  cache_.clear();
  drop(has_right_padding_, input_ids, eos_);
  return result;
}

void Generation::prepare_special_tokens() {
  const auto token = [&](bool given) { return given ? tape_.empty({1}, DType::kInt64, kTensor) : Tensor(); };
  bos_ = token(tokens_.begins);
  eos_ = token(tokens_.ends);
  pad_ = token(true);
  decoder_start_ = token(tokens_.has_decoder_start);
  if (!tokens_.ends) return;
  {  // torch.isin(eos_token_tensor, pad_token_tensor).any()
    const Tensor found = ends_with(eos_, {1});
    read_scalar(tape_, kAny);
  }
  const Tensor negative = tape_.empty({1}, DType::kBool, kLt);
  read_scalar(tape_, kAny);
}

/// torch.isin(elements, a token): TensorCompare.cpp compares with one token after the other where there are few.
Tensor Generation::ends_with(const Tensor& elements, const Shape& shape) const {
  Tensor found = tape_.empty(shape, DType::kBool, kIsIn);
  Tensor equal = tape_.empty(elements.shape(), DType::kBool, kEq);
  Tensor any = tape_.empty(shape, DType::kBool, kAny);
  drop(equal, any);
  return found;
}

/// torch.sum(inputs_tensor[:, -1] == pad_token) > 0, which generate() keeps.
void Generation::look_for_right_padding(const Tensor& input_ids) {
  Tensor equal = tape_.empty({input_ids.size(0)}, DType::kBool, kEq);
  const Tensor sum = count(equal);
  equal.reset();
  has_right_padding_ = tape_.empty({}, DType::kBool, kGt);
}

/// _prepare_attention_mask_for_generation
Tensor Generation::attention_mask_for(const Tensor& input_ids) const {
  const Shape shape = input_ids.shape();
  Tensor default_mask = tape_.empty(shape, DType::kInt64, kOnes);
  Tensor is_pad_token_in_inputs;
  {
    const Tensor found = ends_with(input_ids, shape);
    is_pad_token_in_inputs = tape_.empty({}, DType::kBool, kAny);
  }
  Tensor differs_from_end, can_infer;
  if (tokens_.ends) {
    Tensor found = ends_with(eos_, {1});
    const Tensor any = tape_.empty({}, DType::kBool, kAny);
    found.reset();
    differs_from_end = tape_.empty({}, DType::kBool, kNot);
  }
  can_infer = tape_.empty({}, DType::kBool, kMul);
  Tensor from_padding;
  {
    const Tensor differs = tape_.empty(shape, DType::kBool, kNe);
    from_padding = tape_.empty(shape, DType::kInt64, kToCopy);
  }
  Tensor mask;
  {
    Tensor inferred = tape_.empty(shape, DType::kInt64, kMul);
    Tensor cannot = tape_.empty({}, DType::kBool, kNot);
    Tensor otherwise = tape_.empty(shape, DType::kInt64, kMul);
    cannot.reset();
    mask = tape_.empty(shape, DType::kInt64, kAdd);
    drop(otherwise, inferred);
  }
  drop(default_mask, is_pad_token_in_inputs, differs_from_end, can_infer, from_padding);
  return mask;
}

/// _prepare_position_ids_for_generation
Tensor Generation::position_ids_for(const Tensor& attention_mask) const {
  const Shape shape = attention_mask.shape();
  Tensor position_ids;
  {
    const Tensor sums = tape_.empty(shape, DType::kInt64, kCumsum);
    if (shape[0] == 1) tape_.memory.scratch(scan_bytes(shape[1]), kCumsum);
    position_ids = tape_.empty(shape, DType::kInt64, kSub);
  }
  Tensor masked = tape_.empty(shape, DType::kBool, kEq);
  Tensor filled = tape_.empty(shape, DType::kInt64, kMaskedFill);
  masked.reset();
  position_ids = std::move(filled);
  return position_ids;
}

/// torch.ones((batch_size, 1)) * decoder_start_token_id
Tensor Generation::decoder_start(std::int64_t batch_size) const {
  const Tensor ones = tape_.empty({batch_size, 1}, DType::kInt64, kOnes);
  return tape_.empty({batch_size, 1}, DType::kInt64, kMul);
}

/// _expand_inputs_for_generation: a copy of every tensor for each beam. The arguments live until the call returns; the
/// encoder's output is replaced in place.
void Generation::expand_inputs() {
  const auto repeated = [&](const Tensor& x) {
    Shape shape = x.shape();
    shape[0] *= run_.inference()->beams;
    return tape_.empty(shape, x.dtype(), kRepeat);
  };
  Tensor input_ids = repeated(input_ids_);
  Tensor attention_mask = attention_mask_.defined() ? repeated(attention_mask_) : Tensor();
  Tensor position_ids = position_ids_.defined() ? repeated(position_ids_) : Tensor();
  if (encoder_outputs_.defined()) encoder_outputs_ = repeated(encoder_outputs_);
  input_ids_ = std::move(input_ids);
  attention_mask_ = std::move(attention_mask);
  position_ids_ = std::move(position_ids);
}

/// prepare_inputs_for_generation and the forward pass over the prompt; its arguments die with the call.
ModelOutput Generation::prefill(const Batch& batch) {
  Batch model_inputs;
  ids_of(model_inputs) = tape_.empty(input_ids_.shape(), DType::kInt64, kClone);
  model_inputs.attention_mask = attention_mask_;
  model_inputs.padded = batch.attention_mask.defined();
  model_inputs.position_ids = position_ids_;
  model_inputs.encoder_outputs = encoder_outputs_;
  model_inputs.past_key_values = &cache_;
  model_inputs.logits_to_keep = model_.is_encoder_decoder ? 0 : 1;
  cache_.rewind();
  return model_.forward(model_inputs);
}

/// The same for one token. `model_inputs` is the loop's variable, whose former value dies as it is assigned.
ModelOutput Generation::decode(const Tensor& input_ids, const Batch& batch, Batch& model_inputs) {
  Batch next;
  const Shape token{input_ids.size(0), 1};
  ids_of(next) = tape_.empty(token, DType::kInt64, kClone);
  if (position_ids_.defined()) next.position_ids = tape_.empty(token, DType::kInt64, kClone);
  next.attention_mask = attention_mask_;
  next.padded = batch.attention_mask.defined();
  next.encoder_outputs = encoder_outputs_;
  next.past_key_values = &cache_;
  next.logits_to_keep = model_.is_encoder_decoder ? 0 : 1;
  drop(ids_of(model_inputs), model_inputs.position_ids, model_inputs.attention_mask);  // in the order of its keys
  model_inputs = next;
  next.clear();
  cache_.rewind();
  return model_.forward(model_inputs);
}

/// _update_model_kwargs_for_generation: positions and mask grow by `added` tokens (by one, but where tokens were
/// skipped).
void Generation::update_model_kwargs(std::int64_t added) {
  if (model_.is_encoder_decoder) return;
  const Shape token{attention_mask_.size(0), 1};
  const Shape grown{attention_mask_.size(0), attention_mask_.size(1) + added};
  Tensor next_position_ids;
  {
    Tensor range = tape_.empty({1}, DType::kInt64, kArange);
    Tensor shifted = tape_.empty(token, DType::kInt64, kAdd);
    range.reset();
    next_position_ids = tape_.empty(token, DType::kInt64, kAdd);
  }
  next_position_ids = tape_.empty(grown, DType::kInt64, kCat);
  Tensor attention_mask;
  {
    const Tensor ones = tape_.empty(token, DType::kInt64, kNewOnes);
    attention_mask = tape_.empty(grown, DType::kInt64, kCat);
  }
  position_ids_ = std::move(next_position_ids);
  attention_mask_ = std::move(attention_mask);
}

/// outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
Tensor Generation::last_logits(const ModelOutput& outputs) const {
  return tape_.empty({outputs.logits.size(0), outputs.logits.size(-1)}, DType::kFloat32, kToCopy);
}

/// MinLengthLogitsProcessor and MinNewTokensLengthLogitsProcessor, which differ in their order: the end's score becomes
/// -inf. Without an end there are no processors.
Tensor Generation::process_logits(const Tensor& scores) const {
  if (!tokens_.ends) return scores;
  Tensor processed = scores;
  for (const bool clones_first : {false, true}) {
    Tensor scores_processed, vocabulary, eos_token_mask;
    if (clones_first) scores_processed = tape_.empty(scores.shape(), DType::kFloat32, kClone);
    vocabulary = tape_.empty({scores.size(1)}, DType::kInt64, kArange);
    eos_token_mask = ends_with(vocabulary, vocabulary.shape());
    if (!clones_first) scores_processed = tape_.empty(scores.shape(), DType::kFloat32, kClone);
    scores_processed = where(eos_token_mask, processed);
    drop(vocabulary, eos_token_mask);
    processed = std::move(scores_processed);
  }
  return processed;
}

Tensor Generation::is_done(const Tensor& input_ids) const {
  const Shape rows{input_ids.size(0)};
  Tensor done = tape_.empty(rows, DType::kBool, kFull);
  {
    const Tensor too_long = tape_.empty(rows, DType::kBool, kFull);  // MaxLengthCriteria
    done = tape_.empty(rows, DType::kBool, kOr);
  }
  if (!tokens_.ends) return done;
  Tensor ended;
  {
    const Tensor last = slice(input_ids, 1, 0, 1);
    const Tensor found = ends_with(last, last.shape());
    ended = tape_.empty(rows, DType::kBool, kAny);
  }
  done = tape_.empty(rows, DType::kBool, kOr);
  return done;
}

std::vector<ExecutedToken> Generation::tokens_to_execute() const {
  return executed_tokens(run_.inference()->new_tokens, cache_.self_attention.layers(), most_layer_tokens_);
}

void Generation::begin_token(const ExecutedToken& token) {
  tape_.moment.phase = token.index == 0 ? Phase::kForward : Phase::kDecode;
  tape_.kernels.repeats = token.skipped + 1;
  cache_.self_attention.skip(token.skipped);
}

Tensor Generation::sample(const Batch& batch) {
  const std::int64_t batch_size = input_ids_.size(0);
  Tensor unfinished_sequences = tape_.empty({batch_size}, DType::kInt64, kOnes);
  Tensor next_token_logits, next_token_scores, next_tokens;
  Batch model_inputs;
  ModelOutput outputs = prefill(batch);
  for (const ExecutedToken& token : tokens_to_execute()) {
    begin_token(token);
    if (token.skipped > 0) update_model_kwargs(token.skipped);
    if (token.index > 0) outputs = decode(input_ids_, batch, model_inputs);
    update_model_kwargs(1);
    next_token_logits = last_logits(outputs);
    next_token_scores = process_logits(next_token_logits);
    {
      Tensor chosen = tape_.empty({batch_size}, DType::kInt64, kArgmax);
      constexpr std::int64_t kValueAndPosition = 16;  // what the reduction accumulates
      reduction_scratch(next_token_scores, 1U << 1, kValueAndPosition, kArgmax);
      next_tokens = std::move(chosen);
    }
    if (tokens_.ends) {  // next_tokens * unfinished + pad * (1 - unfinished)
      Tensor running = tape_.empty({batch_size}, DType::kInt64, kMul);
      Tensor finished = tape_.empty({batch_size}, DType::kInt64, kSub);
      Tensor padding = tape_.empty({batch_size}, DType::kInt64, kMul);
      finished.reset();
      next_tokens = tape_.empty({batch_size}, DType::kInt64, kAdd);
    }
    input_ids_ = tape_.empty({batch_size, input_ids_.size(1) + token.skipped + 1}, DType::kInt64, kCat);
    {
      Tensor done = is_done(input_ids_);
      const Tensor going_on = tape_.empty({batch_size}, DType::kBool, kNot);
      done.reset();
      unfinished_sequences = tape_.empty({batch_size}, DType::kInt64, kAnd);
    }
    {
      const Tensor most = tape_.empty({}, DType::kInt64, kMax);
      read_scalar(tape_, kEq);
    }
    outputs.clear();
  }
  Tensor result = input_ids_;
  tape_.kernels.repeats = 1;
  drop(attention_mask_, position_ids_, unfinished_sequences);
  drop(ids_of(model_inputs), model_inputs.position_ids, model_inputs.attention_mask);
  drop(next_token_logits, next_token_scores, next_tokens);
  return result;
}

}  // namespace memcalc
