// model.generate(**batch, max_new_tokens=N, …): transformers 5.17,
// generation/utils.py. The order in which it takes and drops memory; the model's forward is models/'s.
// Covered by tests/unit/generate_test.cc and tests/measured.
// MIRRORS(transformers, "generation/utils.py", "5.17.0")
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/sampling.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// A token that is executed, and how many before it are not: their blocks would be smaller than its own.
struct ExecutedToken {
  std::int64_t index = 0;    // 0: the prompt's forward pass
  std::int64_t skipped = 0;  // between it and the executed one before
};

/// So many tokens times layers are executed one by one: some 50 ms of a call.
inline constexpr std::int64_t kMostLayerTokens = 16384;

/// All tokens of a short generation. Of a long one the first and the last: every request grows with the token's number
/// or stays the same, so the largest demand is the last token's, and what is asked for before it is bounded by it.
[[nodiscard]] std::vector<ExecutedToken> executed_tokens(std::int64_t new_tokens, std::size_t layers,
                                                         std::int64_t most_layer_tokens = kMostLayerTokens);

/// What generate() is asked for.
struct GenerationCall {
  std::int64_t new_tokens = 1;                       // max_new_tokens
  std::int64_t beams = 1;                            // num_beams
  std::int64_t return_sequences = 1;                 // num_return_sequences
  bool at_least = true;                              // min_new_tokens is as much: the end's score becomes -inf
  bool samples = false;                              // do_sample with all logits as they are; false: greedy
  bool padded = true;                                // where there is a mask it masks something
  bool caches = true;                                // use_cache; false: each token runs all tokens before it again
  Sampling score_rules;                              // what the scores pass before a token is drawn
  bool evaluates = false;                            // it is a part of the evaluation, whose phase it leaves
  Tensor suppressed, suppressed_at_begin;            // SuppressTokens(AtBegin)LogitsProcessor's tokens; none: undefined
  std::function<ModelOutput(const Batch&)> forward;  // none: the model's
};

/// The variables that a decoding loop keeps from token to token: model_kwargs.
class Generation {
 public:
  Generation(Tape& tape, Model& model, GenerationCall call, const SpecialTokens& tokens,
             std::int64_t most_layer_tokens = kMostLayerTokens);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// generate(): the ids [batch * return_sequences, prompt + new tokens], or of an encoder-decoder its decoder's.
  [[nodiscard]] Tensor run(const Batch& batch);
  /// As the last token left the cache.
  [[nodiscard]] const KeyValueCacheSize& cache_size() const { return cache_size_; }

 private:
  // generate()
  void prepare_special_tokens();
  void force_end();
  void look_for_right_padding(const Tensor& input_ids);
  [[nodiscard]] Tensor attention_mask_for(const Tensor& input_ids) const;
  [[nodiscard]] static Tensor position_ids_for(const Tensor& attention_mask);
  void prepare_images(const Batch& batch);
  [[nodiscard]] Tensor decoder_start(std::int64_t batch_size) const;
  void expand_inputs(const Batch& batch, std::int64_t copies);

  // shared by both decoding methods
  /// The key under which model_inputs has the ids.
  [[nodiscard]] Tensor& ids_of(Batch& inputs) const {
    return model_.is_encoder_decoder ? inputs.decoder_input_ids : inputs.input_ids;
  }
  /// As prepare_inputs_for_generation hands them over.
  [[nodiscard]] Tensor positions_of_call(const Tensor& position_ids) const;
  [[nodiscard]] ModelOutput prefill(const Batch& batch);
  [[nodiscard]] ModelOutput decode(const Tensor& input_ids, const Batch& batch, Batch& model_inputs);
  void update_model_kwargs(std::int64_t added);
  [[nodiscard]] static Tensor last_logits(const ModelOutput& outputs);
  [[nodiscard]] Tensor process_logits(const Tensor& input_ids, const Tensor& scores, const ExecutedToken& token) const;
  [[nodiscard]] Tensor suppress(Tensor processed, const ExecutedToken& token) const;
  /// stopping_criteria: whether each row of `input_ids` is done.
  [[nodiscard]] Tensor is_done(const Tensor& input_ids) const;
  [[nodiscard]] std::vector<ExecutedToken> tokens_to_execute() const;
  void begin_token(const ExecutedToken& token);

  [[nodiscard]] Tensor sample(const Batch& batch);       // _sample
  [[nodiscard]] Tensor beam_search(const Batch& batch);  // _beam_search: train/beam_search.cc

  Tape& tape_;
  Model& model_;
  GenerationCall call_;
  SpecialTokens tokens_;
  std::int64_t most_layer_tokens_;
  std::int64_t repeats_;  // of the micro-batch that it is a part of
  Tensor bos_, eos_, pad_, decoder_start_, forced_eos_, has_right_padding_;
  Tensor input_ids_;  // as the loop goes on
  Tensor attention_mask_, token_types_, position_ids_, encoder_outputs_, labels_;
  EncoderDecoderCache cache_;
  KeyValueCacheSize cache_size_;
};

}  // namespace memcalc
