// The times of single kernels against those that an H200 took for them (kernel_sweep_h200.jsonl.gz and
// kernel_sweep_later_h200.jsonl.gz, written by harness/kernel_sweep.py). A group that got worse names its rows; what
// each group is off by stands in the test's output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/cost/kernel_time.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/registry.h"
#include "memcalc/symbolic/aten.h"
#include "support/paths.h"
#include "support/recorded_file.h"

namespace memcalc::measured {
namespace {

const JsonNode& at(const JsonNode& node, std::string_view key) {
  const auto found =
      std::find_if(node.children.begin(), node.children.end(), [&](const JsonNode& each) { return each.key == key; });
  EXPECT_NE(found, node.children.end()) << key;
  return *found;
}

std::int64_t size_at(const JsonNode& sizes, std::string_view key) { return at(sizes, key).integer; }

/// A line of the file: [operator, sizes, type, [[operator, kernel, microseconds], …]].
struct Row {
  explicit Row(const JsonNode& line)
      : name(line.children[0].text), sizes(line.children[1]), type(line.children[2].text), kernels(line.children[3]) {}

  [[nodiscard]] DType dtype() const {
    return type == "fp32" ? DType::kFloat32 : type == "bf16" ? DType::kBFloat16 : DType::kFloat16;
  }
  std::string name;
  const JsonNode& sizes;
  std::string type;
  const JsonNode& kernels;
};

Kernel rows_kernel(const Row& row, KernelKind kind, double tensors) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.dtype = row.dtype();
  const auto rows = static_cast<double>(size_at(row.sizes, "rows"));
  kernel.elements = rows * static_cast<double>(size_at(row.sizes, "width"));
  const double results = kind == KernelKind::kRowSum ? rows : 0;
  kernel.bytes = (tensors * kernel.elements + results) * static_cast<double>(size_of(kernel.dtype));
  return kernel;
}

/// What memcalc has for one of the row's kernels; kPartOfPrevious: nothing is compared.
Kernel kernel_of(const Row& row, std::string_view op, std::string_view kernel_name) {
  Kernel none;
  none.kind = KernelKind::kPartOfPrevious;
  const bool backward = op.find("backward") != std::string_view::npos;
  if (row.name == "softmax" || row.name == "log_softmax" || row.name == "loss") {
    if (op.find("softmax") == std::string_view::npos) return none;  // a product before softmax's backward
    Kernel kernel = rows_kernel(row, KernelKind::kRowwise, backward ? 3 : 2);
    if (row.name == "loss" && at(row.sizes, "upcast").boolean) kernel.dtype = DType::kFloat32;
    kernel.work = work::Rows{.count = size_at(row.sizes, "rows"),
                             .width = size_at(row.sizes, "width"),
                             .softmax = true,
                             .backward = backward};
    return kernel;
  }
  if (row.name == "means" && op == "mean") {
    Kernel kernel = rows_kernel(row, KernelKind::kRowSum, 1);
    kernel.op = &aten::kMean;
    return kernel;
  }
  const bool has_bias = row.name == "bias", attends = row.name == "attends";
  if (row.name != "attention" && !has_bias && !attends) return none;
  if (op.find("_efficient") == std::string_view::npos) return none;
  if (kernel_name.find("fmha") == std::string_view::npos) return none;
  Kernel kernel;
  kernel.kind = KernelKind::kEfficientAttention;
  kernel.dtype = row.dtype();
  constexpr std::int64_t kWhisperWidth = 64;
  kernel.work = work::Attention{.heads = size_at(row.sizes, "batch") * size_at(row.sizes, "heads"),
                                .queries = size_at(row.sizes, attends ? "queries" : "length"),
                                .keys = size_at(row.sizes, attends ? "keys" : "length"),
                                .width = attends ? kWhisperWidth : size_at(row.sizes, "width"),
                                .causal = row.name == "attention" && at(row.sizes, "causal").boolean,
                                .bias = has_bias,
                                .backward = backward,
                                .learns_bias = backward && has_bias && at(row.sizes, "learned").boolean};
  return kernel;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST(KernelSweep, IsWithinWhatItWas) {
  const DeviceSpec device = SpecRegistry(test::specs_dir().string()).device("h200-sxm");
  ASSERT_NE(device.rates, nullptr);
  std::map<std::string, std::vector<double>> errors;
  std::map<std::string, std::string> listed;
  std::vector<std::string> lines;
  for (const char* const name : {"kernel_sweep_h200.jsonl", "kernel_sweep_later_h200.jsonl"}) {
    std::istringstream file = open_recorded(test::measured_dir() / name);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  for (const std::string& line : lines) {
    const JsonNode node = parse_json_text(line, "kernel_sweep_h200.jsonl");
    const Row row(node);
    for (const JsonNode& each : row.kernels.children) {
      const std::string& op = each.children[0].text;
      const Kernel kernel = kernel_of(row, op, each.children[1].text);
      if (kernel.kind == KernelKind::kPartOfPrevious) continue;
      const double told = 1e6 * kernel_seconds(kernel, device, *device.rates), took = each.children[2].number;
      if (took < 4) continue;  // us: what a launch takes
      const bool is_long = row.name.find("softmax") != std::string::npos && size_at(row.sizes, "width") > 8192;
      const std::string of = row.name == "loss"      ? " of losses "
                             : row.name == "bias"    ? " with a bias "
                             : row.name == "attends" ? " of Whisper "
                             : is_long               ? " of long rows "
                                                     : " ";
      const std::string group = op + of + row.type;
      errors[group].push_back(told / took - 1);
      listed[group] += std::to_string(took) + " us, told " + std::to_string(told) + "\n";
    }
  }
  // Half of a group's kernels are within this.
  const std::map<std::string, double> limits = {
      {"_softmax bf16", 0.12},
      {"_softmax fp32", 0.12},
      {"_softmax of long rows bf16", 0.3},  // few rows, and more to compute than a loss, which the formula is of
      {"_softmax of long rows fp32", 0.22},
      {"_softmax_backward_data bf16", 0.15},
      {"_softmax_backward_data fp32", 0.15},
      {"_softmax_backward_data of long rows bf16", 0.25},
      {"_softmax_backward_data of long rows fp32", 0.2},
      {"_log_softmax of long rows bf16", 0.2},
      {"_log_softmax of long rows fp32", 0.35},
      {"_log_softmax_backward_data of long rows bf16", 0.2},
      {"_log_softmax_backward_data of long rows fp32", 0.25},
      {"_log_softmax of losses bf16", 0.05},
      {"_log_softmax of losses fp16", 0.06},
      {"_log_softmax of losses fp32", 0.06},
      {"_log_softmax_backward_data of losses bf16", 0.05},
      {"_log_softmax_backward_data of losses fp16", 0.03},
      {"_log_softmax_backward_data of losses fp32", 0.06},
      {"_efficient_attention_forward with a bias bf16", 0.06},
      {"_efficient_attention_forward with a bias fp16", 0.06},
      {"_efficient_attention_forward with a bias fp32", 0.05},
      {"_efficient_attention_backward with a bias bf16", 0.08},
      {"_efficient_attention_backward with a bias fp16", 0.08},
      {"_efficient_attention_backward with a bias fp32", 0.07},
      {"_efficient_attention_forward of Whisper fp32", 0.05},
      {"_efficient_attention_backward of Whisper fp32", 0.17},
      {"_efficient_attention_forward fp32", 0.06},
      {"_efficient_attention_backward fp32", 0.1},  // told with a sum that the file has beside it
      {"mean bf16", 0.5},
      {"mean fp32", 0.5}};
  for (const auto& [group, of_group] : errors) {
    std::vector<double> sizes;
    for (const double each : of_group) sizes.push_back(std::abs(each));
    RecordProperty(group, std::to_string(median(sizes)));
    const auto limit = limits.find(group);
    if (limit == limits.end()) {
      ADD_FAILURE() << group << " " << median(sizes);
      continue;
    }
    EXPECT_LE(median(sizes), limit->second) << group << ":\n" << listed[group];
  }
  EXPECT_EQ(errors.size(), limits.size());
}

// cuDNN's attention over shapes drawn at random (operator_draws_h200.jsonl.gz, harness/operator_draws.py).
TEST(KernelSweep, CudnnAttentionOfDrawnShapesIsWithinWhatItWas) {
  const DeviceSpec device = SpecRegistry(test::specs_dir().string()).device("h200-sxm");
  std::map<std::string, std::vector<double>> errors;
  std::istringstream file = open_recorded(test::measured_dir() / "operator_draws_h200.jsonl");
  for (std::string line; std::getline(file, line);) {
    const JsonNode node = parse_json_text(line, "operator_draws_h200.jsonl");
    if (at(node, "kind").text != "attention") continue;
    const std::int64_t batch = size_at(node, "batch"), heads = size_at(node, "heads"), keys = size_at(node, "keys");
    for (const bool backward : {false, true}) {
      Kernel kernel;
      kernel.kind = KernelKind::kCudnnAttention;
      kernel.dtype = DType::kBFloat16;
      kernel.elements = static_cast<double>(batch * size_at(node, "kv_heads") * keys * size_at(node, "width"));
      kernel.work = work::Attention{.heads = batch * heads,
                                    .queries = size_at(node, "queries"),
                                    .keys = keys,
                                    .width = size_at(node, "width"),
                                    .causal = at(node, "causal").boolean,
                                    .dropout = at(node, "mode").text == "dropout",
                                    .bias = !at(node, "bias").text.empty(),
                                    .backward = backward};
      const char* const pass = backward ? "backward" : "forward";
      const double told = 1e6 * kernel_seconds(kernel, device, *device.rates), took = at(at(node, "us"), pass).number;
      errors[pass].push_back(std::abs(told / took - 1));
    }
  }
  EXPECT_GE(errors["forward"].size(), 70U);
  for (const auto& [pass, of_pass] : errors) EXPECT_LE(median(of_pass), 0.055) << pass;
}

// PyTorch's own depthwise kernels of the same draws.
TEST(KernelSweep, DepthwiseKernelsOfDrawnShapesAreWithinWhatTheyWere) {
  const DeviceSpec device = SpecRegistry(test::specs_dir().string()).device("h200-sxm");
  std::map<std::string, std::vector<double>> errors;
  std::istringstream file = open_recorded(test::measured_dir() / "operator_draws_h200.jsonl");
  for (std::string line; std::getline(file, line);) {
    const JsonNode node = parse_json_text(line, "operator_draws_h200.jsonl");
    if (at(node, "kind").text != "depthwise") continue;
    const std::string& type = at(node, "type").text;
    const std::int64_t images = size_at(node, "batch"), channels = size_at(node, "channels");
    const std::int64_t side = size_at(node, "side"), window = size_at(node, "window");
    const std::int64_t leaving = (side - 1) / size_at(node, "stride") + 1;
    for (const JsonNode& pass : at(node, "kernels").children) {
      const JsonNode& first = pass.children[0];
      if (first.children[0].text.find("conv_depthwise2d") == std::string::npos) continue;
      Kernel kernel;
      kernel.kind = KernelKind::kDepthwiseConvolution;
      kernel.dtype = type == "fp32" ? DType::kFloat32 : DType::kBFloat16;
      const std::int64_t elements = images * (side * side + leaving * leaving) + window * window;
      kernel.bytes = static_cast<double>(channels * elements) * static_cast<double>(size_of(kernel.dtype));
      kernel.work = work::Convolution{.groups = channels,
                                      .pixels = images * leaving * leaving,
                                      .channels = 1,
                                      .depth = window * window,
                                      .group_channels = 1,
                                      .backward = pass.key != "forward",
                                      .weight_gradient = pass.key == "filter",
                                      .images = images};
      const double told = 1e6 * kernel_seconds(kernel, device, *device.rates), took = first.children[1].number;
      errors[pass.key].push_back(std::abs(told / took - 1));
    }
  }
  EXPECT_EQ(errors.size(), 3U);
  for (const auto& [pass, of_pass] : errors) EXPECT_LE(median(of_pass), pass == "filter" ? 0.05 : 0.035) << pass;
}

}  // namespace
}  // namespace memcalc::measured
