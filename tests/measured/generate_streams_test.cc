// generate() of models of images and text, of encoder-decoders and of MPT, which has no cache, makes and drops the
// tensors that transformers 5.17 does, in its order: tests/measured/generate, recorded on the CPU
// (harness/generate_streams.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/inference_spec.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/paths.h"
#include "support/recorded_file.h"

namespace memcalc {
namespace {

struct Case {
  std::string name;
  // Of the tower, which has other kernels on a CPU; of Whisper what it keeps of times on the host.
  std::size_t not_found = 0;
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

/// Requests as they come, and between two of them what died, the largest first.
using Events = std::vector<std::int64_t>;

void sort_deaths(Events& events) {
  const auto is_request = [](std::int64_t bytes) { return bytes > 0; };
  for (auto at = events.begin(); at != events.end();) {
    const auto end = std::find_if(at, events.end(), is_request);
    std::sort(at, end);
    at = end == events.end() ? end : std::next(end);
  }
}

Events events_of_call(const Trace& trace) {
  Events events;
  const std::int16_t last = trace.events.back().step;
  for (const Event& event : trace.events) {
    if (event.step != last || event.block == kNoBlock) continue;
    if (event.kind != EventKind::kAllocate && event.kind != EventKind::kFree) continue;
    constexpr Bytes kRound = 512;
    const Bytes bytes = trace.blocks[static_cast<std::size_t>(event.block)].requested;
    const Bytes rounded = (bytes + kRound - 1) / kRound * kRound;
    events.push_back(event.kind == EventKind::kAllocate ? rounded : -rounded);
  }
  sort_deaths(events);
  return events;
}

/// The length of the longest common subsequence.
std::size_t common(const Events& a, const Events& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (const std::int64_t each : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = each == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

class GenerateStream : public testing::TestWithParam<Case> {};

TEST_P(GenerateStream, HasEveryTensorOfTheFramework) {
  const std::string path = (test::measured_dir() / "generate" / GetParam().name).string();
  RunOptions options{.precision = Precision::kFp32, .attention = Attention::kEager};
  Inference inference;
  Events recorded;
  std::istringstream text = measured::open_recorded(path + ".events");
  std::int64_t image = 0;
  text >> options.batch_size.emplace() >> options.sequence_length.emplace() >> image >> inference.new_tokens;
  if (image > 0) options.image_size = image;
  for (std::int64_t bytes = 0; text >> bytes;) recorded.push_back(bytes);
  ASSERT_GT(recorded.size(), 1000U);
  sort_deaths(recorded);  // reading a number ends a list there
  options.inference = inference;
  const SpecRegistry registry(test::specs_dir().string());
  ModelSpec model = registry.model(path + ".json");
  if (image > 0) model.architecture.change<ImageTextSpec>().images = 1;
  const SymbolicRun run = run_symbolically(model, resolve(model, options).run, registry.device("h100-sxm"));
  const Events events = events_of_call(run.trace);
  EXPECT_EQ(recorded.size() - common(recorded, events), GetParam().not_found);
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateStream,
                         testing::Values(Case{"llava", 4}, Case{"internvl"}, Case{"paligemma"}, Case{"paligemma2"},
                                         Case{"gemma3"}, Case{"qwen2_vl"}, Case{"qwen2_5_vl", 34}, Case{"qwen3_vl"},
                                         Case{"mistral3", 4}, Case{"t5"}, Case{"bart"}, Case{"marian"}, Case{"m2m_100"},
                                         Case{"whisper", 46}, Case{"mpt"}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace memcalc
