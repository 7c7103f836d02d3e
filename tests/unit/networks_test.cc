// spec/networks.h: what specs/networks.json says of a card's hosts, and files that are wrong.
#include "memcalc/spec/networks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "memcalc/base/error.h"
#include "memcalc/spec/registry.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

TEST(Networks, EachCardThatIsListedHasARateWithItsSource) {
  for (const char* card : {"v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm", "h200-sxm", "b200-sxm-180gb"}) {
    const LinkRates link = registry().device(card).rates->link;
    EXPECT_GE(link.network_bytes_per_second, 6e9) << card;
    EXPECT_EQ(link.gpus_per_host, 8) << card;
    EXPECT_NE(link.network_source.find("(20"), std::string::npos) << card << ": no date in " << link.network_source;
  }
  EXPECT_DOUBLE_EQ(registry().device("a100-sxm4-80gb").rates->link.network_bytes_per_second, 25e9);  // 200 Gb/s
  EXPECT_DOUBLE_EQ(registry().device("h100-sxm").rates->link.network_bytes_per_second, 50e9);        // 400 Gb/s
  EXPECT_EQ(registry().device("rtx-4090").rates->link.network_source, "");
}

TEST(Networks, AWrongFileIsRefused) {
  const std::string path = testing::TempDir() + "networks.json";
  for (const char* text : {R"({"date": "2026", "systems": [{"cards": ["a"], "bytes_per_second": 0, "gpus_per_host": 8,
                               "source": "s"}]})",
                           R"({"date": "2026", "systems": [{"cards": ["a"], "bytes": 1}]})", R"({"systems": []})"}) {
    std::ofstream(path) << text;
    LinkRates link;
    EXPECT_THROW(add_network(path, "a", link), Error) << text;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace memcalc
