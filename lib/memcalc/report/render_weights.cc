#include "memcalc/report/render_weights.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/report/table.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

std::vector<Cells> rows_of(const Weights& weights, bool record) {
  const auto count = [&](std::int64_t value) { return record ? std::to_string(value) : format_count(value); };
  const auto size = [&](Bytes value) { return record ? std::to_string(value) : format_bytes(value); };
  std::vector<Cells> rows;
  rows.push_back({"dtype", "tensors", "parameters", "bytes"});
  for (const WeightTypeTotal& each : totals_by_type(weights)) {
    rows.push_back({std::string(each.type.name), count(each.tensors), count(each.parameters), size(each.bytes)});
  }
  rows.push_back({"total", count(static_cast<std::int64_t>(weights.tensors.size())), count(weights.parameters),
                  size(weights.bytes)});
  return rows;
}

// "7 tensors ... : a, b, … (1,538 parameters)"
std::string note(const TensorGroup& group, std::string_view singular, std::string_view plural) {
  std::string names = join(group.names);
  const auto named = static_cast<std::int64_t>(group.names.size());
  if (named < group.tensors) names += " and " + format_count(group.tensors - named) + " more";
  return format_counted(group.tensors, "tensor").append(group.tensors == 1 ? singular : plural) + ": " + names + " (" +
         format_counted(group.parameters, "parameter") + ")";
}

}  // namespace

std::string render(const Weights& weights, Format format) {
  if (format == Format::kJson) return render_json(weights);
  return render_table(rows_of(weights, format == Format::kCsv), {false, true, true, true}, format);
}

std::string weights_summary(const WeightsComparison& weights) {
  std::string text = one_line(weights.path, 4096) + ": ";
  if (weights.files > 1) text += format_counted(weights.files, "file") + ", ";
  text += format_counted(weights.tensors, "tensor");
  for (const WeightTypeTotal& each : weights.types) {
    text += ", " + std::string(each.type.name) + " " + format_bytes(each.bytes);
  }
  return text;
}

std::vector<std::string> weights_notes(const WeightsComparison& weights) {
  std::vector<std::string> notes;
  const auto add = [&](const TensorGroup& group, std::string_view singular, std::string_view plural) {
    if (group.tensors > 0) notes.push_back(note(group, singular, plural));
  };
  if (weights.agrees()) notes.emplace_back("they hold every parameter of the model, in its shape");
  add(weights.missing, " of the model is not there and starts anew", " of the model are not there and start anew");
  add(weights.unexpected, " there is not of the model and is not loaded",
      " there are not of the model and are not loaded");
  add(weights.reshaped, " there has another shape than config.json says, which is estimated",
      " there have another shape than config.json says, which is estimated");
  add(weights.copies, " there is tied to another and is loaded once", " there are tied to another and are loaded once");
  add(weights.buffers, " there is a buffer, no parameter", " there are buffers, no parameters");
  return notes;
}

}  // namespace memcalc
