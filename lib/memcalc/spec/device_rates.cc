#include "memcalc/spec/device_rates.h"

#include <algorithm>
#include <optional>

#include "memcalc/spec/spec_file.h"

namespace memcalc {

DeviceRates read_device_rates(const JsonObject& json) {
  DeviceRates rates;
  rates.measured_on = json.required_string("measured_on");
  rates.command = json.required_string("command");
  rates.date = json.required_string("date");
  rates.host_source = json.optional_string("host_source").value_or("");
  rates.link_source = json.optional_string("link_source").value_or("");
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
  if (const std::optional<JsonObject> depthwise = json.nullable_object("depthwise")) {
    visit_depthwise_rates(rates.depthwise, [&](const char* name, double& value) {
      value = depthwise->required_double(name, {1e-12, 1e6});
    });
    rates.depthwise.source = depthwise->required_string("source");
  }
  visit_rates(rates, [&](const char* group, const char* name, double& value) {
    value = json.required_object(group).required_double(name, {1e-12, 1e15});
  });
  return rates;
}

void carry_over(DeviceRates& rates, double bytes_per_second, double multiprocessors) {
  const MemoryScaling& from = rates.scaling;
  if (from.bytes_per_second <= 0 || bytes_per_second <= 0 || multiprocessors <= 0) return;
  if (bytes_per_second <= from.bytes_per_second && multiprocessors < from.multiprocessors) return;
  for (MemoryRates* const each :
       {&rates.vectorized, &rates.converting, &rates.strided, &rates.random, &rates.rowwise, &rates.softmax,
        &rates.row_sum, &rates.column_sum, &rates.image, &rates.indexed, &rates.multi_tensor}) {
    const double measured = 1 / (each->bandwidth * from.bytes_per_second);  // seconds a byte
    const double of_memory = std::min(measured, from.share / from.bytes_per_second);
    const double here = of_memory * from.bytes_per_second / bytes_per_second +
                        (measured - of_memory) * from.multiprocessors / multiprocessors;
    each->bandwidth = 1 / (here * bytes_per_second);
  }
}

}  // namespace memcalc
