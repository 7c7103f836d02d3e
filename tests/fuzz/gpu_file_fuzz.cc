// A GPU file of ours, its rates too.
#include <memory>

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/spec_file.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(gpu_file) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const auto document = memcalc::JsonDocument::parse(text, "gpu.json");
    (void)memcalc::read_device_file(
        document.root(), [](const memcalc::DeviceSpec&) { return std::make_shared<const memcalc::DeviceRates>(); });
  });
}
