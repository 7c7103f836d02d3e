// The fitted rates of a card (spec/device_rates.h) as a rates.json of specs/measured, alone or in a file of specs/gpus.
#pragma once

#include <string>

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// JSON, four significant digits a number.
[[nodiscard]] std::string render_rates(const DeviceRates& rates);

/// A card with its rates, as a file that `--gpu FILE` takes.
[[nodiscard]] std::string render_device_file(const DeviceSpec& device, const DeviceRates& rates);

}  // namespace memcalc
