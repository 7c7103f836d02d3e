// Every model of the registry against what the frameworks say about it without a GPU (framework_counts.tsv, written by
// harness/framework_counts.py): names, shapes and order of the parameters, and the FLOPs of torch's counter.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/train/step.h"
#include "support/measured_row.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc::measured {
namespace {

struct Count {
  std::string model;
  Task task;
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;
  std::string names;  // hash
  double forward = 0;
  double backward = 0;
};

std::vector<Count> recorded() {
  std::vector<Count> counts;
  std::ifstream file(test::measured_dir() / "framework_counts.tsv");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#') || line.starts_with("model\t")) continue;
    std::istringstream cells(line);
    Count count;
    std::string task;
    cells >> count.model >> task >> count.tensors >> count.parameters >> count.names >> count.forward >> count.backward;
    count.task = enum_from<Task>(kTaskNames, task).value();
    EXPECT_TRUE(cells) << line;
    counts.push_back(count);
  }
  return counts;
}

using test::registry;

// FNV-1a of "name 768,768\n" lines.
std::string hash_of(const std::vector<ParameterInfo>& parameters) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  };
  for (const ParameterInfo& each : parameters) {
    add(each.name);
    for (int i = 0; i < each.shape.rank; ++i) add((i > 0 ? "," : " ") + std::to_string(each.shape[i]));
    add(each.shape.rank == 0 ? " \n" : "\n");
  }
  char text[17] = {};
  std::to_chars(text, text + 16, hash, 16);
  return std::string(16 - std::string_view(text).size(), '0') + text;
}

RunSpec run_of(const ModelSpec& model, Task task) {
  RunOptions options{.task = task, .batch_size = 2};
  options.loop = Loop::kBare;
  options.attention = Attention::kEager;
  if (task == Task::kSpeech) {
    options.sequence_length = 48;
  } else if (task != Task::kImageClassification) {
    options.sequence_length = 64;
  }
  if (task == Task::kSeq2Seq) options.target_sequence_length = 48;
  return resolve(model, options).run;
}

TEST(FrameworkCounts, ParametersAndFlopsOfEveryModel) {
  for (const Count& count : recorded()) {
    SCOPED_TRACE(count.model + " " + std::string(name_of(count.task)));
    ModelSpec model = registry().model(count.model);
    if (image_text_of(model) != nullptr) model.architecture.change<ImageTextSpec>().images = 0;
    const SymbolicRun run = run_symbolically(model, run_of(model, count.task), measured_device());
    EXPECT_EQ(static_cast<std::int64_t>(run.parameters.size()), count.tensors);
    std::int64_t parameters = 0;
    for (const ParameterInfo& each : run.parameters) parameters += each.elements;
    EXPECT_EQ(parameters, count.parameters);
    EXPECT_EQ(hash_of(run.parameters), count.names) << "harness/framework_counts.py --parameters prints the names";
    double forward = 0;
    double backward = 0;
    for (const Kernel& kernel : run.kernels) {
      if (kernel.operator_class != OperatorClass::kContraction) continue;
      (kernel.phase == Phase::kBackward ? backward : forward) += kernel.flops * static_cast<double>(kernel.repeats);
    }
    EXPECT_EQ(forward, count.forward);
    EXPECT_EQ(backward, count.backward);
  }
}

TEST(FrameworkCounts, EveryModelIsCounted) {
  std::map<std::string, int> rows;
  for (const Count& count : recorded()) ++rows[count.model];
  for (const ModelListing& listing : registry().models()) {
    if (listing.is_program) continue;  // its parameters are the framework's own
    // Of images and text LLaVA's are counted so far: PaliGemma's forward asks for values that the meta device has not.
    if (image_text_of(registry().model(listing.name)) != nullptr) continue;
    if (const std::string_view type = listing.model_type; type == "llada" || type == "Dream")
      continue;  // the hub's code
    EXPECT_TRUE(rows.contains(listing.name)) << listing.name << ": run harness/framework_counts.py";
  }
}

}  // namespace
}  // namespace memcalc::measured
