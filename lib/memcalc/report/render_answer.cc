#include <algorithm>
#include <string>
#include <utility>

#include "memcalc/report/answer.h"
#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/report/table.h"
#include "memcalc/report/verdict.h"

namespace memcalc {
namespace {

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kRed = "\x1b[31m";

std::string shown_seconds(double seconds) {
  if (seconds >= 100) return format_amount(seconds) + " s";
  if (seconds >= 1) return format_fixed(seconds, 2) + " s";
  if (seconds >= 1e-3) return format_fixed(seconds * 1e3, seconds >= 0.1 ? 0 : 1) + " ms";
  return format_fixed(seconds * 1e6, 0) + " us";
}

std::string shown_dollars(double dollars) {
  if (dollars < 100) return "$" + format_fixed(dollars, 2);
  return "$" + format_amount(dollars);
}

/// Narrow, for tables.
std::string shown_verdict(std::string_view verdict) {
  if (verdict == name_of(Verdict::kFits)) return "yes";
  return verdict == name_of(Verdict::kTooClose) ? "close" : "no";
}

std::string shown_number(double number, Unit unit) {
  switch (unit) {
    case Unit::kBytes: return format_bytes_moved(number);
    case Unit::kSeconds: return shown_seconds(number);
    case Unit::kShare: return format_percent(number, 1);
    case Unit::kFlops: return format_flops(number);
    case Unit::kDollars: return shown_dollars(number);
    case Unit::kRate: return format_rate(number);
    case Unit::kCount: return format_amount(number);
    case Unit::kText:
    case Unit::kYesNo:
    case Unit::kVerdict: break;
  }
  return format_exact(number);
}

/// As a record: full precision, no unit.
std::string recorded(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* yes = std::get_if<bool>(&value)) return *yes ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) return format_exact(*number);
  return {};
}

bool is_numeric(Unit unit) { return unit != Unit::kText && unit != Unit::kYesNo && unit != Unit::kVerdict; }

/// Headings and cells of the columns that `kept` names.
std::string table_of(const Answer& answer, const std::vector<std::size_t>& kept, Format format) {
  std::vector<Cells> rows(1);
  std::vector<bool> numeric;
  const bool record = format == Format::kCsv;
  for (const std::size_t i : kept) {
    rows.front().push_back(record ? answer.columns[i].key : answer.columns[i].heading);
    numeric.push_back(is_numeric(answer.columns[i].unit));
  }
  for (const std::vector<Value>& row : answer.rows) {
    Cells cells;
    for (const std::size_t i : kept) cells.push_back(record ? recorded(row[i]) : shown(row[i], answer.columns[i].unit));
    rows.push_back(std::move(cells));
  }
  return render_table(rows, numeric, format);
}

/// A column without a value says nothing.
std::vector<std::size_t> filled_columns(const Answer& answer) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < answer.columns.size(); ++i) {
    const bool filled = std::any_of(answer.rows.begin(), answer.rows.end(), [i](const std::vector<Value>& row) {
      return !std::holds_alternative<std::monostate>(row[i]);
    });
    if (filled) kept.push_back(i);
  }
  return kept;
}

std::vector<std::size_t> all_columns(const Answer& answer) {
  std::vector<std::size_t> all(answer.columns.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

std::size_t widest_line(std::string_view text) {
  std::size_t widest = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    widest = std::max(widest, columns_of(text.substr(start, end - start)));
    start = end + 1;
  }
  return widest;
}

/// Whether a column says the same in all rows, as the headline does of one model or one card.
bool is_same_in_all(const Answer& answer, std::size_t column) {
  return answer.rows.size() > 1 &&
         std::all_of(answer.rows.begin(), answer.rows.end(),
                     [&](const std::vector<Value>& row) { return row[column] == answer.rows.front()[column]; });
}

std::string text_table_of(const Answer& answer, const RenderOptions& options) {
  std::vector<std::size_t> kept = filled_columns(answer);
  std::string table = table_of(answer, kept, Format::kText);
  std::size_t left_out = 0;
  while (widest_line(table) > options.columns) {
    auto last = std::find_if(kept.rbegin(), kept.rend(), [&](std::size_t i) {
      return answer.columns[i].dispensable && answer.columns[i].unit == Unit::kText && is_same_in_all(answer, i);
    });
    if (last == kept.rend()) {
      last = std::find_if(kept.rbegin(), kept.rend(), [&](std::size_t i) { return answer.columns[i].dispensable; });
    }
    if (last == kept.rend()) break;
    kept.erase(std::next(last).base());
    ++left_out;
    table = table_of(answer, kept, Format::kText);
  }
  const std::size_t end = table.find('\n');
  if (options.color && end != std::string::npos) {
    table = std::string(kBold) + table.substr(0, end) + std::string(kReset) + table.substr(end);
  }
  if (left_out > 0) {
    table += "(" + std::to_string(left_out) + (left_out == 1 ? " column" : " columns") +
             " more in a wider terminal, and in --format csv)\n";
  }
  return table;
}

void add_list(std::string& out, std::string_view name, const std::vector<std::string>& entries,
              const RenderOptions& options) {
  if (entries.empty()) return;
  out += "\n" + (options.color ? std::string(kBold).append(name).append(kReset) : std::string(name)) + "\n";
  for (const std::string& entry : entries) {
    std::string_view start = "  - ";
    for (const std::string& line : wrap(entry, options.columns - start.size())) {
      out.append(start).append(line).append("\n");
      start = "    ";
    }
  }
}

std::string text_of(const Answer& answer, const RenderOptions& options) {
  std::string out;
  for (const std::string& line : wrap(answer.headline, options.columns)) {
    const std::string_view color = answer.positive ? kGreen : kRed;
    out += (options.color ? std::string(color).append(line).append(kReset) : line) + "\n";
  }
  if (!answer.facts.empty()) out += "\n";
  std::size_t width = 0;
  for (const Fact& fact : answer.facts) width = std::max(width, columns_of(fact.label));
  for (const Fact& fact : answer.facts) {
    if (std::holds_alternative<std::monostate>(fact.value) || fact.label.empty()) continue;
    std::string start = pad_right(fact.label, width + 2);
    for (const std::string& line : wrap(shown(fact.value, fact.unit), options.columns - start.size())) {
      out.append(start).append(line).append("\n");
      start.assign(start.size(), ' ');
    }
  }
  if (!answer.rows.empty()) out += "\n" + text_table_of(answer, options);
  if (!answer.remedies.empty()) {
    const std::string heading(heading_of(answer.remedies));
    out += "\n" + (options.color ? std::string(kBold) + heading + std::string(kReset) : heading) + "\n";
    for (const std::string& line : lines_of(answer.remedies, options.columns)) out += line + "\n";
  }
  if (!answer.appendix.empty()) out += "\n" + answer.appendix;
  add_list(out, "Notes", answer.notes, options);
  if (options.explain) {
    add_list(out, "Assumed", answer.assumptions, options);
    add_list(out, "Not modelled", answer.not_modelled, options);
  }
  return out;
}

std::string markdown_of(const Answer& answer, const RenderOptions& options) {
  std::string out = "### " + answer.headline + "\n\n";
  for (const Fact& fact : answer.facts) {
    if (!fact.label.empty() && !std::holds_alternative<std::monostate>(fact.value))
      out += "- " + fact.label + ": " + shown(fact.value, fact.unit) + "\n";
  }
  if (!answer.facts.empty()) out += "\n";
  if (!answer.rows.empty()) out += table_of(answer, filled_columns(answer), Format::kMarkdown);
  if (!answer.remedies.empty()) out += "\n" + markdown_of(answer.remedies);
  if (!answer.appendix.empty()) out += "\n```\n" + answer.appendix + "```\n";
  const auto list = [&out](std::string_view name, const std::vector<std::string>& entries) {
    if (entries.empty()) return;
    out += "\n**" + std::string(name) + "**\n\n";
    for (const std::string& entry : entries) out += "- " + entry + "\n";
  };
  list("Notes", answer.notes);
  if (options.explain) {
    list("Assumed", answer.assumptions);
    list("Not modelled", answer.not_modelled);
  }
  return out;
}

}  // namespace

std::string shown(const Value& value, Unit unit) {
  if (const auto* text = std::get_if<std::string>(&value)) return unit == Unit::kVerdict ? shown_verdict(*text) : *text;
  if (const auto* yes = std::get_if<bool>(&value)) return *yes ? "yes" : "no";
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    if (unit == Unit::kBytes) return *whole < 0 ? "-" + format_bytes(-*whole) : format_bytes(*whole);
    if (unit == Unit::kCount) return format_count(*whole);
    return shown_number(static_cast<double>(*whole), unit);
  }
  if (const auto* number = std::get_if<double>(&value)) return shown_number(*number, unit);
  return "-";
}

std::string key_of_option(std::string_view option) {
  std::string key(option);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string render(const Answer& answer, Format format, const RenderOptions& options) {
  switch (format) {
    case Format::kText: return text_of(answer, options);
    case Format::kJson: return render_json(answer);
    case Format::kCsv: return table_of(answer, all_columns(answer), Format::kCsv);
    case Format::kMarkdown: return markdown_of(answer, options);
  }
  throw Error(ErrorCode::kInternal, "render: unknown format");
}

}  // namespace memcalc
