// What transformers infers, and what of it is modelled. Covered by tests/unit/rules_inference_test.cc.
#include <fmt/core.h>

#include <string>

#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

bool generates(const RuleQuestion& q) { return q.run.inference()->new_tokens > 0; }

std::string positions(const RuleQuestion& q) { return fmt::format("{}", position_limit(q.model).value_or(0)); }

/// Whether tokens behind `prompt` others are beyond the table of positions.
bool is_beyond_positions(const RuleQuestion& q, std::int64_t prompt) {
  const auto limit = position_limit(q.model);
  return limit && q.run.inference()->new_tokens > *limit - prompt;
}

constexpr Rule kInference[] = {
    {.id = "infer-contrastive",
     .options = "--infer --model",
     .message = "infer: {family} is only modelled with its contrastive loss, which inference does not compute",
     .accepted = "no --infer",
     .broken = [](const RuleQuestion& q) { return is_contrastive(q.model); }},
    {.id = "infer-ids-of-the-decoder",
     .options = "--infer --model",
     .message = "infer: a forward pass of {model} needs ids for its decoder beside those of its encoder",
     .accepted = "--new-tokens N",
     .broken =
         [](const RuleQuestion& q) {
           return !generates(q) && is_encoder_decoder(q.model) && !has(q, &Family::keeps_cache_in_inference);
         }},
    {.id = "infer-one-gpu",
     .options = "--gpus --parallel --framework --infer",
     .message = "infer: inference is modelled on one GPU under torch",
     .accepted = "--gpus 1, no --parallel",
     .broken = is_parallel,
     .code = ErrorCode::kUnsupported},
    {.id = "kv-cache-dtype-of-activations",
     .options = "--kv-cache-dtype --precision",
     .message = "KV cache dtype {--kv-cache-dtype}: transformers' DynamicCache keeps keys and values in the type of "
                "the activations",
     .accepted = "--kv-cache-dtype {}",
     .broken =
         [](const RuleQuestion& q) {
           const auto& type = q.run.inference()->key_value_cache_dtype;
           return type && *type != weights_dtype_of(q.run);
         },
     .detail = [](const RuleQuestion& q) { return typed(weights_dtype_of(q.run)); },
     .code = ErrorCode::kUnsupported},
    {.id = "infer-unsloth",
     .options = "--unsloth --infer",
     .message = "unsloth: its FastLanguageModel.for_inference is not modelled",
     .accepted = "no --unsloth",
     .broken = has_unsloth},
    {.id = "infer-liger",
     .options = "--liger --infer",
     .message = "liger: its kernels belong to training, and with --infer there is none",
     .accepted = "no --liger",
     .broken = has_liger},
};

constexpr Rule kGeneration[] = {
    {.id = "new-tokens-of-language-models",
     .options = "--new-tokens --model --task",
     .message = "new tokens: {model} with the task {--task} has no language-model head that generates",
     .accepted = "no --new-tokens",
     .broken =
         [](const RuleQuestion& q) { return !(is_decoder(q.model) && is_causal(q)) && !is_encoder_decoder(q.model); }},
    {.id = "new-tokens-within-positions",
     .options = "--new-tokens --seq --model",
     .message = "new tokens: {--new-tokens} behind a prompt of {--seq} are beyond the {} positions of {model}",
     .accepted = "fewer --new-tokens, or a shorter --seq",
     .broken =
         [](const RuleQuestion& q) {
           return !is_encoder_decoder(q.model) && is_beyond_positions(q, q.run.sequence_length);
         },
     .detail = positions},
    {.id = "new-tokens-within-decoder-positions",
     .options = "--new-tokens --model",
     .message =
         "new tokens: {--new-tokens} behind the token that starts the decoder are beyond the {} positions of {model}",
     .accepted = "fewer --new-tokens",
     .broken = [](const RuleQuestion& q) { return is_encoder_decoder(q.model) && is_beyond_positions(q, 1); },
     .detail = positions},
};

constexpr Rule kUncached[] = {
    {.id = "generation-without-cache",
     .options = "--new-tokens --eval-generate --loop --model",
     .message =
         "generation: use_cache of {model}'s configuration is off, and without a KV cache generate() is modelled "
         "for decoders of text",
     .accepted = "a config.json with \"use_cache\": true",
     .broken = [](const RuleQuestion& q) { return is_encoder_decoder(q.model) || is_image_text(q.model); },
     .code = ErrorCode::kUnsupported},
};

constexpr Rule kBeams[] = {
    {.id = "beams-need-new-tokens",
     .options = "--beams --new-tokens",
     .message = "beams: beam search chooses among new tokens, and there are none",
     .accepted = "--new-tokens N",
     .broken = [](const RuleQuestion& q) { return !generates(q); }},
    {.id = "beams-of-experts",
     .options = "--beams --model",
     .message = "beams: beam search runs experts as grouped products and greedy decoding as batched ones, and only the "
                "latter is modelled",
     .accepted = "--beams 1",
     .broken = [](const RuleQuestion& q) { return q.sizes.experts.has_value(); },
     .code = ErrorCode::kUnsupported},
};

constexpr Rule kSampling[] = {
    {.id = "sampling-or-beams",
     .options = "--sampling --beams",
     .message = "sampling: beams that are drawn are not modelled",
     .accepted = "--beams 1",
     .broken = [](const RuleQuestion& q) { return q.run.inference()->beams > 1; },
     .code = ErrorCode::kUnsupported},
    {.id = "sampling-of-speech",
     .options = "--sampling --task",
     .message =
         "sampling: Whisper's own generate() draws tokens only after a first answer failed, which is not modelled",
     .accepted = "no --sampling",
     .broken = [](const RuleQuestion& q) { return q.run.task == Task::kSpeech; },
     .code = ErrorCode::kUnsupported},
};

constexpr Rule kReturnSequences[] = {
    {.id = "return-sequences-of-greedy",
     .options = "--num-return-sequences --sampling --beams",
     .message = "return sequences: the likeliest tokens make one answer, and generate() refuses to give "
                "{--num-return-sequences} of them",
     .accepted = "--sampling LIST, or --beams K",
     .broken = [](const RuleQuestion& q) { return !q.run.inference()->sampling && q.run.inference()->beams == 1; }},
    {.id = "return-sequences-within-beams",
     .options = "--num-return-sequences --beams",
     .message =
         "return sequences: a search with {--beams} beams ends with as many answers, and generate() refuses to give "
         "{--num-return-sequences}",
     .accepted = "at least as many --beams",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.inference()->beams > 1 && q.run.inference()->return_sequences > q.run.inference()->beams;
         }},
    {.id = "return-sequences-of-speech",
     .options = "--num-return-sequences --task",
     .message = "return sequences: what Whisper's own generate() makes of several answers is not modelled",
     .accepted = "--num-return-sequences 1",
     .broken = [](const RuleQuestion& q) { return q.run.task == Task::kSpeech; },
     .code = ErrorCode::kUnsupported},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Inference", .concerns = [](const RuleQuestion& q) { return !trains(q); }, .rules = kInference},
    {.title = "Generation",
     .concerns = [](const RuleQuestion& q) { return !trains(q) && generates(q); },
     .rules = kGeneration},
    {.title = "Generation without a cache",
     .concerns = [](const RuleQuestion& q) { return q.run.calls_generate() && !q.run.generation_cache; },
     .rules = kUncached},
    {.title = "Beam search",
     .concerns = [](const RuleQuestion& q) { return !trains(q) && q.run.inference()->beams > 1; },
     .rules = kBeams},
    {.title = "Sampling",
     .concerns = [](const RuleQuestion& q) { return !trains(q) && q.run.inference()->sampling.has_value(); },
     .rules = kSampling},
    {.title = "Several answers",
     .concerns = [](const RuleQuestion& q) { return !trains(q) && q.run.inference()->return_sequences > 1; },
     .rules = kReturnSequences},
};

}  // namespace

std::span<const RuleGroup> rules_of_inference() { return kGroups; }

}  // namespace memcalc
