// memcalc: will this training run fit, what fills the memory, and why.
//
//   const memcalc::SpecRegistry registry("/usr/share/memcalc/specs");
//   const auto model  = registry.model("bert-large");
//   const auto device = registry.device("h100-sxm");
//   const auto run    = memcalc::resolve(model, {.batch_size = 4, .precision = memcalc::Precision::kAmpFp16});
//   const memcalc::Report report = memcalc::estimate(model, run, device);
//   std::cout << memcalc::render(report, memcalc::Format::kText);
//
// All functions are pure and thread-safe; wrong input throws memcalc::Error.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/base/error.h"
#include "memcalc/cost/calibration.h"
#include "memcalc/report/certainty.h"
#include "memcalc/report/parameter_table.h"
#include "memcalc/report/render.h"
#include "memcalc/report/render_json_schema.h"
#include "memcalc/report/render_lists.h"
#include "memcalc/report/render_rates.h"
#include "memcalc/report/render_rules.h"
#include "memcalc/report/render_trace.h"
#include "memcalc/report/render_weights.h"
#include "memcalc/report/report.h"
#include "memcalc/report/step_curve.h"
#include "memcalc/report/throughput.h"
#include "memcalc/spec/config_files/config_file.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_search.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/spec/weights.h"
#include "memcalc/symbolic/cublas_workspaces.h"

namespace memcalc {

/// Runs the training step symbolically, replays its allocations, and assembles the report.
/// Throws Error for a run that is not possible (spec/validate.h) or not modelled (train/step.h).
[[nodiscard]] Report estimate(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device);

/// The same; what resolve() filled in stands first among the report's assumptions.
[[nodiscard]] Report estimate(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device);

/// The same of all that a face asks: with the days and the price of a training, and the data loader's time, where they
/// were asked. Throws Error(kUsage) where they cannot be told.
[[nodiscard]] Report estimate(const Question& question);

/// Of a recorded program (docs/programs.md) the functions that the operator table does not have: their results are
/// counted, what happens inside of them is not. Empty for other models.
[[nodiscard]] std::vector<std::string> opaque_operators(const ModelSpec& model);
/// The functions of torch that the operator table has, sorted.
[[nodiscard]] std::vector<std::string> known_operators();

struct HeaviestRanks {
  Report report;     // without rows of the others, and without their time
  bool all = false;  // no rank was left out: it is what estimate() says
};

/// For a search, which asks for many runs and shows few: estimate() without the ranks of which it is known that another
/// allocates as much (train/ranks.h). Covered by tests/unit/heaviest_ranks_test.cc.
[[nodiscard]] HeaviestRanks estimate_heaviest_ranks(const ModelSpec& model, const RunSpec& run,
                                                    const DeviceSpec& device);

/// One card of each common size, for a question that names none.
inline constexpr std::array<const char*, 5> kCommonCards = {"rtx-4090", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm",
                                                            "h200-sxm"};
/// For LoRA of a denoising network, which people train on cards of 12, 16 and 24 GB.
inline constexpr std::array<const char*, 6> kCommonCardsOfDenoisers = {"rtx-4070",       "rtx-4080", "rtx-4090",
                                                                       "a100-sxm4-40gb", "h100-sxm", "h200-sxm"};
[[nodiscard]] std::span<const char* const> common_cards(const ModelSpec& model);

/// On which of several cards a run fits: an estimate for each, since a card decides attention kernels and workspaces.
[[nodiscard]] std::vector<FitRow> fits_on(const ModelSpec& model, const RunSpec& run,
                                          std::span<const DeviceSpec> devices);

struct ReportBesideCards {
  Report report;
  std::vector<FitRow> others;
};

/// estimate() and fits_on() at once: a card that is asked for the same as the question's shares its step.
[[nodiscard]] ReportBesideCards estimate_beside(const Question& question, std::span<const DeviceSpec> others);

/// Every parameter of the model as it is trained in this run, in the order of named_parameters(): sizes do not depend
/// on batch or sequence. Throws as estimate() does.
[[nodiscard]] std::vector<ParameterRow> parameter_table(const ModelSpec& model, const RunSpec& run,
                                                        const DeviceSpec& device);

/// The event stream of a run (render_trace.h).
[[nodiscard]] std::string trace(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                                const TraceOptions& options = {});

/// One step's memory over its events, by category, as an SVG document (report/plot.h).
[[nodiscard]] std::string plot_step(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device);

/// Fits the rates of `device` to the rows of operator sweeps (JSON lines: tests/measured/harness/opbench.py and
/// memcalc-probe write them), beginning with `start`; what no row depends on stays. `name`: of the file, for messages.
/// Throws Error(kInput) for a row that cannot be read.
[[nodiscard]] Calibration calibrate_device(const DeviceSpec& device, const DeviceRates& start, const std::string& rows,
                                           const std::string& name);

/// The same as numbers, of the run of a report and of its largest rank.
[[nodiscard]] StepCurve step_curve(const Report& report, std::size_t most_points = 600);

/// A run as memcalc-probe replays it on a card: every event, and every kernel with its predicted time.
[[nodiscard]] std::string replay_file(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device);

}  // namespace memcalc
