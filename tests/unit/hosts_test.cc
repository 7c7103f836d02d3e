// spec/hosts.h: what specs/hosts.json says of the hosts of cards, and files that are wrong.
#include "memcalc/spec/hosts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "memcalc/base/error.h"
#include "memcalc/spec/registry.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

TEST(Hosts, ACardHasTheMemoryOfItsUsualHostWithASource) {
  const std::string specs = test::specs_dir().string();
  const auto h100 = usual_host_of(specs, "h100-sxm");
  ASSERT_TRUE(h100.has_value());
  EXPECT_EQ(h100->memory_bytes, 2048 * kGiB);
  EXPECT_EQ(h100->gpus, 8);
  EXPECT_NE(h100->source.find("(20"), std::string::npos) << "no date in " << h100->source;
  EXPECT_FALSE(usual_host_of(specs, "l40s").has_value());
  EXPECT_FALSE(usual_host_of(testing::TempDir() + "nowhere", "h100-sxm").has_value());
}

TEST(Hosts, EveryCardOfTheFileIsOneOfTheRegistry) {
  for (const char* card : {"p100-sxm2-16gb", "v100-sxm2-16gb", "v100-sxm2-32gb", "a100-sxm4-40gb", "a100-sxm4-80gb",
                           "a800-sxm4-80gb", "h100-sxm", "h200-sxm", "h800-sxm5-80gb", "h20-96gb", "b200-sxm-180gb",
                           "t4", "a10g", "rtx-3090", "rtx-3090-ti", "rtx-4090", "rtx-5090"}) {
    EXPECT_EQ(registry().device(card).name, card);
    EXPECT_TRUE(usual_host_of(test::specs_dir().string(), card).has_value()) << card;
  }
}

TEST(Hosts, AWrongFileIsRefused) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "hosts";
  std::filesystem::create_directories(folder);
  for (const char* text :
       {R"({"date": "2026", "systems": [{"cards": ["a"], "memory_gib": 0, "gpus_per_host": 8, "source": "s"}]})",
        R"({"date": "2026", "systems": [{"cards": ["a"], "memory": 1}]})", R"({"systems": []})"}) {
    std::ofstream(folder / "hosts.json") << text;
    EXPECT_THROW((void)usual_host_of(folder.string(), "a"), Error) << text;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace memcalc
