// What others measured of cards that this project has not run on: specs/measured/published_rates.json.
// Covered by tests/unit/published_rates_test.cc.
#pragma once

#include <string>

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// Pre: `rates` are the measured card's, carried over. Fills `device.product_shares` from products that were timed on
/// the card or, where nobody published any, on others whose tensor cores are built alike; and replaces those of `rates`
/// for which `path` has the card's own. Throws Error(kInput) for a file that is wrong.
void add_published_rates(const std::string& path, DeviceSpec& device, DeviceRates& rates);

}  // namespace memcalc
