// All views of one run agree: 1,000 drawn runs asked through every function that says whether a run fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "memcalc/planning.h"
#include "support/drawn_run.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

constexpr int kRuns = 400;

/// A fifth of the runs keep some memory free or ask about a card's other size.
std::string drawn_question(std::mt19937& random) {
  std::string line = test::drawn_run(random);
  if (random() % 10 == 0) line += " --margin 1.5";
  if (random() % 10 == 0) line += " --memory 11.5";
  return line;
}

std::string first_words(const Report& report) {
  RenderOptions plain;
  const std::string text = render(report, Format::kText, plain);
  return text.substr(0, text.find(" on "));
}

std::string words_of(Verdict verdict) {
  if (verdict == Verdict::kFits) return "Fits";
  return verdict == Verdict::kTooClose ? "Too close to call" : "Does NOT fit";
}

Verdict of_sweep(const Question& question) {
  const std::vector<SweepQuestion> asked = {
      {.values = {}, .candidate = Candidate{question.model, question.run.run, question.device}, .refusal = {}}};
  const Sweep swept = sweep({}, asked, {.threads = 1});
  const Answer compared = comparison_of(swept, {});
  for (std::size_t i = 0; i < compared.columns.size(); ++i) {
    if (compared.columns[i].unit != Unit::kVerdict) continue;
    EXPECT_EQ(std::get<std::string>(compared.rows.at(0).at(i)), name_of(swept.points.at(0).outcome.verdict));
  }
  return swept.points.at(0).outcome.verdict;
}

/// max-batch, asked for this very batch.
Verdict of_largest(const Question& question) {
  const std::int64_t batch = question.run.run.batch_size;
  const Largest found = find_largest(question.model, question.run, question.device,
                                     {.multiple_of = batch, .limit = batch, .neighbours = 0}, {.threads = 1});
  EXPECT_EQ(found.unhurried == batch, found.probe_of(batch)->verdict == Verdict::kFits);
  return found.probe_of(batch)->verdict;
}

Verdict of_ladder(const Question& question) {
  const std::atomic<bool> stop{true};  // the run as asked is its first rung
  return climb(question.model, question.run, question.device, false, {.threads = 1, .stop = &stop})
      .rungs.at(0)
      .outcome.verdict;
}

TEST(Views, OfOneRunAgreeAboutWhetherItFits) {
  std::mt19937 random(20'261'123);
  int answered = 0;
  std::array<int, 3> verdicts{};
  for (int tries = 0; answered < kRuns && tries < 4 * kRuns; ++tries) {
    const std::string line = drawn_question(random);
    SCOPED_TRACE(line);
    std::optional<Question> question;
    std::optional<Report> report;
    try {
      question = test::question_of(test::words_in(line));
      report = estimate(*question);
    } catch (const Error&) {
      continue;  // what is drawn is not always possible
    }
    ++answered;
    ++verdicts[static_cast<std::size_t>(report->verdict)];
    EXPECT_EQ(first_words(*report), words_of(report->verdict));
    EXPECT_EQ(outcome_of(*report).verdict, report->verdict);
    EXPECT_EQ(fits_on(question->model, question->run.run, std::span(&question->device, 1)).at(0).verdict,
              report->verdict);
    EXPECT_EQ(of_sweep(*question), report->verdict);
    EXPECT_EQ(of_largest(*question), report->verdict);
    EXPECT_EQ(of_ladder(*question), report->verdict);
  }
  EXPECT_EQ(answered, kRuns);
  for (const int each : verdicts)
    EXPECT_GT(each, 1);  // few are too close to call, the fewer the better they are predicted
}

// What a plan says of a candidate is what estimate says of its run.
TEST(Views, APlansEntriesFitWhenTheyAreAskedFor) {
  for (const char* line : {"--model gpt2 --seq 512 --bf16 --gpu rtx-4090 --loop bare",
                           "--model llama-3.2-1b --seq 1024 --bf16 --gpu h100-sxm --loop bare --margin 4",
                           "--model llama-3.1-8b --seq 2048 --bf16 --gpu a100-sxm4-80gb --loop bare --lora 8"}) {
    SCOPED_TRACE(line);
    const Question question = test::question_of(test::words_in(line));
    PlanQuestion asked{.model = question.model, .run = question.run.run, .device = question.device};
    asked.gpus = 2;
    asked.global_batch = 8;
    const Plan plan = make_plan(asked);
    ASSERT_FALSE(plan.front.empty());
    for (const PlanEntry& each : plan.front) {
      const Report report = estimate(asked.model, each.run, asked.device);
      const Outcome outcome = without_construction(report, outcome_of(report));
      EXPECT_EQ(outcome.verdict, Verdict::kFits);
      EXPECT_EQ(outcome.needed, each.outcome.needed);
    }
  }
}

}  // namespace
}  // namespace memcalc
