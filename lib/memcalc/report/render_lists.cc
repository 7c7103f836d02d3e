#include "memcalc/report/render_lists.h"

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/report/table.h"

namespace memcalc {
namespace {

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
  if (format == Format::kJson) return render_json(models);
  return render_table(model_rows(models, format == Format::kCsv), {false, false, true, false}, format);
}

std::string render(const std::vector<DeviceListing>& devices, Format format) {
  if (format == Format::kJson) return render_json(devices);
  return render_table(device_rows(devices, format == Format::kCsv), {false, true, true, true, false}, format);
}

}  // namespace memcalc
