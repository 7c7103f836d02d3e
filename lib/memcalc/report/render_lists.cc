#include "memcalc/report/render_lists.h"

#include <algorithm>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/report/table.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

std::string rate(double value, double unit, const char* name) {
  return value > 0 ? format_amount(value / unit) + name : "-";
}

std::vector<Cells> model_rows(const std::vector<ModelListing>& models, Format format) {
  std::vector<Cells> rows;
  const bool record = format == Format::kCsv;
  if (record) {
    rows.push_back({"name", "model_type", "published_parameters", "parameters", "tasks", "measured_tasks", "aliases",
                    "source", "date"});
  } else {
    rows.push_back({"model", "family", "parameters", "also known as"});
    if (format == Format::kMarkdown) rows.back().emplace_back("measured");  // 80 columns of text have no room
  }
  const auto digits = [](const std::optional<std::int64_t>& count) { return count ? std::to_string(*count) : ""; };
  for (const ModelListing& each : models) {
    if (record) {
      rows.push_back({each.name, each.model_type, digits(each.published_parameters), digits(each.parameters),
                      join(names_of(each.tasks)), join(names_of(each.measured)), join(each.aliases), each.source,
                      each.date});
    } else {
      rows.push_back({each.name, each.model_type, each.parameters ? format_count(*each.parameters) : "-",
                      each.aliases.empty() ? "" : each.aliases.front()});
      if (format == Format::kMarkdown) rows.back().push_back(each.measured.empty() ? "-" : "yes");
    }
  }
  return rows;
}

/// Of a text: the beginning of a family's long name, and the first other name that leaves the line within 80 columns,
/// or the beginning of the first one.
void fit_names(const std::vector<ModelListing>& models, std::vector<Cells>& rows) {
  constexpr std::size_t kColumns = 80, kGap = 2, kFamily = 1, kFamilyColumns = 19, kLast = 3;
  for (Cells& row : rows) {
    if (row[kFamily].size() > kFamilyColumns) row[kFamily] = one_line(row[kFamily], kFamilyColumns - 1);
  }
  std::size_t used = 0;
  for (std::size_t column = 0; column < kLast; ++column) {
    std::size_t width = 0;
    for (const Cells& row : rows) width = std::max(width, row[column].size());
    used += width + kGap;
  }
  const std::size_t room = used < kColumns ? kColumns - used : 0;
  if (rows.front()[kLast].size() > room) rows.front()[kLast] = "also";
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::vector<std::string>& names = models[i].aliases;
    if (names.empty()) continue;
    const auto fits = [&](const std::string& name) { return name.size() <= room; };
    const auto found = std::find_if(names.begin(), names.end(), fits);
    rows[i + 1][kLast] = found != names.end() ? *found : one_line(names.front(), room - 1);  // row 0 is the heading
  }
}

std::vector<Cells> device_rows(const std::vector<DeviceListing>& devices, bool record) {
  std::vector<Cells> rows;
  rows.push_back(record ? Cells{"name", "description", "memory_bytes", "memory_bandwidth_bytes_per_second",
                                "half_flops_per_second", "validated", "source", "date"}
                        : Cells{"gpu", "memory", "bandwidth", "16-bit", "measured"});
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
  if (format == Format::kJson) return render_json(models);
  std::vector<Cells> rows = model_rows(models, format);
  if (format == Format::kText) fit_names(models, rows);
  return render_table(rows, {false, false, true, false, false}, format);
}

std::string render(const std::vector<DeviceListing>& devices, Format format) {
  if (format == Format::kJson) return render_json(devices);
  return render_table(device_rows(devices, format == Format::kCsv), {false, true, true, true, false}, format);
}

}  // namespace memcalc
