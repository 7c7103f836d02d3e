// MIRRORS(vllm, "config/cache.py", "0.31.0")
// MIRRORS(vllm, "v1/kv_cache_interface.py", "0.31.0")
#include "memcalc/report/vllm_on_card.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/model_kind.h"

namespace memcalc {

namespace {

constexpr std::int64_t kBlockTokens = 16;      // config/cache.py, DEFAULT_BLOCK_SIZE
constexpr std::int64_t kBatchedTokens = 4096;  // max_num_batched_tokens, which TRL sets
constexpr std::int64_t kBatchesInFlight = 2;   // config/vllm.py, max_concurrent_batches of asynchronous scheduling
constexpr Bytes kElementBytes = 2;             // config/model.py: what is stored in float32 runs in 16 bits, too

/// What vLLM needs to know of a decoder.
struct DecoderSizes {
  std::int64_t layers = 0;
  std::int64_t kept = 0;  // numbers that a layer keeps of a token
  std::int64_t hidden = 0, intermediate = 0, vocabulary = 0;
  std::int64_t windowed = 0;  // layers of which no more than a window is kept
  std::int64_t window = 0;    // tokens
};

/// Of a decoder of one of the families that transformers generates with.
DecoderSizes sizes_of(const ModelSpec& model) {
  const Dimensions d = model.architecture.dimensions();
  if (!d.cached_numbers || !d.layers) {
    throw Error(ErrorCode::kUnsupported, "vllm: the KV cache of " + model.name + " in vLLM is not known");
  }
  DecoderSizes sizes{*d.layers, *d.cached_numbers, *d.hidden_size, d.intermediate_size.value_or(0),
                     d.vocabulary.value_or(0)};
  if (d.sliding_window) {
    sizes.window = *d.sliding_window;
    sizes.windowed = d.sliding_layers == nullptr ? sizes.layers
                                                 : std::count(d.sliding_layers->begin(), d.sliding_layers->end(), true);
  }
  return sizes;
}

/// max_memory_usage_bytes of a sequence of so many tokens, over all layers (v1/kv_cache_interface.py): of layers with a
/// window what is inside of it and what is being computed.
Bytes cache_of(const DecoderSizes& sizes, std::int64_t tokens) {
  const Bytes block = checked_multiply(kBlockTokens * kElementBytes, sizes.kept);
  const std::int64_t blocks = ceil_div(tokens, kBlockTokens);
  const std::int64_t in_window = std::min(sizes.window - 1 + kBatchesInFlight * kBatchedTokens, tokens);
  const std::int64_t windowed_blocks = ceil_div(in_window, kBlockTokens) + 1;
  return checked_multiply(block, (sizes.layers - sizes.windowed) * blocks + sizes.windowed * windowed_blocks);
}

/// Of a forward pass over as many tokens as a batch may have (profile_run): of an MLP its residual, input, the product
/// for gate and up, and what they give; or of the sampler that sorts the logits of all sequences.
Bytes activations_of(const DecoderSizes& sizes, std::int64_t sequences) {
  const Bytes mlp = checked_multiply(kBatchedTokens * kElementBytes, 2 * sizes.hidden + 3 * sizes.intermediate);
  // Logits in 16 bits and in float32; values and places of the sorted ones, their softmax and its sum, a mask.
  constexpr Bytes kBytesOfLogit = 2 + 4 + 4 + 8 + 4 + 4 + 1;
  const Bytes sampler = checked_multiply(checked_multiply(sequences, sizes.vocabulary), kBytesOfLogit);
  return std::max(mlp, sampler);
}

bool is_adapter(std::string_view name) { return name.find(".lora_") != std::string_view::npos; }

/// In steps of 0.01.
double share_up(Bytes bytes, Bytes whole) {
  return std::ceil(100.0 * static_cast<double>(bytes) / static_cast<double>(whole)) / 100;
}
double share_down(Bytes bytes, Bytes whole) {
  return std::floor(100.0 * static_cast<double>(std::max<Bytes>(bytes, 0)) / static_cast<double>(whole)) / 100;
}

void explain(const RunSpec& run, const DeviceSpec& device, VllmMemory& vllm) {
  const Bytes free = device.memory_bytes - vllm.taken_before;
  if (free < vllm.requested) {
    vllm.notes.push_back(fmt::format(
        "vLLM does not start: it asks for {}, and no more than {} are free by then (Free memory on device … is less "
        "than desired GPU memory utilization)",
        format_bytes(vllm.requested), format_bytes(std::max<Bytes>(free, 0))));
  }
  if (vllm.cache < vllm.cache_of_longest) {
    vllm.notes.push_back(
        fmt::format("vLLM does not start: its cache of {} is to hold one sequence of {} tokens, which takes {} (To "
                    "serve at least one request with the model's max seq len)",
                    format_bytes(vllm.cache), format_count(vllm.max_length), format_bytes(vllm.cache_of_longest)));
  } else if (vllm.cache < vllm.cache_of_all) {
    vllm.notes.push_back(fmt::format("the cache does not hold all {} sequences at once: some wait for others",
                                     format_count(vllm.sequences)));
  }
  if (run.training().vllm.max_length == 0 && vllm.max_length > run.sequence_length) {
    vllm.notes.push_back(
        fmt::format("--vllm-max-length {} is all that a prompt and its completion need; without it vLLM must be able "
                    "to hold the model's whole context",
                    run.sequence_length));
  }
  const UtilizationRange& range = vllm.utilization;
  if (range.least > range.most) {
    vllm.notes.push_back(fmt::format("no utilization lets both run: vLLM needs {}, the trainer leaves {}",
                                     format_share(range.least), format_share(range.most)));
    if (!run.training().vllm.sleeps) vllm.notes.emplace_back("with --vllm-sleep vLLM leaves the card to each step");
  }
}

}  // namespace

std::string format_share(double share) { return format_exact(std::round(share * 1e4) / 1e4); }

VllmMemory vllm_on_card(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                        const SymbolicRun& symbolic, const TrainerOnCard& trainer) {
  const Vllm& asked = run.training().vllm;
  const DecoderSizes sizes = sizes_of(model);
  const Bytes whole = device.memory_bytes;
  VllmMemory vllm;
  vllm.requested = static_cast<Bytes>(std::ceil(static_cast<double>(whole) * asked.utilization));  // request_memory
  const Bytes context = trainer.at_peak - trainer.memory.peak_reserved;
  vllm.taken_before = checked_add(context, symbolic.reference_bytes);
  for (const ParameterInfo& parameter : symbolic.parameters) {
    const Bytes held = checked_multiply(parameter.elements, size_of(parameter.dtype));
    vllm.taken_before = checked_add(vllm.taken_before, held);
    if (is_adapter(parameter.name)) continue;
    vllm.weights = checked_add(vllm.weights, checked_multiply(parameter.elements, kElementBytes));
  }
  vllm.sequences = checked_multiply(run.batch_size, run.accumulation_steps());  // max_num_seqs, which TRL sets
  vllm.activations = activations_of(sizes, vllm.sequences);
  vllm.cache_layers = sizes.layers;
  vllm.cache_per_token = checked_multiply(sizes.layers * kElementBytes, sizes.kept);
  vllm.max_length = asked.max_length > 0 ? asked.max_length : context_of_vllm(model);
  const Bytes block = checked_multiply(vllm.cache_per_token, kBlockTokens);
  const Bytes fixed = checked_add(checked_add(vllm.weights, vllm.activations), block);  // one block is never used
  const Bytes left = std::max<Bytes>(vllm.requested - fixed, 0);
  vllm.cache = left / block * block;
  vllm.cached_tokens = left / block * kBlockTokens;
  vllm.cache_of_longest = cache_of(sizes, vllm.max_length);
  vllm.cache_of_all = checked_multiply(cache_of(sizes, run.sequence_length), vllm.sequences);
  vllm.starts = whole - vllm.taken_before >= vllm.requested && vllm.cache >= vllm.cache_of_longest;

  const std::size_t generating = static_cast<std::size_t>(Phase::kDecode);
  const Bytes trainer_generating =
      asked.sleeps ? checked_add(context, trainer.memory.phase_reserved[generating]) : trainer.at_peak;
  vllm.while_generating = checked_add(trainer_generating, vllm.requested);
  vllm.while_training = asked.sleeps ? trainer.at_peak : vllm.while_generating;
  vllm.beside_trainer = std::max(vllm.while_generating, vllm.while_training) - trainer.at_peak;

  const Bytes longest = std::max(vllm.cache_of_longest, block);
  vllm.utilization.least = share_up(checked_add(fixed, longest), whole);
  vllm.utilization.least_for_all = share_up(checked_add(fixed, std::max(longest, vllm.cache_of_all)), whole);
  vllm.utilization.most =
      share_down(std::min(whole - vllm.taken_before, device.usable_bytes() - trainer_generating), whole);
  explain(run, device, vllm);
  return vllm;
}

}  // namespace memcalc
