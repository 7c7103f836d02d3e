#include "memcalc/report/render.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/train/optimizers/rule.h"

namespace memcalc {
namespace {

std::string spaced(std::string_view name) {
  std::string label(name);
  std::replace(label.begin(), label.end(), '_', ' ');
  return label;
}

// Names of the cards with this verdict: "rtx-4090 (23.5 GiB), a100-40gb (39.5 GiB)".
std::string cards(const std::vector<FitRow>& rows, Verdict verdict) {
  std::string names;
  for (const FitRow& row : rows) {
    if (row.verdict != verdict) continue;
    if (!names.empty()) names += ", ";
    names += row.gpu + " (" + format_bytes(row.memory_bytes) + ")";
  }
  return names;
}

std::string verdict_without_card(const Report& report) {
  // Where a card has less, cuDNN takes smaller workspaces.
  const bool takes_less = std::any_of(report.other_gpus.begin(), report.other_gpus.end(), [&](const FitRow& row) {
    return row.verdict == Verdict::kFits && row.memory_bytes < report.needed();
  });
  const Bytes margin = report.device.margin_bytes;
  std::string text = "Needs " + format_bytes(report.needed()) +
                     (margin > 0 ? " beside a margin of " + format_bytes(margin) : "") +
                     (takes_less ? " where there is room." : ".");
  const auto add = [&](Verdict verdict, const char* words) {
    const std::string names = cards(report.other_gpus, verdict);
    if (!names.empty()) text += words + names + ".";
  };
  add(Verdict::kFits, " Fits on ");
  add(Verdict::kTooClose, " Too close to call on ");
  add(Verdict::kDoesNotFit, " Does NOT fit on ");
  return text;
}

}  // namespace

std::string render(const Report& report, Format format, const RenderOptions& options) {
  switch (format) {
    case Format::kText: return render_text(report, options);
    case Format::kJson: return render_json(report, options);
    case Format::kCsv: return render_csv(report, options);
    case Format::kMarkdown: return render_markdown(report, options);
  }
  throw Error(ErrorCode::kInternal, "render: unknown format");
}

std::vector<CategoryShare> category_shares(const Report& report) {
  std::vector<CategoryShare> shares;
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    const std::string_view name = name_of(static_cast<Category>(i));
    shares.push_back({std::string(name), spaced(name), report.memory.categories_at_peak[i]});
  }
  shares.push_back({"allocator_slack", "allocator slack", report.memory.slack_at_peak});
  return shares;
}

std::vector<PhasePeak> phase_peaks(const Report& report) {
  const auto peak_of = [&](Phase phase, std::string_view label) {
    return PhasePeak{phase, label, report.memory.phase_peaks[static_cast<std::size_t>(phase)]};
  };
  if (report.run.trains()) {
    std::vector<PhasePeak> peaks = {peak_of(Phase::kForward, "forward"), peak_of(Phase::kBackward, "backward"),
                                    peak_of(Phase::kOptimizer, "optimizer")};
    if (report.run.generates() && !report.run.uses_vllm()) {
      peaks.insert(peaks.begin(), peak_of(Phase::kDecode, "decode"));
    }
    if (report.run.counts_construction()) {
      PhasePeak construction = peak_of(Phase::kBuild, "construction");
      construction.bytes = std::max(construction.bytes, peak_of(Phase::kPrepare, {}).bytes);
      peaks.insert(peaks.begin(), construction);
    }
    if (report.run.training().evaluation) peaks.push_back(peak_of(Phase::kEvaluation, "evaluation"));
    return peaks;
  }
  if (report.run.inference()->new_tokens == 0) return {peak_of(Phase::kForward, "forward")};
  return {peak_of(Phase::kForward, "prefill"), peak_of(Phase::kDecode, "decode")};
}

std::vector<std::string> notes_of(const KeyValueCacheSize& cache) {
  const auto counted = [](std::int64_t count, std::string_view noun) {
    return std::to_string(count) + " " + plural(count, noun);
  };
  std::vector<std::string> notes = {counted(cache.sequences, "sequence") + " of " + counted(cache.tokens, "token") +
                                    ", " + counted(cache.layers, "layer")};
  if (cache.windowed > 0) notes.push_back(counted(cache.windowed, "layer") + " of them no longer than a window");
  if (cache.encoder_bytes > 0) notes.push_back("and of the encoder's tokens " + format_bytes(cache.encoder_bytes));
  return notes;
}

Bytes fragmentation_bytes(const Report& report) { return report.memory.peak_reserved - report.memory.peak_allocated; }

double total_flops(const FlopRow& row) { return row.forward + row.backward + row.recomputation + row.optimizer; }

double total_flops(const Report& report) {
  double total = 0;
  for (const FlopRow& row : report.flops) total += total_flops(row);
  return total;
}

/// What the host lacks, and what the card would say.
std::string verdict_of_host(const HostFit& fit, const Report& report) {
  const std::string ranks = fit.ranks > 1 ? " for " + std::to_string(fit.ranks) + " ranks" : "";
  const std::string text = "Does NOT run on its host: the stage " + fit.stage + " needs " + format_bytes(fit.needed) +
                           ranks + " of " + format_bytes(fit.available) + ", " +
                           format_bytes(fit.needed - fit.available) + " short (" + fit.source + ").";
  const Verdict card = verdict_of(report.needed(), report.needed_error, report.device.usable_bytes());
  return text + " The card: needs " + format_bytes(report.needed()) + " of " +
         format_bytes(report.device.memory_bytes) + (card == Verdict::kFits ? ", which fits." : ".");
}

std::string verdict_text(const Report& report) {
  // Where no card was named, the host that was is the same beside each.
  if (report.device_assumed && report.asked_time.host_size.source == kHostMemoryOption && !report.fits_host()) {
    return verdict_of_host(*report.host_fit, report);
  }
  if (report.device_assumed && !report.other_gpus.empty()) return verdict_without_card(report);
  const Bytes needed = report.needed();
  const Bytes usable = report.device.usable_bytes(), margin = report.device.margin_bytes;
  const std::string figures = ": needs " + format_bytes(needed) + " of " + format_bytes(report.device.memory_bytes) +
                              (margin > 0 ? " less a margin of " + format_bytes(margin) : "") + ", ";
  if (report.fits()) return "Fits on " + report.device.name + figures + format_bytes(usable - needed) + " free.";
  if (report.verdict == Verdict::kTooClose) {
    return "Too close to call on " + report.device.name + figures + "give or take " +
           format_bytes(report.needed_error) + ".";
  }
  if (!report.fits_host()) return verdict_of_host(*report.host_fit, report);
  if (!report.starts()) return "Does NOT run on " + report.device.name + ": " + report.vllm->notes.front() + ".";
  const std::string verdict =
      "Does NOT fit on " + report.device.name + figures + format_bytes(needed - usable) + " short.";
  if (!report.full_card || !report.full_card->runs) return verdict;
  return verdict + " It runs slowly all the same: the allocator, out of room, gives its free segments back and asks " +
         "again, " + format_counted(report.full_card->retries, "time") + " in " +
         (report.epoch ? format_counted(report.epoch->simulated, "step") : "three steps") + ".";
}

std::string parameters_of(const Report& report) {
  std::string parts;
  const auto add = [&](std::int64_t count, const char* what) {
    if (count == report.parameters_total) return;
    parts += (parts.empty() ? " (" : ", ") + format_count(count) + what;
  };
  add(report.parameters_trainable, " trainable");
  add(report.parameters_active, " active in a token");
  return format_counted(report.parameters_total, "parameter") + parts + (parts.empty() ? "" : ")");
}

std::string instant_of(const Report& report) {
  const bool is_after = report.peak_phase == Phase::kMerge || report.peak_phase == Phase::kSave;
  std::string text = is_after ? "after the last step, " + std::string(name_of(report.peak_phase))
                     : report.peak_step < 0
                         ? "construction of the model"
                         : (report.run.trains() ? "step " : "call ") + std::to_string(report.peak_step + 1) + ", " +
                               std::string(name_of(report.peak_phase));
  if (!report.peak_operator.empty()) text += ", in " + report.peak_operator;
  return text;
}

std::string rule_of_category(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {"weights", "parameters and buffers of the module, in the dtype of the weights"},
      {"autocast_copies", "16-bit copies of float32 weights, from first use in autocast until their last backward"},
      {"gradients", "what ends up in .grad, in the dtype of the weight"},
      {"optimizer_states", "moments, momentum buffers and step counters that the optimizer keeps on the device"},
      {"activations", "outputs that autograd saved for the backward pass, each until its node has run"},
      {"temporaries", "everything else that an operator or a Python variable holds for a moment"},
      {"inputs", "token ids, masks and labels of the batch"},
      {"kv_cache", "inference: keys and values of the tokens so far, and their copies while they grow"},
      {"workspaces", "scratch of cuBLAS, cuBLASLt and cuDNN, kept by the process once taken"},
      {"gathered_weights", "whole parameters that sharding puts together where a layer is about to use them"},
      {"communication", "buffers of collectives: gradient buckets, what is gathered, reduced or sent"},
      {"allocator_slack", "rounding to 512 bytes and the remainders of up to 1 MiB that the allocator does not split"}};
  for (const auto& [key, rule] : rules) {
    if (key == name) return std::string(rule);
  }
  return {};
}

std::vector<AccountingLine> accounting_lines(const Accounting& accounting) {
  std::vector<AccountingLine> lines;
  for (const AccountingRow& row : accounting.classic) lines.push_back({row.name, &row, nullptr});
  for (const AccountingRow& row : accounting.profile) {
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.name == row.name; });
    if (same != lines.end()) {
      same->profile = &row;
    } else {
      lines.push_back({row.name, nullptr, &row});
    }
  }
  return lines;
}

}  // namespace memcalc
