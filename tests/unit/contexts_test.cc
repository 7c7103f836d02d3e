// spec/contexts: what a process takes of a card that was not measured, from specs/measured/contexts.json.
#include "memcalc/spec/contexts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "memcalc/base/error.h"
#include "memcalc/spec/registry.h"
#include "support/paths.h"

namespace memcalc {
namespace {

DeviceSpec card(const std::string& name) { return SpecRegistry(test::specs_dir().string()).device(name); }

TEST(Contexts, AMeasuredCardIsNotAssumed) {
  for (const char* name : {"h100-sxm", "h200-sxm"}) {
    EXPECT_FALSE(card(name).assumed_context) << name;
    EXPECT_FALSE(card(name).nccl_assumed) << name;
  }
}

TEST(Contexts, OfACardWithMessagesIsTheirMiddle) {
  const DeviceSpec t4 = card("t4");
  ASSERT_TRUE(t4.assumed_context);
  EXPECT_EQ(t4.assumed_context->bytes, (120 + 155) * kMiB / 2);
  EXPECT_EQ(t4.assumed_context->error, (155 - 120) * kMiB / 2);
  EXPECT_TRUE(t4.nccl_assumed);
}

TEST(Contexts, OfAnotherGoesByItsResidentThreads) {
  const DeviceSpec a10 = card("a10");
  ASSERT_TRUE(a10.assumed_context);
  const Bytes threads = Bytes{a10.multiprocessors} * a10.max_threads_per_multiprocessor;
  EXPECT_EQ(a10.assumed_context->bytes, threads * 2458);
  EXPECT_EQ(a10.assumed_context->error, (threads * 3482 - threads * 1946) / 2);
}

TEST(Contexts, OfNoCudaDeviceCoversTheMostThatWasSeen) {
  const DeviceSpec mi300x = card("mi300x");
  ASSERT_TRUE(mi300x.assumed_context);
  EXPECT_EQ(mi300x.assumed_context->bytes, 720 * kMiB);
  EXPECT_EQ(mi300x.assumed_context->error, 720 * kMiB);
}

TEST(Contexts, AFileThatIsWrongIsRefused) {
  const std::string path = testing::TempDir() + "contexts.json";
  std::ofstream(path) << R"({"description": "", "date": "", "cards": [{"card": "x", "least_mib": 0}]})";
  EXPECT_THROW((void)read_contexts(path), Error);
}

}  // namespace
}  // namespace memcalc
