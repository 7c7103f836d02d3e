#include "measured/operators/op_case.h"

#include <algorithm>
#include <fstream>

#include "support/paths.h"

namespace memcalc::measured {

namespace {

std::int64_t integer_of(const JsonNode& node) { return node.integer; }

std::string written(const JsonNode& node) {
  switch (node.kind) {
    case JsonNode::Kind::kNull: return "null";
    case JsonNode::Kind::kBool: return node.boolean ? "true" : "false";
    case JsonNode::Kind::kArray:
    case JsonNode::Kind::kObject: {
      const bool object = node.kind == JsonNode::Kind::kObject;
      std::string text;
      for (const JsonNode& child : node.children) {
        if (!text.empty()) text += ",";
        if (object) text += child.key + ":";
        text += written(child);
      }
      return (object ? "{" : "[") + text + (object ? "}" : "]");
    }
    default: return node.text;
  }
}

std::string around(const Requests& list, std::size_t at) {
  std::string text;
  const std::size_t first = at < 6 ? 0 : at - 6;
  if (first > 0) text += "… ";
  for (std::size_t i = first; i < std::min(list.size(), at + 8); ++i) {
    text += (i == at ? "[" : "") + std::to_string(list[i]) + (i == at ? "] " : " ");
  }
  return text + (at + 8 < list.size() ? "…" : "end");
}

}  // namespace

const JsonNode* OpCase::find(const JsonNode& node, std::string_view key) {
  for (const JsonNode& child : node.children) {
    if (child.key == key) return &child;
  }
  return nullptr;
}

const JsonNode* OpCase::parameter(std::string_view key) const {
  const JsonNode* found = find(*find(line_, "params"), key);
  return found != nullptr && found->kind != JsonNode::Kind::kNull ? found : nullptr;
}

std::optional<Requests> OpCase::requests(std::string_view part) const {
  const JsonNode* list = find(line_, part);
  if (list == nullptr || list->kind != JsonNode::Kind::kArray) return std::nullopt;
  Requests result(list->children.size());
  std::transform(list->children.begin(), list->children.end(), result.begin(), integer_of);
  return result;
}

bool OpCase::has(std::string_view key) const { return parameter(key) != nullptr; }
std::int64_t OpCase::integer(std::string_view key) const { return parameter(key)->integer; }
std::int64_t OpCase::integer_or(std::string_view key, std::int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}
double OpCase::number(std::string_view key) const { return parameter(key)->number; }
bool OpCase::flag(std::string_view key) const { return has(key) && parameter(key)->boolean; }
std::string OpCase::text(std::string_view key) const { return has(key) ? parameter(key)->text : ""; }

namespace {

Shape shape_of(const JsonNode& list) {
  Shape shape;
  for (const JsonNode& size : list.children) shape.dims[static_cast<std::size_t>(shape.rank++)] = size.integer;
  return shape;
}

}  // namespace

Shape OpCase::shape(std::string_view key) const { return shape_of(*parameter(key)); }

std::vector<Shape> OpCase::shapes(std::string_view key) const {
  std::vector<Shape> result;
  for (const JsonNode& each : parameter(key)->children) result.push_back(shape_of(each));
  return result;
}

DType OpCase::dtype() const {
  const std::string name = has("dtype") ? text("dtype") : text("precision");
  if (name == "bf16") return DType::kBFloat16;
  if (name == "fp16") return DType::kFloat16;
  if (name == "int64") return DType::kInt64;
  if (name == "int32") return DType::kInt32;
  if (name == "bool") return DType::kBool;
  return DType::kFloat32;  // fp32, tf32
}

std::string OpCase::parameters() const { return written(*find(line_, "params")); }

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = [] {
    const std::string path = (test::measured_dir() / "ops_h100.jsonl").string();
    std::ifstream file(path);
    std::vector<OpCase> read;
    for (std::string line; std::getline(file, line);) read.emplace_back(parse_json_text(line, path));
    return read;
  }();
  return cases;
}

std::string difference(std::string_view part, const Requests& measured, const Requests& ours) {
  if (measured == ours) return "";
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(measured.size(), ours.size()));
  const auto at = static_cast<std::size_t>(
      std::mismatch(measured.begin(), measured.begin() + shorter, ours.begin()).first - measured.begin());
  return std::string(part) + ", event " + std::to_string(at) + "\n  measured: " + around(measured, at) +
         "\n  memcalc:  " + around(ours, at);
}

Outcome compare(const OpCase& each, const DeviceSpec& device, const Prepare& prepare) {
  const Requests forward = *each.requests("forward");
  if (!forward.empty() && forward.front() < 0) {
    return {.skipped = "the measurement begins with frees of the case before it"};
  }
  test::TapeBench bench(device);
  bench.warm_up();
  const Operation operation = prepare(bench, each);
  bench.start();
  const Tensor output = operation.forward();
  Outcome outcome;
  outcome.difference = difference("forward", forward, bench.requests());
  const auto backward = each.requests("backward");
  if (!backward || !outcome.difference.empty()) return outcome;
  if (!operation.unchecked_backward.empty()) {
    outcome.unchecked = operation.unchecked_backward;
    return outcome;
  }
  bench.backward(output, operation.gradient ? operation.gradient(output) : Tensor{});
  outcome.difference = difference("backward", *backward, bench.requests());
  return outcome;
}

Runner ordinary(std::string op, Prepare prepare) {
  return {std::move(op),
          [prepare = std::move(prepare)](const OpCase& each) { return compare(each, test::h100(), prepare); }};
}

Runner skipped(std::string op, std::string reason) {
  return {std::move(op), [reason = std::move(reason)](const OpCase&) { return Outcome{.skipped = reason}; }};
}

}  // namespace memcalc::measured
