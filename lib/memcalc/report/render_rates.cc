// Written by hand: the order of the numbers is visit_rates()'s, and four digits of each are what a fit can tell.
#include "memcalc/report/render_rates.h"

#include <cstdint>
#include <string_view>

#include "memcalc/base/number_text.h"

namespace memcalc {

namespace {

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) result += c;
  }
  return result + "\"";
}

std::string rates_object(const DeviceRates& rates, const std::string& margin) {
  std::string text = "{\n" + margin + "  \"measured_on\": " + in_quotes(rates.measured_on) + ",\n" + margin +
                     "  \"command\": " + in_quotes(rates.command) + ",\n" + margin +
                     "  \"date\": " + in_quotes(rates.date);
  if (!rates.host_source.empty()) text += ",\n" + margin + "  \"host_source\": " + in_quotes(rates.host_source);
  if (!rates.attention_source.empty())
    text += ",\n" + margin + "  \"attention_source\": " + in_quotes(rates.attention_source);
  if (!rates.link_source.empty()) text += ",\n" + margin + "  \"link_source\": " + in_quotes(rates.link_source);
  if (const MemoryScaling& scaling = rates.scaling; scaling.bytes_per_second > 0) {
    text += ",\n" + margin +
            "  \"memory_scaling\": {\"bytes_per_second\": " + general_text(scaling.bytes_per_second, 6) +
            ", \"multiprocessors\": " + general_text(scaling.multiprocessors, 6) +
            ", \"share\": " + general_text(scaling.share, 4) + ", \"source\": " + in_quotes(scaling.source) + "}";
  }
  if (const CacheRates& cache = rates.cache; cache.bytes > 0) {
    text += ",\n" + margin + "  \"cache\": {\"bytes\": " + general_text(cache.bytes, 6) +
            ", \"read_share\": " + general_text(cache.read_share, 4) + ", \"source\": " + in_quotes(cache.source) + "}";
  }
  if (const FirstCallRates& calls = rates.first_calls; !calls.source.empty()) {
    text += ",\n" + margin + "  \"first_calls\": {\"attention_us\": " + general_text(calls.attention_us, 4) +
            ", \"attention_backward_us\": " + general_text(calls.attention_backward_us, 4) +
            ", \"product_us\": " + general_text(calls.product_us, 4) + ", \"source\": " + in_quotes(calls.source) + "}";
  }
  if (const PowerRates& power = rates.power; !power.source.empty()) {
    text += ",\n" + margin + "  \"power\": {\"watts\": " + general_text(power.watts, 4) +
            ", \"products\": " + general_text(power.products, 4) + ", \"best\": " + general_text(power.best, 4) +
            ", \"others\": " + general_text(power.others, 4) + ", \"idle\": " + general_text(power.idle, 4);
    if (power.full_clock > 1) text += ", \"full_clock\": " + general_text(power.full_clock, 4);
    text += ", \"source\": " + in_quotes(power.source) + "}";
  }
  if (const DepthwiseRates& depthwise = rates.depthwise; !depthwise.source.empty()) {
    text += ",\n" + margin + "  \"depthwise\": {";
    visit_depthwise_rates(depthwise, [&](const char* name, double value) {
      text += in_quotes(name) + ": " + general_text(value, 4) + ", ";
    });
    text += "\"source\": " + in_quotes(depthwise.source) + "}";
  }
  if (const BlockRates& blocks = rates.blocks; !blocks.source.empty()) {
    text += ",\n" + margin + "  \"blocks\": {";
    std::string group;
    visit_block_rates(blocks, [&](const char* of, const char* name, double value) {
      if (group != of) {
        text += (group.empty() ? "" : "}, ");
        if (*of != '\0') text += in_quotes(of) + ": {";
        group = of;
      } else if (!text.ends_with("{")) {
        text += ", ";
      }
      text += in_quotes(name) + ": " + general_text(value, 4);
    });
    text += ", \"source\": " + in_quotes(blocks.source) + "}";
  }
  if (!rates.convolution_times.empty()) {
    text += ",\n" + margin + "  \"convolution_times\": " + in_quotes(rates.convolution_times);
  }
  if (!rates.product_times.empty()) {
    text += ",\n" + margin + "  \"product_times\": " + in_quotes(rates.product_times);
  }
  std::string open;
  visit_rates(rates, [&](const char* group, const char* name, double value) {
    if (open != group) {
      if (!open.empty()) text += "\n" + margin + "  }";
      text += ",\n" + margin + "  " + in_quotes(group) + ": {\n";
      open = group;
    } else {
      text += ",\n";
    }
    text += margin + "    " + in_quotes(name) + ": " + general_text(value, 4);
  });
  return text + "\n" + margin + "  }\n" + margin + "}";
}

}  // namespace

std::string render_rates(const DeviceRates& rates) { return rates_object(rates, "") + "\n"; }

std::string render_device_file(const DeviceSpec& device, const DeviceRates& rates) {
  std::string text = "{\n";
  const auto line = [&](std::string_view key, const std::string& value) {
    text += "  " + in_quotes(key) + ": " + value + ",\n";
  };
  const auto whole = [&](std::string_view key, std::int64_t value) { line(key, std::to_string(value)); };
  line("name", in_quotes(device.name));
  line("description", in_quotes(device.description));
  whole("memory_bytes", device.memory_bytes);
  whole("compute_capability_major", device.compute_capability_major);
  whole("compute_capability_minor", device.compute_capability_minor);
  if (device.multiprocessors > 0) whole("multiprocessors", device.multiprocessors);
  whole("max_threads_per_multiprocessor", device.max_threads_per_multiprocessor);
  if (device.context_bytes) whole("context_bytes", *device.context_bytes);
  if (device.kernel_bytes) whole("kernel_bytes", *device.kernel_bytes);
  if (device.kernel_bytes_with_cudnn) whole("kernel_bytes_with_cudnn", *device.kernel_bytes_with_cudnn);
  if (device.cublas_workspace_bytes) whole("cublas_workspace_bytes", *device.cublas_workspace_bytes);
  if (device.cublaslt_workspace_bytes) whole("cublaslt_workspace_bytes", *device.cublaslt_workspace_bytes);
  const auto rate = [&](std::string_view key, double value) {
    if (value > 0) line(key, general_text(value, 6));
  };
  rate("memory_bandwidth_bytes_per_second", device.memory_bandwidth_bytes_per_second);
  rate("bf16_flops_per_second", device.bf16_flops_per_second);
  rate("fp16_flops_per_second", device.fp16_flops_per_second);
  rate("tf32_flops_per_second", device.tf32_flops_per_second);
  rate("fp32_flops_per_second", device.fp32_flops_per_second);
  rate("power_watts", device.power_watts);
  line("rates", rates_object(rates, "  "));
  line("source", in_quotes(rates.command));
  return text + "  \"date\": " + in_quotes(rates.date) + "\n}\n";
}

}  // namespace memcalc
