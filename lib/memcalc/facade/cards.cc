// On which of several cards a run fits.
#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/alloc/replay_options.h"
#include "memcalc/facade/question.h"
#include "memcalc/memcalc.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/replayed_run.h"
#include "memcalc/report/report_of.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/validate.h"

namespace memcalc {
namespace {

// Cards that are alike but for their size and where the driver places segments ask for the same memory: one step serves
// them.
bool asks_alike(const DeviceSpec& a, const DeviceSpec& b) {
  const auto behaviour = [](const DeviceSpec& d) {
    return std::make_tuple(d.compute_capability_major, d.compute_capability_minor, d.gcn_architecture,
                           d.multiprocessors, d.max_threads_per_multiprocessor, d.cublas_workspace_bytes,
                           d.cublaslt_workspace_bytes);
  };
  return behaviour(a) == behaviour(b);
}

/// Whether a card's size decides what it is asked for: cuDNN's plans (ops/conv_workspace.cc) and the chunks of
/// Unsloth's loss (ops/unsloth.cc) are chosen by it.
bool goes_by_size(const RunSpec& run, const SymbolicRun& symbolic) {
  return run.fine_tuning.unsloth ||
         std::any_of(symbolic.kernels.begin(), symbolic.kernels.end(), [](const Kernel& kernel) {
           return kernel.kind == KernelKind::kConvolution || kernel.kind == KernelKind::kDepthwiseConvolution;
         });
}

FitRow row_of(const Report& report) {
  FitRow row{.gpu = report.device.name,
             .memory_bytes = report.device.memory_bytes,
             .needed_bytes = report.needed(),
             .needed_error = report.needed_error};
  const Bytes usable = report.device.usable_bytes();
  row.headroom_bytes = usable - row.needed_bytes;
  row.verdict = report.starts() ? verdict_of(row.needed_bytes, row.needed_error, usable) : Verdict::kDoesNotFit;
  return row;
}

/// Whether the step of one card serves another. estimate() simulates several ranks, vLLM's share is one of the card's
/// size, and packed weights are dequantised where a card has no kernels for them (keeps_packed).
bool takes_anothers_step(const RunSpec& run) {
  return !run.parallel.is_parallel() && !run.shares_card_with_vllm() &&
         run.fine_tuning.quantization == Quantization::kNone;
}

/// Rows of several cards, as they are made.
class Rows {
 public:
  Rows(const ModelSpec& model, const RunSpec& run, std::span<const DeviceSpec> devices)
      : model_(model), run_(run), devices_(devices), rows_(devices.size()), done_(devices.size()) {}

  /// Those of the cards that are asked for the same as `device`, whose step and memory are given.
  void add_alike(const DeviceSpec& device, const SymbolicRun& symbolic, const ReplayResult& memory) {
    if (goes_by_size(run_, symbolic)) return;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const DeviceSpec& other = devices_[i];
      if (done_[i] || !asks_alike(device, other)) continue;
      if (!device.placement && !other.placement) {
        add(i, symbolic, memory);
      } else if (symbolic.warm_up == kNoBlock) {  // else its request follows from the segments before it
        add(i, symbolic, replay(symbolic.trace, replay_options(run_, other, symbolic.measured_from)));
      }
    }
  }

  [[nodiscard]] std::vector<FitRow> all() && {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (done_[i]) continue;
      if (!takes_anothers_step(run_)) {
        rows_[i] = row_of(estimate(model_, run_, without_rates(devices_[i])));
        continue;
      }
      validate(model_, run_);
      const auto [symbolic, memory] = replayed_run(model_, run_, devices_[i]);
      add(i, symbolic, memory);
      add_alike(devices_[i], symbolic, memory);
    }
    return std::move(rows_);
  }

 private:
  void add(std::size_t i, const SymbolicRun& symbolic, const ReplayResult& memory) {
    rows_[i] = row_of(assemble(model_, run_, without_rates(devices_[i]), symbolic, memory));
    done_[i] = true;
  }

  const ModelSpec& model_;
  const RunSpec& run_;
  std::span<const DeviceSpec> devices_;
  std::vector<FitRow> rows_;
  std::vector<bool> done_;
};

}  // namespace

std::span<const char* const> common_cards(const ModelSpec& model) {
  if (is_denoiser(model)) return kCommonCardsOfDenoisers;
  return kCommonCards;
}

std::vector<FitRow> fits_on(const ModelSpec& model, const RunSpec& run, std::span<const DeviceSpec> devices) {
  return Rows(model, run, devices).all();
}

ReportBesideCards estimate_beside(const Question& question, std::span<const DeviceSpec> others) {
  const RunSpec& run = question.run.run;
  Rows rows(question.model, run, others);
  if (!takes_anothers_step(run)) return {.report = estimate(question), .others = std::move(rows).all()};
  validate(question.model, run);
  const DeviceSpec device = with_named_host(question);
  auto [symbolic, memory] = replayed_run(question.model, run, device);
  rows.add_alike(device, symbolic, memory);
  Report report = report_of(question.model, run, device, symbolic, std::move(memory));
  return {.report = with_answers(std::move(report), question), .others = std::move(rows).all()};
}

}  // namespace memcalc
