// MIRRORS(transformers, "core_model_loading.py", "5.17.0")
#include "memcalc/report/stages.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

#include "memcalc/report/quantity.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {
namespace {

/// save_pretrained(max_shard_size="50GB"): the largest file that it writes.
constexpr Bytes kLargestFile = 50'000'000'000;
/// Threads of from_pretrained that read (core_model_loading.py, GLOBAL_WORKERS).
constexpr std::size_t kReaders = 4;

Bytes bytes_of(const ParameterInfo& parameter) {
  if (parameter.packing != Quantization::kNone) return checked_add(parameter.packed.weight, parameter.packed.constants);
  return checked_multiply(parameter.elements, size_of(parameter.dtype));
}

bool is_adapter(const ParameterInfo& parameter) { return parameter.name.find(".lora_") != std::string::npos; }

Bytes sum_of(const SymbolicRun& symbolic, bool adapters) {
  Bytes sum = 0;
  for (const ParameterInfo& each : symbolic.parameters) {
    if (is_adapter(each) == adapters) sum = checked_add(sum, bytes_of(each));
  }
  return sum;
}

struct HostUse {
  Bytes bytes = 0;
  std::string rule;
  bool is_held = true;  // the system cannot drop it, as it can pages of the files
};

/// from_pretrained gives weights that the files hold in the type that is asked for as pages of these.
bool has_type_of_files(const SymbolicRun& symbolic, std::optional<DType> checkpoint_dtype) {
  return std::all_of(symbolic.parameters.begin(), symbolic.parameters.end(), [&](const ParameterInfo& each) {
    return is_adapter(each) || !checkpoint_dtype || each.dtype == *checkpoint_dtype;
  });
}

HostUse use_of_loading(const SymbolicRun& symbolic, const RunSpec& run) {
  if (run.training().loading == ModelLoading::kConfig) return {};
  if (run.training().loading == ModelLoading::kRank0) {
    // transformers/modeling_utils.py, _move_missing_keys_from_meta_to_device: torch.zeros_like of each parameter
    const std::int64_t ranks = ceil_div(run.parallel.gpus, run.parallel.nodes);
    return {checked_multiply(ranks, sum_of(symbolic, false)),
            "the whole model for each of the " + std::to_string(ranks) +
                " ranks of a host: the first reads it, the others have zeros in its place until it has sent them its "
                "own; what trains is in float32 already where the run mixes types"};
  }
  if (run.parallel.is_parallel() && run.fine_tuning.quantization == Quantization::kNone) {
    const std::int64_t ranks = ceil_div(run.parallel.gpus, run.parallel.nodes);
    const std::string each =
        "the whole model for each of the " + std::to_string(ranks) + " ranks of a host, until it is ";
    return {checked_multiply(ranks, sum_of(symbolic, false)),
            each + (run.parallel.data_parallel == DataParallel::kDsZero3
                        ? "shared out: each reads all of it, and gathers a module at a time to fill it"
                    : run.parallel.data_parallel == DataParallel::kFsdp2
                        ? "sharded; what trains is in float32 already where the run mixes types"
                        : "moved to the card; in its files' own type ranks share the files' pages")};
  }
  if (run.training().loading == ModelLoading::kHost) {
    return {sum_of(symbolic, false),
            "the whole model, until it is moved to the card; in its files' own type these are the files' pages, which "
            "the system may drop"};
  }
  std::vector<Bytes> sizes;
  for (const ParameterInfo& each : symbolic.parameters) {
    if (!is_adapter(each)) sizes.push_back(checked_multiply(each.elements, size_of(each.dtype)));
  }
  std::sort(sizes.rbegin(), sizes.rend());
  if (run.fine_tuning.quantization != Quantization::kNone) sizes.resize(std::min<std::size_t>(sizes.size(), 1));
  Bytes largest = 0;
  for (std::size_t i = 0; i < std::min(sizes.size(), kReaders); ++i) largest = checked_add(largest, sizes[i]);
  const std::string at_a_time =
      run.fine_tuning.quantization != Quantization::kNone ? "one weight at a time" : "4 weights at a time";
  return {largest, at_a_time +
                       ", where the files hold another type than is asked for; the files' pages beside them are the "
                       "system's cache, which it may drop"};
}

HostUse host_of_loading(const SymbolicRun& symbolic, const RunSpec& run, std::optional<DType> checkpoint_dtype) {
  HostUse use = use_of_loading(symbolic, run);
  use.is_held = run.training().loading == ModelLoading::kRank0 || !has_type_of_files(symbolic, checkpoint_dtype);
  return use;
}

HostUse host_of_saving(const SymbolicRun& symbolic, const RunSpec& run) {
  if (run.training().saving == ModelSaving::kSharded) {
    if (run.parallel.data_parallel != DataParallel::kFsdp1) return {};
    const Bytes all = checked_add(sum_of(symbolic, false), sum_of(symbolic, true));
    return {all,
            "the ranks of a host together: their rows of the weights; after them the optimizer's, as much as what "
            "trains for each of its moments"};
  }
  if (run.training().saving == ModelSaving::kFull) {
    const Bytes all = checked_add(sum_of(symbolic, false), sum_of(symbolic, true));
    return {all,
            "rank 0's host: the whole state dict; after it the optimizer's, as much as what trains for each of its "
            "moments"};
  }
  const bool adapters = run.fine_tuning.lora && run.training().saving == ModelSaving::kCheckpoint;
  const Bytes saved = sum_of(symbolic, adapters);
  if (saved <= kLargestFile) return {saved, "safetensors copies all tensors of a file to the host before it writes it"};
  return {kLargestFile,
          "safetensors copies all tensors of a file (max_shard_size 50 GB) to the host before it writes it"};
}

struct Peaks {
  Bytes allocated = 0, reserved = 0;
};

Peaks peaks_in(const ReplayResult& memory, std::initializer_list<Phase> phases) {
  Peaks peaks;
  for (const Phase phase : phases) {
    peaks.allocated = std::max(peaks.allocated, memory.phase_peaks[static_cast<std::size_t>(phase)]);
    peaks.reserved = std::max(peaks.reserved, memory.phase_reserved[static_cast<std::size_t>(phase)]);
  }
  return peaks;
}

std::string lowers_loading(const RunSpec& run) {
  if (run.fine_tuning.quantization != Quantization::kNone) return "--quantize nf4-double packs most";
  return "--weights-dtype bf16, --quantize nf4-double";
}

std::string lowers_merging(const RunSpec& run) {
  if (run.fine_tuning.quantization != Quantization::kNone) {
    return "merging into a base that was loaded again, unpacked, on the host";
  }
  return "--lora-dtype base; merging on the host (model.to(\"cpu\") first)";
}

}  // namespace

std::vector<StageRow> stages_of(const SymbolicRun& symbolic, const RunSpec& run, const ReplayResult& memory,
                                std::optional<DType> checkpoint_dtype) {
  std::vector<StageRow> rows;
  if (!run.trains() || !run.counts_construction()) return rows;
  const Training& training = run.training();
  const auto add = [&](std::string name, const Peaks& peaks, HostUse host, std::string lowered_by) {
    rows.push_back({.name = std::move(name),
                    .peak_allocated = peaks.allocated,
                    .peak_reserved = peaks.reserved,
                    .host_bytes = host.bytes,
                    .host_held = host.is_held ? host.bytes : 0,
                    .host_rule = std::move(host.rule),
                    .lowered_by = std::move(lowered_by)});
  };
  add("load", peaks_in(memory, {Phase::kBuild}), host_of_loading(symbolic, run, checkpoint_dtype), lowers_loading(run));
  const Peaks prepared = peaks_in(memory, {Phase::kPrepare});
  if (prepared.reserved > 0) {
    add("prepare", prepared, {}, run.fine_tuning.prepares_for_kbit ? "--no-prepare-kbit" : lowers_loading(run));
  }
  add("train", peaks_in(memory, {Phase::kZero, Phase::kForward, Phase::kBackward, Phase::kDelete, Phase::kOptimizer}),
      {}, "--bs, --seq, --checkpointing full, --optimizer, --lora; memcalc ladder tries them");
  if (training.evaluation) {
    add("evaluate", peaks_in(memory, {Phase::kEvaluation}), {},
        training.evaluation->keeps_logits ? "--eval-bs, --eval-accum, no --eval-logits" : "--eval-bs");
  }
  if (training.saving == ModelSaving::kMerge) {
    add("merge", peaks_in(memory, {Phase::kMerge}), {}, lowers_merging(run));
  }
  if (training.saving != ModelSaving::kNone) {
    Peaks saved = peaks_in(memory, {Phase::kSave});
    // Nothing was asked of the card: what it holds by then, the last stage, is what it holds at the end.
    const bool asks_nothing = saved.reserved == 0;
    if (asks_nothing) saved = {memory.allocated_at_end, memory.reserved_at_end};
    add("save", saved, host_of_saving(symbolic, run),
        asks_nothing                            ? "nothing is asked of the card"
        : training.saving == ModelSaving::kFull ? "--save sharded"
                                                : "save_pretrained(…, save_original_format=False)");
  }
  const auto largest = std::max_element(rows.begin(), rows.end(), [](const StageRow& a, const StageRow& b) {
    return a.peak_allocated < b.peak_allocated;
  });
  largest->is_largest = true;
  return rows;
}

std::int64_t ranks_on_host(const RunSpec& run) {
  return run.parallel.is_parallel() ? ceil_div(run.parallel.gpus, run.parallel.nodes) : 1;
}

std::optional<HostFit> host_fit_of(const HostMemory& steps, const std::vector<StageRow>& stages, const RunSpec& run,
                                   const HostSize& host) {
  if (host.bytes == 0) return std::nullopt;
  const std::int64_t ranks = ranks_on_host(run);
  HostFit fit{.stage = run.trains() ? "train" : "run",
              .needed = checked_multiply(ranks, steps.total),
              .available = host.bytes,
              .source = host.source,
              .ranks = ranks};
  for (const StageRow& row : stages) {
    if (row.host_held <= fit.needed) continue;
    fit.stage = row.name;
    fit.needed = row.host_held;
  }
  if (fit.needed == 0) return std::nullopt;
  return fit;
}

}  // namespace memcalc
