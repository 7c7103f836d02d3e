#include "memcalc/report/table.h"

#include <algorithm>
#include <cstddef>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"

namespace memcalc {
namespace {

constexpr std::size_t kGap = 2;

std::string text_table(const std::vector<Cells>& rows, const std::vector<bool>& numeric) {
  std::vector<std::size_t> widths(numeric.size(), 0);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line.append(kGap, ' ');
      const bool last = i + 1 == row.size();
      line += numeric[i] ? pad_left(row[i], widths[i]) : last ? row[i] : pad_right(row[i], widths[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string markdown_table(const std::vector<Cells>& rows, const std::vector<bool>& numeric) {
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += "|";
    for (const std::string& cell : rows[i]) out += " " + cell + " |";
    out += "\n";
    if (i > 0) continue;
    out += "|";
    for (const bool right : numeric) out += right ? " ---: |" : " --- |";
    out += "\n";
  }
  return out;
}

std::string csv_table(const std::vector<Cells>& rows) {
  std::string out;
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) out += (i > 0 ? "," : "") + csv_quoted(row[i]);
    out += "\n";
  }
  return out;
}

}  // namespace

std::string render_table(const std::vector<Cells>& rows, const std::vector<bool>& numeric, Format format) {
  switch (format) {
    case Format::kText: return text_table(rows, numeric);
    case Format::kMarkdown: return markdown_table(rows, numeric);
    case Format::kCsv: return csv_table(rows);
    case Format::kJson: break;
  }
  throw Error(ErrorCode::kInternal, "render: unknown format");
}

}  // namespace memcalc
