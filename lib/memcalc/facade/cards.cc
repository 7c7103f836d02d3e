// On which of several cards a run fits.
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

// Cards that differ in size only ask for the same memory: one estimate serves both. Placement is compared by presence
// of any, since a measured one belongs to one card.
bool behaves_alike(const DeviceSpec& a, const DeviceSpec& b) {
  const auto behaviour = [](const DeviceSpec& d) {
    return std::make_tuple(d.compute_capability_major, d.compute_capability_minor, d.gcn_architecture,
                           d.multiprocessors, d.max_threads_per_multiprocessor, d.context_bytes, d.kernel_bytes,
                           d.kernel_bytes_with_cudnn, d.assumed_context ? d.assumed_context->bytes : 0,
                           d.nccl.has_value(), d.cublas_workspace_bytes, d.cublaslt_workspace_bytes);
  };
  return behaviour(a) == behaviour(b) && !a.placement && !b.placement;
}

FitRow row_of(const Report& report) { return {.needed_bytes = report.needed(), .needed_error = report.needed_error}; }

}  // namespace

std::span<const char* const> common_cards(const ModelSpec& model) {
  if (is_denoiser(model)) return kCommonCardsOfDenoisers;
  return kCommonCards;
}

std::vector<FitRow> fits_on(const ModelSpec& model, const RunSpec& run, std::span<const DeviceSpec> devices) {
  std::vector<FitRow> rows;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::size_t twin = run.shares_card_with_vllm() ? i : 0;  // whose share is one of the card's size
    while (twin < i && !behaves_alike(devices[twin], devices[i])) ++twin;
    FitRow row;
    bool starts = true;
    if (twin < i) {
      row = rows[twin];
    } else {
      const Report report = estimate(model, run, without_rates(devices[i]));
      row = row_of(report);
      starts = report.starts();
    }
    row.gpu = devices[i].name;
    row.memory_bytes = devices[i].memory_bytes;
    row.headroom_bytes = devices[i].usable_bytes() - row.needed_bytes;
    row.verdict = verdict_of(row.needed_bytes, row.needed_error, devices[i].usable_bytes());
    if (!starts) row.verdict = Verdict::kDoesNotFit;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace memcalc
