// Models of layers against the torch modules that were built from the same files (harness/layers.py): the names and
// sizes of their parameters, in order.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "memcalc/spec/json_node.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/train/step.h"
#include "support/measured_row.h"
#include "support/paths.h"
#include "support/recorded_file.h"

namespace memcalc::measured {
namespace {

const JsonNode& child(const JsonNode& node, std::string_view key) {
  for (const JsonNode& each : node.children) {
    if (each.key == key) return each;
  }
  throw Error(ErrorCode::kInput, "no " + std::string(key));
}

struct Listed {
  std::string name;
  std::int64_t elements = 1;

  [[nodiscard]] bool operator==(const Listed&) const = default;
};

void PrintTo(const Listed& listed, std::ostream* out) { *out << listed.name << " " << listed.elements; }

TEST(Layers, HaveTheParametersOfTheRecordedModules) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::measured_dir() / "histories")) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("bare-custom-")) continue;
    std::istringstream lines = open_recorded(entry.path());
    std::string header;
    std::getline(lines, header);
    const JsonNode recorded = parse_json_text(std::string_view(header).substr(2), file);
    const JsonDocument document = JsonDocument::parse(std::string_view(header).substr(2), file);
    const MeasuredRow of = measured_row(document.root());

    std::vector<Listed> theirs;
    for (const JsonNode& parameter : child(recorded, "params").children) {
      Listed& listed = theirs.emplace_back();
      listed.name = parameter.children[0].text;
      for (const JsonNode& size : parameter.children[1].children) listed.elements *= size.integer;
    }
    std::vector<Listed> ours;
    for (const ParameterInfo& each : run_symbolically(of.spec, of.run, measured_device()).parameters) {
      ours.push_back({each.name, each.elements});
    }
    // harness/custom.py names them in its own way.
    const bool by_hand = !theirs.front().name.starts_with("layers.");
    if (by_hand) {
      for (Listed& each : theirs) each.name.clear();
      for (Listed& each : ours) each.name.clear();
    }
    EXPECT_EQ(theirs, ours) << file;
    ++compared;
  }
  EXPECT_EQ(compared, 37);
}

}  // namespace
}  // namespace memcalc::measured
