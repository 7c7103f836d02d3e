#include "memcalc/spec/device_rates.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/spec/carried_rates.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/spec_file.h"

namespace memcalc {

DeviceSpec without_rates(DeviceSpec device) {
  device.rates = nullptr;
  return device;
}

DeviceSpec on_one_host(DeviceSpec device) {
  if (device.rates == nullptr || device.rates->hosts.empty()) return device;
  auto rates = std::make_shared<DeviceRates>(*device.rates);
  rates->hosts.clear();
  device.rates = std::move(rates);
  return device;
}

namespace {

/// Reads the numbers of a file. What it does not say stays as `predicted` has it, or is an error where that is null.
class RateReader {
 public:
  RateReader(const DeviceRates* predicted, DeviceRates& rates) : predicted_(predicted), rates_(rates) {}

  void read(const std::optional<JsonObject>& group, const char* group_name, const char* name, double& value,
            DoubleRange range) const {
    if (predicted_ == nullptr || (group && group->has(name))) {
      value = group->required_double(name, range);
    } else {
      leave(group_name);
    }
  }
  /// What the file does not say of a group.
  void leave(const char* group_name) const {
    std::vector<std::string>& unsaid = rates_.unsaid;
    if (predicted_ != nullptr && (unsaid.empty() || unsaid.back() != group_name)) unsaid.emplace_back(group_name);
  }

  /// Null where the file does not have it and need not.
  [[nodiscard]] std::optional<JsonObject> group(const JsonObject& of, const char* name) const {
    if (predicted_ != nullptr && !of.has(name)) return std::nullopt;
    return of.required_object(name);
  }

 private:
  const DeviceRates* predicted_;
  DeviceRates& rates_;
};

void read_sources(const JsonObject& json, DeviceRates& rates) {
  rates.measured_on = json.required_string("measured_on");
  rates.command = json.required_string("command");
  rates.date = json.required_string("date");
  rates.host_source = json.optional_string("host_source").value_or("");
  rates.attention_source = json.optional_string("attention_source").value_or("");
  rates.link_source = json.optional_string("link_source").value_or("");
}

}  // namespace

DeviceRates read_device_rates(const JsonObject& json, const DeviceRates* predicted) {
  DeviceRates rates = predicted != nullptr ? *predicted : DeviceRates{};
  rates.predicted = false;
  rates.published_source.clear();
  rates.hosts.clear();
  rates.scaling = {};
  rates.convolution_times = json.optional_string("convolution_times").value_or("");
  rates.product_times = json.optional_string("product_times").value_or("");
  read_sources(json, rates);
  if (const std::optional<JsonObject> scaling = json.nullable_object("memory_scaling")) {
    rates.scaling.bytes_per_second = scaling->required_double("bytes_per_second", {1, 1e18});
    rates.scaling.multiprocessors = scaling->required_double("multiprocessors", {1, 1e6});
    rates.scaling.share = scaling->required_double("share", {0, 10});
    rates.scaling.source = scaling->required_string("source");
  }
  if (const std::optional<JsonObject> cache = json.nullable_object("cache")) {
    rates.cache.bytes = cache->required_double("bytes", {0, 1e15});
    rates.cache.read_share = cache->required_double("read_share", {0, 1});
    rates.cache.source = cache->required_string("source");
  }
  if (const std::optional<JsonObject> calls = json.nullable_object("first_calls")) {
    rates.first_calls.attention_us = calls->required_double("attention_us", {0, 1e9});
    rates.first_calls.attention_backward_us = calls->required_double("attention_backward_us", {0, 1e9});
    rates.first_calls.product_us = calls->required_double("product_us", {0, 1e9});
    rates.first_calls.source = calls->required_string("source");
  }
  if (const std::optional<JsonObject> power = json.nullable_object("power")) {
    rates.power.watts = power->optional_double("watts", {1, 1e5}).value_or(0);
    rates.power.products = power->required_double("products", {1, 10});
    rates.power.best = power->required_double("best", {0.01, 2});
    rates.power.others = power->required_double("others", {0, 1});
    rates.power.idle = power->required_double("idle", {0, 1});
    rates.power.full_clock = power->optional_double("full_clock", {1, 2}).value_or(1);
    rates.power.source = power->required_string("source");
  }
  const RateReader reader(predicted, rates);
  constexpr DoubleRange kRate = {1e-12, 1e15};
  if (const std::optional<JsonObject> depthwise = json.nullable_object("depthwise")) {
    visit_depthwise_rates(rates.depthwise, [&](const char* name, double& value) {
      reader.read(depthwise, "depthwise", name, value, {1e-12, 1e6});
    });
    rates.depthwise.source = depthwise->required_string("source");
  } else {
    reader.leave("depthwise");
  }
  if (const std::optional<JsonObject> blocks = json.nullable_object("blocks")) {
    rates.blocks.source = blocks->required_string("source");
    visit_block_rates(rates.blocks, [&](const char* group, const char* name, double& value) {
      reader.read(*group == '\0' ? blocks : reader.group(*blocks, group), "blocks", name, value, kRate);
    });
  } else {
    reader.leave("blocks");
  }
  std::string_view last;  // the numbers of a group come one after the other: it is looked for once
  std::optional<JsonObject> object;
  visit_rates(rates, [&](const char* group, const char* name, double& value) {
    if (group != last) object = reader.group(json, group);
    last = group;
    reader.read(object, group, name, value, kRate);
  });
  return rates;
}

namespace {

MeasuredHost read_host(const JsonObject& json, const HostRates& others) {
  MeasuredHost host{.name = json.required_string("name"), .rates = others};
  const JsonObject rates = json.required_object("rates");
  std::vector<std::string_view> names;
  visit_host_rates(host.rates, [&](const char* name, double& value) {
    names.emplace_back(name);
    if (rates.has(name)) value = rates.required_double(name, {1e-6, 1e14});
  });
  rates.refuse_unknown_keys(names);
  return host;
}

/// Hosts whose calls of a model that does not train were timed, tiny ones' over many moments: between what nine in ten
/// of them lie, from a core alone to one whose other half another thread keeps busy, which is the range. The middle
/// host is that of steps, of whose level calls take a share: in a process in which no backward pass runs the host is
/// quicker.
void add_states_of_calls(DeviceRates& rates, const JsonObject& root, const HostRates& reference) {
  const std::vector<JsonObject> rows = root.optional_objects("calls");
  if (rows.empty()) return;
  const double level = rates.host.python_us / reference.python_us;  // of the middle's other times
  std::optional<MeasuredHost> quickest, slowest;
  const auto as_slow_as = [&](const JsonObject& row, const char* state, const std::string& words) {
    MeasuredHost host{.name = row.required_string("name") + words, .rates = rates.host};
    host.rates.call_ratio = row.required_double(state, {1e-3, 1e3}) / level;
    return host;
  };
  for (const JsonObject& row : rows) {
    MeasuredHost alone = as_slow_as(row, "alone", ", a core to itself");
    MeasuredHost shared = as_slow_as(row, "shared", ", a core whose other thread is busy");
    if (!quickest || alone.rates.call_ratio < quickest->rates.call_ratio) quickest = std::move(alone);
    if (!slowest || shared.rates.call_ratio > slowest->rates.call_ratio) slowest = std::move(shared);
  }
  rates.host.call_ratio = root.required_double("calls_over_steps", {1e-3, 1e3});
  rates.hosts.push_back(*std::move(quickest));
  rates.hosts.push_back(*std::move(slowest));
}

}  // namespace

HostRates times(double factor, HostRates host) {
  visit_host_rates(host, [factor](std::string_view name, double& value) {
    if (name.ends_with("_us") && name != "gap_us" && name != "launch_latency_us") value *= factor;
  });
  return host;
}

void add_measured_hosts(DeviceRates& rates, const std::string& path) {
  const JsonDocument document = JsonDocument::read_file(path);
  const HostRates reference = rates.host;
  const std::vector<JsonObject> rows = document.root().optional_objects("hosts");
  if (rows.empty()) return;
  std::vector<std::pair<double, std::size_t>> levels;
  for (std::size_t i = 0; i < rows.size(); ++i) levels.emplace_back(rows[i].required_double("times", {1e-3, 1e3}), i);
  std::sort(levels.begin(), levels.end());
  for (const auto& [level, i] : {levels.front(), levels.back()}) {
    rates.hosts.push_back({.name = rows[i].required_string("name"), .rates = times(level, reference)});
  }
  const double above = levels[levels.size() / 2].first, below = levels[(levels.size() - 1) / 2].first;
  rates.host = times(std::sqrt(below * above), reference);
  add_states_of_calls(rates, document.root(), reference);
}

DeviceRates with_host(const DeviceRates& rates, const std::string& path) {
  constexpr int kSchemaVersion = 1;
  const JsonDocument document = JsonDocument::read_file(path);
  const JsonObject root = document.root();
  if (root.required_int("schema_version", {1, 1'000'000}) != kSchemaVersion) {
    throw Error(ErrorCode::kInput, fmt::format("{}: /schema_version: accepted: {}", path, kSchemaVersion));
  }
  DeviceRates result = rates;
  MeasuredHost host = read_host(root, rates.host);
  result.hosts.clear();
  result.host = host.rates;
  result.host_name = std::move(host.name);
  return result;
}

void carry_over(DeviceRates& rates, double bytes_per_second, double multiprocessors) {
  for (MemoryRates* const each : memory_bound_groups(rates)) {
    each->bandwidth = carried_bandwidth(rates.scaling, each->bandwidth, bytes_per_second, multiprocessors);
  }
}

}  // namespace memcalc
