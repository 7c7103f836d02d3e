// Peaks after each step and evaluation of jobs that were measured on an H200 (measured/jobs/rows.jsonl, "marks"): what
// torch.cuda.max_memory_allocated() and max_memory_reserved() said then, which only grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/alloc/replay_options.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/train/step.h"
#include "support/paths.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

struct Mark {
  bool of_evaluation = false;
  Bytes allocated = 0, reserved = 0;
};

/// Null: there is none.
const JsonNode* find(const JsonNode& row, std::string_view key) {
  const auto found =
      std::find_if(row.children.begin(), row.children.end(), [&](const JsonNode& each) { return each.key == key; });
  return found == row.children.end() ? nullptr : &*found;
}

const std::string& name_of(const JsonNode& row) { return find(row, "name")->text; }

std::vector<JsonNode> rows_with_marks() {
  const std::string path = (test::measured_dir() / "jobs/rows.jsonl").string();
  std::ifstream file(path);
  std::vector<JsonNode> rows;
  for (std::string line; std::getline(file, line);) {
    JsonNode row = parse_json_text(line, path);
    if (find(row, "marks") != nullptr) rows.push_back(std::move(row));
  }
  return rows;
}

Question question_of(const JsonNode& row) {
  std::vector<std::string> words;
  for (const JsonNode& word : find(row, "arguments")->children) words.push_back(word.text);
  if (const JsonNode* lengths = find(row, "lengths")) {
    const auto path = std::filesystem::temp_directory_path() / (name_of(row) + ".lengths");
    std::ofstream file(path);
    std::string tokens = lengths->text;
    std::replace(tokens.begin(), tokens.end(), ' ', '\n');
    file << tokens << '\n';
    words.insert(words.end(), {"--lengths", path.string()});
  }
  words.insert(words.end(), {"--gpu", "h200-sxm"});
  return test::question_of(words);
}

std::vector<Mark> predicted(const JsonNode& row) {
  const Question question = question_of(row);
  const RunSpec& run = question.run.run;
  const SymbolicRun job = run_symbolically(question.model, run, question.device);
  const ReplayResult replayed = replay(job.trace, replay_options(run, question.device, job.measured_from, true));
  std::vector<Mark> marks;
  Mark so_far;
  int step = -1;
  for (std::size_t i = 0; i < job.trace.events.size(); ++i) {
    const Event& event = job.trace.events[i];
    if (event.step < 0) continue;
    const bool evaluates = event.phase == Phase::kEvaluation;
    if (step >= 0 && (event.step != step || evaluates != so_far.of_evaluation)) marks.push_back(so_far);
    step = event.step;
    so_far.of_evaluation = evaluates;
    so_far.allocated = std::max(so_far.allocated, replayed.timeline[i].allocated);
    so_far.reserved = std::max(so_far.reserved, replayed.timeline[i].reserved);
  }
  marks.push_back(so_far);
  return marks;
}

/// Steps before the first evaluation, or evaluations.
std::vector<Mark> of_kind(const std::vector<Mark>& marks, bool of_evaluation) {
  std::vector<Mark> found;
  for (const Mark& each : marks) {
    if (each.of_evaluation && !of_evaluation) break;
    if (each.of_evaluation == of_evaluation) found.push_back(each);
  }
  return found;
}

TEST(JobMarks, PeaksAfterEachStepAndEvaluationAreAsMeasured) {
  constexpr double kAllocated = 0.005, kReserved = 0.02;  // shares
  const std::vector<JsonNode> rows = rows_with_marks();
  ASSERT_EQ(rows.size(), 5U);
  for (const JsonNode& row : rows) {
    SCOPED_TRACE(name_of(row));
    const std::vector<Mark> said = predicted(row);
    std::vector<Mark> measured;
    for (const JsonNode& each : find(row, "marks")->children) {
      measured.push_back({each.children[0].text == "eval", each.children[1].integer, each.children[2].integer});
    }
    for (const bool of_evaluation : {false, true}) {
      // Steps of equal batches are simulated three times, and one evaluation.
      const std::vector<Mark> ours = of_kind(said, of_evaluation), theirs = of_kind(measured, of_evaluation);
      ASSERT_EQ(ours.empty(), theirs.empty());
      for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
        const auto share = [](Bytes a, Bytes b) {
          return std::abs(static_cast<double>(a) / static_cast<double>(b) - 1);
        };
        EXPECT_LE(share(ours[i].allocated, theirs[i].allocated), kAllocated)
            << "mark " << i << ": " << ours[i].allocated << ", measured " << theirs[i].allocated;
        EXPECT_LE(share(ours[i].reserved, theirs[i].reserved), kReserved)
            << "mark " << i << ": " << ours[i].reserved << ", measured " << theirs[i].reserved;
      }
    }
  }
}

}  // namespace
}  // namespace memcalc
