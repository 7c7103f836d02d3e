// GitHub-flavoured Markdown, for an issue or a pull request: the same sections as the text, as tables.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "memcalc/report/accounting.h"
#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"

namespace memcalc {
namespace {

constexpr std::size_t kLargestContributors = 20;

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '>' || c == '*' || c == '`' || c == '[') result += '\\';
    // An underscore inside a word is plain text in GitHub's Markdown and needs no escape.
    result += c;
  }
  return result;
}

std::string row(std::initializer_list<std::string> cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

std::string memory_table(const Report& report) {
  const double peak = static_cast<double>(report.memory.peak_allocated);
  std::string out = "| At the peak | bytes | share |\n| --- | ---: | ---: |\n";
  for (const CategoryShare& share : category_shares(report)) {
    if (share.bytes == 0) continue;
    out += row({share.label, format_bytes(share.bytes), format_percent(static_cast<double>(share.bytes), peak)});
  }
  out += row({"**allocated**", "**" + format_bytes(report.memory.peak_allocated) + "**", "100.0 %"});
  return out + "\nThe peak is reached in " + escaped(instant_of(report)) + ".\n";
}

std::string totals_table(const Report& report) {
  const ReplayResult& memory = report.memory;
  std::string out = "| What the card sees | bytes |\n| --- | ---: |\n";
  out += row({"allocated", format_bytes(memory.peak_allocated)});
  out += row({"reserved", format_bytes(memory.peak_reserved)});
  if (report.managed_bytes > 0) out += row({"paged states (managed memory)", format_bytes(report.managed_bytes)});
  if (report.device_used_bytes) out += row({"device in use", format_bytes(*report.device_used_bytes)});
  out += row({"exact lower bound", format_bytes(memory.exact_peak)});
  out += row({"fragmentation", format_bytes(fragmentation_bytes(report))});
  for (const PhasePeak& each : phase_peaks(report)) {
    out += row({"peak of " + std::string(each.label), format_bytes(each.bytes)});
  }
  for (const StageRow& each : report.stages) {
    out += row({"stage " + each.name + (each.is_largest ? " (the peak)" : ""), format_bytes(each.peak_allocated)});
  }
  if (report.epoch) {
    out += row({"reserved after the first step", format_bytes(report.epoch->reserved_after_first_step)});
    out += row({"reserved after the last step", format_bytes(report.epoch->reserved_at_end)});
  }
  if (report.concurrent_sequences) out += row({"concurrent sequences", format_count(*report.concurrent_sequences)});
  if (report.kv_cache) out += row({"KV cache", format_bytes(report.kv_cache->bytes)});
  return out;
}

std::string accounting_table(const Accounting& accounting, bool explain) {
  const auto figure = [](const AccountingRow* each) {
    return each == nullptr ? std::string("-") : format_fixed(each->bytes_per_parameter, 1);
  };
  std::string out = "| Bytes per parameter | as usually counted | as PyTorch holds them |\n| --- | ---: | ---: |\n";
  for (const AccountingLine& line : accounting_lines(accounting)) {
    out += row({line.name, figure(line.classic), figure(line.profile)});
  }
  const AccountingRow classic = total_of(accounting.classic);
  const AccountingRow profile = total_of(accounting.profile);
  out += row({"**total**", figure(&classic), figure(&profile)});
  if (!explain) return out;
  out += "\n";
  for (const auto* rows : {&accounting.classic, &accounting.profile, &accounting.alternatives}) {
    for (const AccountingRow& each : *rows) {
      out += "- " + each.name + ", " + format_fixed(each.bytes_per_parameter, 1) + ": " + escaped(each.rule) + "\n";
    }
  }
  return out;
}

std::string flops_table(const Report& report) {
  std::string out =
      "| Work of one step | forward | backward | recomputed | optimizer | moved |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: |\n";
  for (const FlopRow& each : report.flops) {
    out += row({std::string(name_of(each.operator_class)), format_flops(each.forward), format_flops(each.backward),
                format_flops(each.recomputation), format_flops(each.optimizer), format_bytes_moved(each.bytes_moved)});
  }
  return out;
}

std::string time_table(const Throughput& time, std::int64_t cards) {
  std::string out = "| " + std::string(title_of(time)) + " | " + format_seconds(time.step.step_seconds) +
                    " | |\n| --- | ---: | ---: |\n";
  for (const auto& [name, seconds] : time_classes(time.step)) {
    out += row({std::string(name), format_seconds(seconds), format_percent(seconds, time.step.step_seconds)});
  }
  for (const auto& [name, value] : rates_of(time, cards)) out += row({name, value, ""});
  return out;
}

std::string cards_table(const std::vector<FitRow>& rows) {
  std::string out = "| Card | memory | needed | verdict |\n| --- | ---: | ---: | --- |\n";
  for (const FitRow& each : rows) {
    out += row({each.gpu, format_bytes(each.memory_bytes), format_bytes(each.needed_bytes),
                std::string(name_of(each.verdict))});
  }
  return out;
}

std::string contributors_table(const Report& report) {
  std::string out = "| Largest contributors | category | blocks | bytes |\n| --- | --- | ---: | ---: |\n";
  const std::size_t shown = std::min(kLargestContributors, report.contributors.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const PeakContributor& each = report.contributors[i];
    out += row({escaped(each.operator_chain), std::string(name_of(each.category)), std::to_string(each.blocks),
                format_bytes(each.total_bytes)});
  }
  return out;
}

std::string list(std::string_view name, const std::vector<std::string>& entries) {
  if (entries.empty()) return {};
  std::string out = "\n**" + std::string(name) + "**\n\n";
  for (const std::string& entry : entries) out += "- " + escaped(entry) + "\n";
  return out;
}

}  // namespace

std::string render_markdown(const Report& report, const RenderOptions& options) {
  std::string setting;
  for (const std::string& word : setting_of(report)) setting += (setting.empty() ? "" : ", ") + escaped(word);
  std::string out = "### " + escaped(verdict_text(report)) + "\n\n";
  if (!report.remedies.empty()) out += markdown_of(report.remedies) + "\n";
  out += escaped(report.model.name) + ": " + parameters_of(report) + "; " + setting + "; " + escaped(report.profile) +
         "\n\n";
  if (report.weights) {
    out += "Weights on disk: " + format_counted(report.weights->parameters, "parameter") + " in " +
           escaped(weights_summary(*report.weights)) + "\n\n";
    for (const std::string& each : weights_notes(*report.weights)) out += "- " + escaped(each) + "\n";
    out += "\n";
  }
  out += memory_table(report) + "\n" + totals_table(report) + "\n";
  out += accounting_table(report.accounting, options.explain) + "\n" + flops_table(report);
  if (report.time) out += "\n" + time_table(*report.time, report.run.parallel.gpus);
  if (report.training) {
    out += "\n| Whole training | |\n| --- | --- |\n";
    for (const auto& [name, value] : training_lines(*report.training, report.run.parallel.gpus)) {
      out += row({name, escaped(value)});
    }
  }
  if (!report.other_gpus.empty()) out += "\n" + cards_table(report.other_gpus);
  if (options.explain) out += "\n" + contributors_table(report);
  if (report.config) {
    out += list(escaped(report.config->file) + ", read as " + report.config->program, lines_of(*report.config));
  }
  return out + list("Assumed", report.assumptions) + list("Not modelled", report.not_modelled);
}

}  // namespace memcalc
