#include "memcalc/report/render_lists.h"

#include <algorithm>
#include <cstddef>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"

namespace memcalc {
namespace {

using Cells = std::vector<std::string>;

constexpr std::size_t kGap = 2;

// Columns as wide as their widest cell; `numeric` ones are flushed right, the last is never padded.
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

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string rate(double value, double unit, const char* name) {
  return value > 0 ? format_fixed(value / unit, 0) + name : "-";
}

std::vector<Cells> model_rows(const std::vector<ModelListing>& models, bool record) {
  std::vector<Cells> rows;
  rows.push_back(record ? Cells{"name", "model_type", "published_parameters", "aliases", "source", "date"}
                        : Cells{"model", "family", "parameters", "also known as"});
  for (const ModelListing& each : models) {
    const auto& count = each.published_parameters;
    if (record) {
      rows.push_back({each.name, each.model_type, count ? std::to_string(*count) : "", joined(each.aliases),
                      each.source, each.date});
    } else {
      rows.push_back({each.name, each.model_type, count ? format_count(*count) : "-",
                      each.aliases.empty() ? "" : each.aliases.front()});
    }
  }
  return rows;
}

std::vector<Cells> device_rows(const std::vector<DeviceListing>& devices, bool record) {
  std::vector<Cells> rows;
  rows.push_back(record ? Cells{"name", "description", "memory_bytes", "memory_bandwidth_bytes_per_second",
                                "half_flops_per_second", "validated", "source", "date"}
                        : Cells{"gpu", "memory", "bandwidth", "16-bit", "measured here"});
  for (const DeviceListing& each : devices) {
    if (record) {
      rows.push_back({each.name, each.description, std::to_string(each.memory_bytes),
                      format_exact(each.memory_bandwidth_bytes_per_second), format_exact(each.half_flops_per_second),
                      each.validated ? "true" : "false", each.source, each.date});
    } else {
      rows.push_back({each.name, format_bytes(each.memory_bytes),
                      rate(each.memory_bandwidth_bytes_per_second, 1e9, " GB/s"),
                      rate(each.half_flops_per_second, 1e12, " TFLOP/s"), each.validated ? "yes" : "-"});
    }
  }
  return rows;
}

}  // namespace

std::string render(const std::vector<ModelListing>& models, Format format) {
  const std::vector<bool> numeric = {false, false, true, false};
  switch (format) {
    case Format::kText: return text_table(model_rows(models, false), numeric);
    case Format::kMarkdown: return markdown_table(model_rows(models, false), numeric);
    case Format::kCsv: return csv_table(model_rows(models, true));
    case Format::kJson: return render_json(models);
  }
  throw Error(ErrorCode::kInternal, "render: unknown format");
}

std::string render(const std::vector<DeviceListing>& devices, Format format) {
  const std::vector<bool> numeric = {false, true, true, true, false};
  switch (format) {
    case Format::kText: return text_table(device_rows(devices, false), numeric);
    case Format::kMarkdown: return markdown_table(device_rows(devices, false), numeric);
    case Format::kCsv: return csv_table(device_rows(devices, true));
    case Format::kJson: return render_json(devices);
  }
  throw Error(ErrorCode::kInternal, "render: unknown format");
}

}  // namespace memcalc
