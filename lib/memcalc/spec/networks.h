// What joins hosts: specs/networks.json. Covered by tests/unit/networks_test.cc.
#pragma once

#include <string>

#include "memcalc/spec/device_rates.h"

namespace memcalc {

/// Fills what `rates` say of the network of hosts with this card, where `path`, a file like specs/networks.json, has
/// it. Throws Error(kInput) for a file that is wrong.
void add_network(const std::string& path, const std::string& card, LinkRates& rates);

}  // namespace memcalc
