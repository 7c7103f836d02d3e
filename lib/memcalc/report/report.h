// Report: the answer as one plain value, rendered as text, JSON, CSV or Markdown by render.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/base/bytes.h"
#include "memcalc/cost/step_time.h"
#include "memcalc/report/remedy.h"
#include "memcalc/report/verdict.h"
#include "memcalc/report/vllm_memory.h"
#include "memcalc/report/weights_comparison.h"
#include "memcalc/spec/config_files/config_file.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/spec/time_options.h"
#include "memcalc/symbolic/kv_cache_size.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// One line of the accounting view: bytes per parameter, the way people know it.
struct AccountingRow {
  std::string name;  // "weights", "master weights", "gradients", "optimizer states"
  double bytes_per_parameter = 0;
  Bytes total_bytes = 0;
  std::string rule;  // how it comes about, one sentence
};

/// Closed form, no simulation. `classic`: mixed precision as Megatron and the ZeRO paper count it (18 = 6 + 4 + 8).
/// `profile`: what the framework profile really holds between steps; equals the persistent categories of the
/// simulation up to allocator rounding (tests/unit/accounting_test.cc).
struct Accounting {
  std::vector<AccountingRow> classic;
  std::vector<AccountingRow> profile;
  std::vector<AccountingRow> alternatives;  // what other optimizers and inference would hold, for comparison
};

struct FlopRow {
  OperatorClass operator_class = OperatorClass::kContraction;
  double forward = 0;
  double backward = 0;
  double recomputation = 0;
  double optimizer = 0;
  double bytes_moved = 0;  // by all phases
};

/// The largest blocks alive at the peak, for --explain: one row per operator, category and size.
struct PeakContributor {
  Category category = Category::kTemporaries;
  std::string operator_chain;  // "MmBackward0>aten::mm"; parameters: "parameter"
  std::int64_t blocks = 0;
  Bytes block_bytes = 0;  // requested, each
  Bytes total_bytes = 0;
};

/// One line of the host memory; `rule` says how it comes about.
struct HostMemoryRow {
  std::string name;  // "offloaded activations", "prefetched batches", "pinned batches"
  Bytes bytes = 0;
  bool pinned = false;
  std::string rule;
};

/// What the run takes of the host for batches and offloaded tensors; Python, libraries and the data set are not in it.
struct HostMemory {
  std::vector<HostMemoryRow> rows;
  Bytes total = 0;
  Bytes pinned = 0;
};

/// What a host has to hold at once, in the stage that takes the most of it.
struct HostFit {
  std::string stage;       // "load", "train", "save"
  Bytes needed = 0;        // of all ranks on one host
  Bytes available = 0;     // the host's memory
  std::string source;      // HostSize::source
  std::int64_t ranks = 1;  // on one host

  [[nodiscard]] bool suffices() const { return needed <= available; }
};

/// One stage of a job, as torch.cuda.reset_peak_memory_stats() at its beginning would let it be read at its end.
struct StageRow {
  std::string name;  // "load", "prepare", "train", "evaluate", "merge", "save"
  Bytes peak_allocated = 0;
  Bytes peak_reserved = 0;
  Bytes host_bytes = 0;    // of the model, on the host; 0: nothing that is modelled
  Bytes host_held = 0;     // of that what the system cannot drop, as it can pages of the files
  std::string host_rule;   // how that comes about; empty where it is 0
  std::string lowered_by;  // what makes the stage's peak smaller
  bool is_largest = false;
};

/// A training whose batches are as long as the data makes them (--lengths).
struct EpochMemory {
  std::int64_t steps = 0;
  std::int64_t simulated = 0;  // of these (train/data/data_steps.h)
  std::int64_t peak_step = 0;  // from 0: that of the largest allocated
  std::int64_t peak_rows = 0;  // of its largest micro-batch
  std::int64_t peak_columns = 0;
  std::int64_t average_samples = 0;  // of the step whose time is told, of one process
  std::int64_t average_tokens = 0;   // likewise, padding included
  Bytes reserved_after_first_step = 0;
  Bytes reserved_at_end = 0;
  std::int64_t growing_steps = 0;              // behind the first one, of the simulated: more is reserved after them
  std::int64_t last_growing_step = 0;          // from 0; 0: there is none
  std::optional<std::int64_t> retrying_steps;  // of the simulated, on this card; none where it cannot be said
};

/// Ranks of a run on several GPUs that ask for the same memory.
struct RankRow {
  std::int64_t first = 0;  // the one that was simulated
  std::int64_t count = 1;
  std::string name;   // "all 4 ranks", "rank 3", "stage 0"
  std::string holds;  // what sets them apart; empty where all are alike
  Bytes peak_allocated = 0;
  Bytes peak_reserved = 0;
  std::optional<Bytes> device_used_bytes;
  Phase peak_phase = Phase::kForward;
  std::string peak_operator;
};

/// How far step times of measured runs of this kind are predicted (docs/time.md).
struct StepError {
  std::string kind;            // "text", "trainer", …
  double median = 0, p90 = 0;  // shares of the measured time
  std::int64_t runs = 0;
  std::string published;  // of runs that others published: of which cards; empty: of measured ones
};

/// Of a call that generates.
struct GenerationTime {
  double prefill_seconds = 0;  // until the first token is there
  double token_seconds = 0;    // each of those after it, on average; 0 where there is one alone
};

/// How fast the run is. MFU counts the model's FLOPs (6 N and attention, in full also where it is causal), HFU also
/// what checkpointing computes again; both over the datasheet's rate of the type that is computed in, and never above
/// 1.
struct Throughput {
  StepTime step;               // of one rank
  bool of_call = false;        // step is a call of a model that does not train
  bool steps_on_host = false;  // the optimizer runs over arrays in host memory (spec/host_step.h)
  std::optional<GenerationTime> generation;
  std::string lacks;               // what takes time in a step and is not in this one; empty: nothing
  std::optional<StepError> error;  // where such runs were measured; of no step that lacks something
  double generation_steps = 0;     // that a generation serves, where it is more than one: `step` is their mean
  double samples_per_second = 0;   // of all ranks
  double tokens_per_second = 0;  // 0 where samples are images; of generate() those that it makes; with --lengths those
                                 // of the average step, padding included
  double mfu = 0;
  double hfu = 0;
  bool masked_left_out = false;         // both count of causal attention the half that is computed (throughput.h)
  double energy_joules = 0;             // of one step, all cards at their TDP: an upper bound; 0 where it is not known
  std::string rates_from;               // where the card's rates are from; empty: measured on it
  std::optional<double> input_seconds;  // that the data loader needs for the samples of a step; only where asked
  std::int64_t workers_needed = 0;      // loader processes from which on the card does not wait for data
};

/// What is known of the data: --sample-seconds, --sample-bytes, --storage-rate.
struct InputPipeline {
  double sample_seconds = 0;            // of one worker for one sample: reading, decoding, augmenting
  double sample_bytes = 0;              // read from storage for one sample
  double storage_bytes_per_second = 0;  // of all workers together
};

/// The whole training: --tokens, or --samples of images.
struct TrainingRun {
  double tokens = 0;
  double steps = 0;
  double seconds = 0;
  double gpu_hours = 0;
  double usd_per_hour = 0;  // of one card; 0: no price is known
  double usd = 0;
  std::string price_source;
  double energy_kwh = 0;  // all cards at their TDP: an upper bound; 0: not known
};

struct FitRow {
  std::string gpu;
  Bytes memory_bytes = 0;
  Bytes needed_bytes = 0;
  Bytes needed_error = 0;
  Bytes headroom_bytes = 0;  // of what may be taken; negative where it does not fit
  Verdict verdict = Verdict::kDoesNotFit;
};

/// What becomes of a run that reserves more than the card has: PyTorch's allocator gives its free segments back to the
/// driver and asks again, which costs time and, if it helps, not the run.
struct FullCard {
  bool runs = false;
  std::int64_t retries = 0;     // in all steps that are simulated: num_alloc_retries
  std::vector<StepMark> steps;  // of a run of --lengths
};

/// Calls of a recorded program that memcalc does not look into: of a function of torch that the operator table lacks,
/// or with arguments that its row does not model.
struct OpaqueCalls {
  std::string function;    // "my_function", the last part of its name
  std::int64_t calls = 0;  // in a step, without those that checkpointing makes again
};

struct Report {
  ModelSpec model;
  RunSpec run;
  DeviceSpec device;
  bool device_assumed = false;  // no --gpu was given

  std::int64_t parameters_total = 0;
  std::int64_t parameters_trainable = 0;
  std::int64_t parameters_active = 0;  // that take part in one token: all, but for the experts it does not take

  std::optional<WeightsComparison> weights;  // where the model came with weights on disk

  ReplayResult memory;
  Bytes managed_bytes = 0;                 // paged optimizer states: managed memory, outside PyTorch's allocator
  Bytes managed_on_device_bytes = 0;       // what of it lies on the card: all, in the driver's steps, if there is room
  std::optional<Bytes> device_used_bytes;  // reserved + context + kernels + NCCL (as far as used) + managed + vLLM
  Bytes needed_error = 0;                  // how far needed() may be off, either way (report/verdict.h)
  Verdict verdict = Verdict::kDoesNotFit;  // of needed() on the device
  std::optional<FullCard> full_card;       // where it does not fit so; not with expandable segments
  std::string peak_operator;               // chain at the peak's instant
  Phase peak_phase = Phase::kForward;
  int peak_step = 0;
  std::vector<PeakContributor> contributors;  // sorted by total_bytes, descending; sums to the categories at the peak

  std::optional<VllmMemory> vllm;                    // where it shares the card with the model that trains
  std::optional<KeyValueCacheSize> kv_cache;         // of inference
  std::optional<std::int64_t> concurrent_sequences;  // the largest batch that the named card takes (plan/largest.h)

  Accounting accounting;
  std::array<FlopRow, kOperatorClassCount> flops{};
  TimeOptions asked_time;               // what was said of the data and of the whole training
  std::optional<TrainingRun> training;  // where --tokens was given
  std::optional<Throughput> time;       // absent where the card's rates are not known
  HostMemory host_memory;
  std::optional<HostFit> host_fit;   // where the run takes host memory and the host's is known
  std::vector<StageRow> stages;      // where all of a job count (--stages all)
  std::optional<EpochMemory> epoch;  // where batches differ in length
  std::vector<RankRow> ranks;        // several GPUs: every distinct rank; the rest of the report is of `largest_rank`
  std::size_t largest_rank = 0;      // place in `ranks`
  std::vector<FitRow> other_gpus;    // where no GPU was named: the common cards
  std::vector<Remedy> remedies;      // where it does not fit on the named card (plan/ladder.h)

  std::optional<ConfigFile> config;  // where another tool's file or command line said what runs

  std::string profile;  // "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0": what this run touches
  std::vector<std::pair<std::string, std::string>> versions;  // the same by software; empty: Megatron's
  std::vector<std::string> assumptions;
  std::int64_t leading_assumptions = 0;  // the first of them: what the run's own are to stand after
  std::vector<std::string> not_modelled;
  std::vector<OpaqueCalls> opaque;  // of a program, in the order of the step

  /// What the run needs of the card: device_used_bytes, or reserved where the card's context is not even assumed.
  [[nodiscard]] Bytes needed() const {
    return device_used_bytes.value_or(memory.peak_reserved + (vllm ? vllm->beside_trainer : 0));
  }
  /// False: vLLM refuses its share of the card, whatever is needed.
  [[nodiscard]] bool starts() const { return !vllm || vllm->starts; }
  /// False: the host has less memory than the job takes of it, whatever the card has.
  [[nodiscard]] bool fits_host() const { return !host_fit || host_fit->suffices(); }
  [[nodiscard]] bool fits() const { return verdict == Verdict::kFits; }
};

}  // namespace memcalc
