// spec/measured_memory: specs/measured/CARD/memory.json.
#include "memcalc/spec/measured_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/registry.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

DeviceSpec read(const std::string& figures) {
  const std::string text =
      R"({"measured_on": "own", "versions": {"torch": "2.11.0"}, "how": "h", "date": "2026-11-21")";
  DeviceSpec device;
  const JsonDocument document = JsonDocument::parse(text + figures + "}", "memory.json");
  read_measured_memory(document.root(), device);
  return device;
}

TEST(MeasuredMemory, SaysThatTheCardWasMeasuredAndUnderWhichTorch) {
  const DeviceSpec device = read(R"(, "context_bytes": 5)");
  EXPECT_TRUE(device.validated);
  EXPECT_EQ(device.measured_torch, "2.11.0");
  EXPECT_EQ(device.context_bytes, 5);
  EXPECT_FALSE(device.kernel_bytes || device.placement || device.nccl);
}

TEST(MeasuredMemory, AnUnknownKeyIsRefused) { EXPECT_THROW((void)read(R"(, "contexts": 5)"), Error); }

TEST(MeasuredMemory, TheListingSaysWhatTheCardSays) {
  for (const DeviceListing& listing : registry().devices()) {
    EXPECT_EQ(listing.validated, registry().device(listing.name).validated) << listing.name;
  }
  EXPECT_TRUE(registry().device("h200").validated);
  EXPECT_FALSE(registry().device("a100").validated);
}

}  // namespace
}  // namespace memcalc
