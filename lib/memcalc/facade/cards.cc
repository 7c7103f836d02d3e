// On which of several cards a run fits.
#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/replayed_run.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/validate.h"

namespace memcalc {
namespace {

// Cards that are alike but for their size ask for the same memory: one run serves them. Placement is compared by
// presence of any, since a measured one belongs to one card.
bool asks_alike(const DeviceSpec& a, const DeviceSpec& b) {
  const auto behaviour = [](const DeviceSpec& d) {
    return std::make_tuple(d.compute_capability_major, d.compute_capability_minor, d.gcn_architecture,
                           d.multiprocessors, d.max_threads_per_multiprocessor, d.cublas_workspace_bytes,
                           d.cublaslt_workspace_bytes);
  };
  return behaviour(a) == behaviour(b) && !a.placement && !b.placement;
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

}  // namespace

std::span<const char* const> common_cards(const ModelSpec& model) {
  if (is_denoiser(model)) return kCommonCardsOfDenoisers;
  return kCommonCards;
}

std::vector<FitRow> fits_on(const ModelSpec& model, const RunSpec& run, std::span<const DeviceSpec> devices) {
  std::vector<FitRow> rows(devices.size());
  std::vector<bool> done(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (done[i]) continue;
    std::vector<std::size_t> alike;
    for (std::size_t j = i + 1; j < devices.size() && takes_anothers_step(run); ++j) {
      if (!done[j] && asks_alike(devices[i], devices[j])) alike.push_back(j);
    }
    if (alike.empty()) {
      rows[i] = row_of(estimate(model, run, without_rates(devices[i])));
      continue;
    }
    validate(model, run);
    const auto [symbolic, memory] = replayed_run(model, run, devices[i]);
    rows[i] = row_of(assemble(model, run, without_rates(devices[i]), symbolic, memory));
    if (goes_by_size(run, symbolic)) continue;
    for (const std::size_t j : alike) {
      rows[j] = row_of(assemble(model, run, without_rates(devices[j]), symbolic, memory));
      done[j] = true;
    }
  }
  return rows;
}

}  // namespace memcalc
