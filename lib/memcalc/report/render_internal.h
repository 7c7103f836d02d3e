// What the renderers share: one function a format, and the words and figures that more than one of them prints.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/report/render.h"
#include "memcalc/report/report.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {

[[nodiscard]] std::string render_text(const Report& report, const RenderOptions& options);
[[nodiscard]] std::string render_explanation(const Report& report, const RenderOptions& options);  // part of the text
[[nodiscard]] std::string render_json(const Report& report, const RenderOptions& options);
[[nodiscard]] std::string render_json(const std::vector<ModelListing>& models);
[[nodiscard]] std::string render_json(const std::vector<DeviceListing>& devices);
[[nodiscard]] std::string render_json(const Weights& weights);
[[nodiscard]] std::string render_csv(const Report& report, const RenderOptions& options);
[[nodiscard]] std::string render_markdown(const Report& report, const RenderOptions& options);

/// What would fit, below a heading of the caller's: the techniques, what they cost, the command; all within `columns`.
[[nodiscard]] std::vector<std::string> lines_of(const std::vector<Remedy>& remedies, std::size_t columns);
[[nodiscard]] std::string markdown_of(const std::vector<Remedy>& remedies);

/// "What would fit", or that nothing does.
[[nodiscard]] std::string_view heading_of(const std::vector<Remedy>& remedies);

/// A CSV cell, quoted where RFC 4180 asks for it.
[[nodiscard]] std::string csv_quoted(std::string_view text);

/// One share of the peak; `name` is the key in JSON, `label` the words in text.
struct CategoryShare {
  std::string name;
  std::string label;
  Bytes bytes = 0;
};

/// Every category at the peak in the order of the enumeration, then "allocator_slack". Sums to peak_allocated.
[[nodiscard]] std::vector<CategoryShare> category_shares(const Report& report);

/// A phase whose peak is told, in words: of training forward, backward and optimizer; of inference the forward pass, or
/// prefill and decode.
struct PhasePeak {
  Phase phase;
  std::string_view label;
  Bytes bytes = 0;
};
[[nodiscard]] std::vector<PhasePeak> phase_peaks(const Report& report);

/// "8 sequences x 1151 tokens, 16 layers", and what windows and the encoder add to it.
[[nodiscard]] std::vector<std::string> notes_of(const KeyValueCacheSize& cache);

/// What the rows of the table of a run read.
[[nodiscard]] inline RunRecord ran_of(const Report& report) {
  return {report.model, report.run, &report.device, &report.asked_time, report.device_assumed};
}

/// Reserved at its peak but not handed out at the peak of allocated.
[[nodiscard]] Bytes fragmentation_bytes(const Report& report);

[[nodiscard]] double total_flops(const FlopRow& row);
[[nodiscard]] double total_flops(const Report& report);

/// "Time of one step", or of a call.
[[nodiscard]] std::string_view title_of(const Throughput& time);

/// The classes of a step that take time, in the order of the enumeration.
[[nodiscard]] std::vector<std::pair<std::string_view, double>> time_classes(const StepTime& step);

/// Throughput and utilisation of so many cards, a name and a value each, for people.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> rates_of(const Throughput& time, std::int64_t cards);

/// Days, cards' hours, price and energy of the whole training.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> training_lines(const TrainingRun& run,
                                                                              std::int64_t cards);

/// "Fits on h100-sxm: needs 7.37 GiB of 79.2 GiB, 71.8 GiB free."
[[nodiscard]] std::string verdict_text(const Report& report);

/// "46,702,792,704 parameters (12,879,925,248 active in a token)".
[[nodiscard]] std::string parameters_of(const Report& report);

/// "batch 4 x 512 tokens", "amp-fp16", … : how the model is trained, a few words each.
[[nodiscard]] std::vector<std::string> setting_of(const Report& report);

/// "model.safetensors: 206 tensors, F32 420 MiB": what was found on disk.
[[nodiscard]] std::string weights_summary(const WeightsComparison& weights);

/// How the weights differ from the model, one sentence each; one that says that they do not, where that is so.
[[nodiscard]] std::vector<std::string> weights_notes(const WeightsComparison& weights);

/// "2 GPUs", "fsdp2 over 4", "tp 2", … : how the run is split.
[[nodiscard]] std::vector<std::string> split_of(const Parallel& parallel);

/// "rank 1 and 1 like it: states of 197 of 393 parameters": a rank in words.
[[nodiscard]] std::string words_of(const RankRow& row);

/// "step 2, forward, aten::gelu".
[[nodiscard]] std::string instant_of(const Report& report);

/// What a category of the peak owns, one sentence (docs/categories.md).
[[nodiscard]] std::string rule_of_category(const std::string& name);

/// One line of the table in which both accounting views stand side by side; a view that lacks the row has no value.
struct AccountingLine {
  std::string name;
  const AccountingRow* classic = nullptr;
  const AccountingRow* profile = nullptr;
};
[[nodiscard]] std::vector<AccountingLine> accounting_lines(const Accounting& accounting);

}  // namespace memcalc
