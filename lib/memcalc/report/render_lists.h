// Renders what the registry knows: the answers of `memcalc models` and `memcalc gpus`.
// Covered by tests/unit/render_lists_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/report/render.h"
#include "memcalc/spec/registry.h"

namespace memcalc {

[[nodiscard]] std::string render(const std::vector<ModelListing>& models, Format format);
[[nodiscard]] std::string render(const std::vector<DeviceListing>& devices, Format format);

}  // namespace memcalc
