// A report says "not validated" exactly of the families and tasks that no record under tests/measured is of: rows of
// whole models, and histories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "memcalc/memcalc.h"
#include "memcalc/models/measured_families.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/validate.h"
#include "support/measured_row.h"
#include "support/paths.h"
#include "support/recorded_file.h"
#include "support/smallest_batch.h"

namespace memcalc::measured {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using FamilyAndTask = std::pair<std::string, Task>;

void add(const JsonObject& record, std::set<FamilyAndTask>& found) {
  if (!record.has("run") || !is_modelled(record)) return;
  const MeasuredRow of = measured_row(record);
  if (of.run.trains() && !of.run.parallel.is_parallel()) found.emplace(measured_as(of.spec), of.run.task);
}

std::set<FamilyAndTask> recorded() {
  std::set<FamilyAndTask> found;
  for_each_record([&](const std::string& /*file*/, const JsonObject& record) { add(record, found); });
  return found;
}

TEST(MeasuredFamilies, AreThoseOfTheRecords) {
  const std::set<FamilyAndTask> found = recorded();
  const SpecRegistry registry(test::specs_dir().string());
  std::size_t validated = 0;
  std::set<FamilyAndTask> seen;
  for (const ModelListing& listing : registry.models()) {
    const ModelSpec model = registry.model(listing.name);
    if (is_program(model)) continue;  // of the same model_type as a family, it is none of its runs
    for (const Task task : {Task::kSequenceClassification, Task::kMaskedLm, Task::kTokenClassification, Task::kCausalLm,
                            Task::kSeq2Seq, Task::kSpeech, Task::kImageClassification, Task::kContrastive}) {
      if (!seen.emplace(measured_as(model), task).second) continue;
      const bool is_recorded = found.contains({measured_as(model), task});
      EXPECT_EQ(is_measured(model, task), is_recorded) << listing.name << " " << name_of(task);
      validated += is_recorded ? 1U : 0U;
    }
  }
  EXPECT_GE(validated, 50U);
}

// tests/measured/registry_entries_test.py holds the number to the rows.
bool was_compared(const std::string& program) {
  const JsonDocument file = JsonDocument::read_file((test::specs_dir() / "models" / (program + ".json")).string());
  return file.root().has("compared_runs");
}

TEST(MeasuredFamilies, TheReportSaysWhatIsNot) {
  const SpecRegistry registry(test::specs_dir().string());
  const DeviceSpec device = registry.device("h100-sxm");
  for (const ModelListing& listing : registry.models()) {
    const ModelSpec model = registry.model(listing.name);
    RunOptions options;
    if (model.architecture.dimensions().default_length) options.sequence_length = 8;  // each token is a run of its own
    const Report report = test::with_smallest_batch(
        options, [&](const RunOptions& of) { return estimate(model, resolve(model, of), device); });
    const auto said = Contains(HasSubstr("no run of it was compared (not validated)"));
    if (is_program(model) ? was_compared(listing.name) : is_measured(model, report.run.task)) {
      EXPECT_THAT(report.assumptions, Not(said)) << listing.name;
    } else {
      EXPECT_THAT(report.assumptions, said) << listing.name;
    }
  }
}

}  // namespace
}  // namespace memcalc::measured
