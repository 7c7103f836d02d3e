#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/spec_file.h"

namespace memcalc {

DeviceRates read_device_rates(const JsonObject& json) {
  DeviceRates rates;
  rates.measured_on = json.required_string("measured_on");
  rates.command = json.required_string("command");
  rates.date = json.required_string("date");
  rates.host_source = json.optional_string("host_source").value_or("");
  rates.link_source = json.optional_string("link_source").value_or("");
  visit_rates(rates, [&](const char* group, const char* name, double& value) {
    value = json.required_object(group).required_double(name, {1e-12, 1e15});
  });
  return rates;
}

}  // namespace memcalc
