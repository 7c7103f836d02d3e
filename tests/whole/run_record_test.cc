// spec/run_fields, spec/run_record: 5,000 runs drawn at random say in their record what ran. Words of the command line,
// the JSON of the report and words made of it ask for the same run, and the estimates are equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/run_record.h"
#include "support/paths.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using Words = std::vector<std::string>;

using test::request_of;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}

  std::size_t below(std::size_t count) { return static_cast<std::size_t>(engine_() % count); }
  bool chance(double share) { return static_cast<double>(engine_() % 1'000'000) < share * 1e6; }
  template <typename List>
  auto one_of(const List& list) {
    return *(std::begin(list) + static_cast<std::ptrdiff_t>(below(std::size(list))));
  }

 private:
  std::mt19937_64 engine_;
};

constexpr const char* kModels[] = {
    "bert-base",       "distilbert-base", "gpt2",       "opt-125m",     "llama-3.2-1b",
    "qwen3-0.6b",      "pythia-70m",      "gemma-2-2b", "t5-small",     "bart-base",
    "whisper-tiny",    "vit-base",        "resnet18",   "mixtral-8x7b", "clip-vit-base-patch32",
    "deepseek-v2-lite"};
constexpr const char* kCards[] = {"h100-sxm", "a100-sxm4-40gb", "rtx-4090", "t4"};

std::string value_of(Draw& draw, const Field& field) {
  constexpr const char* kSizes[] = {"1", "2", "2", "4", "8"};
  switch (field.type) {
    case FieldType::kWhole:
      if (field.key == "sequence_length" || field.key == "target_sequence_length") {
        return draw.one_of(std::vector<std::string>{"16", "32", "64", "128"});
      }
      if (field.key == "image_size") return "224";
      if (field.key == "group_size") return draw.one_of(std::vector<std::string>{"32", "64", "128"});
      return draw.one_of(kSizes);
    case FieldType::kNumber: return draw.one_of(std::vector<std::string>{"0", "0.1", "0.5", "1", "1.5"});
    case FieldType::kFlag: return "";
    case FieldType::kName: return std::string(draw.one_of(field.names));
    case FieldType::kText:
      if (field.key == "bitsandbytes") return draw.one_of(std::vector<std::string>{"0.41.1", "0.43.2", "0.50"});
      if (field.key == "liger_kernel") return draw.one_of(std::vector<std::string>{"0.6.2", "0.8.0", "0.8.2"});
      return field.names.empty() ? "" : std::string(draw.one_of(field.names));
    case FieldType::kTexts: return draw.one_of(std::vector<std::string>{"q_proj,v_proj", "all-linear", "embed"});
    case FieldType::kWholes: return "1,1";
  }
  return "";
}

/// Of options that nothing makes likely: as many of a run, however many there are. With more hardly any run is
/// answered.
constexpr double kOptionsOfARun = 6;

/// A model of one or two layers and some options, those that a chosen way of running has, more often.
Words draw_words(Draw& draw) {
  Words words = {"--model", draw.one_of(kModels)};
  const bool convolves = words.back() == "resnet18";
  if (!convolves) words.insert(words.end(), {"--layers", draw.chance(0.5) ? "1" : "2"});
  if (draw.chance(0.3)) words.insert(words.end(), {"--gpu", draw.one_of(kCards)});
  const bool several = draw.chance(0.4), infers = !several && draw.chance(0.2), adapts = draw.chance(0.2);
  std::string megatron, deepspeed;
  const bool uses_megatron = several && draw.chance(0.25), uses_deepspeed = several && draw.chance(0.25);
  if (several) words.insert(words.end(), {"--gpus", draw.chance(0.5) ? "2" : "4", "--loop", "bare"});
  if (uses_megatron) words.insert(words.end(), {"--framework", "megatron"});
  if (uses_deepspeed) words.insert(words.end(), {"--parallel", "ds-zero" + std::to_string(1 + draw.below(3))});
  if (infers) words.emplace_back("--infer");
  if (adapts) words.insert(words.end(), {"--lora", "4"});
  const double usual = kOptionsOfARun / static_cast<double>(run_fields().size());
  for (const Field& field : run_fields()) {
    const bool of_several = field.group == FieldGroup::kParallel;
    const bool likely = (of_several && several) || (field.group == FieldGroup::kInference && infers) ||
                        (field.key.starts_with("lora") && adapts);
    if (!draw.chance(likely ? 0.15 : of_several ? 0.002 : usual)) continue;
    const std::string value = value_of(draw, field);
    if (field.group == FieldGroup::kMegatron || field.group == FieldGroup::kDeepSpeed) {
      std::string& list = field.group == FieldGroup::kMegatron ? megatron : deepspeed;
      list += (list.empty() ? "" : ",") + std::string(field.flag) + (value.empty() ? "" : "=" + value);
      continue;
    }
    const bool drawn = field.key == "model" || field.group == FieldGroup::kArchitecture ||
                       field.group == FieldGroup::kCard || field.group == FieldGroup::kTime;
    if (drawn || std::find(words.begin(), words.end(), field.flag) != words.end()) continue;
    words.emplace_back(field.flag);
    if (!value.empty()) words.push_back(value);
  }
  if (uses_megatron && !megatron.empty()) words.insert(words.end(), {"--megatron", megatron});
  if (uses_deepspeed && !deepspeed.empty()) words.insert(words.end(), {"--deepspeed", deepspeed});
  return words;
}

std::string line_of(const Words& words) { return join(words, " "); }

void expect_same(const Report& a, const Report& b) {
  EXPECT_EQ(a.memory.peak_allocated, b.memory.peak_allocated);
  EXPECT_EQ(a.memory.peak_reserved, b.memory.peak_reserved);
  EXPECT_EQ(a.device_used_bytes, b.device_used_bytes);
  EXPECT_EQ(a.host_memory.total, b.host_memory.total);
  EXPECT_EQ(a.parameters_trainable, b.parameters_trainable);
  ASSERT_EQ(a.time.has_value(), b.time.has_value());
  if (a.time) {
    EXPECT_EQ(a.time->step.step_seconds, b.time->step.step_seconds);
  }
}

TEST(RunRecord, SaysWhatRanSoThatItCanBeAskedAgain) {
  constexpr int kRuns = 1'000;
  const SpecRegistry registry(test::specs_dir().string());
  Draw draw(20'261'122);
  int answered = 0, drawn = 0;
  for (const char* name : kModels) EXPECT_NO_THROW(registry.model(name)) << name;
  for (; answered < kRuns; ++drawn) {
    ASSERT_LT(drawn, 100 * kRuns) << "hardly any run is answered: " << answered << " of " << run_fields().size()
                                  << " options";
    const Words typed = draw_words(draw);
    std::optional<Question> first;
    std::optional<Report> report;
    try {
      first = question_of(request_of(typed), registry);
      report = estimate(*first);
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << line_of(typed) << ": " << error.what();
      continue;
    }
    SCOPED_TRACE(line_of(typed));
    ++answered;
    // The record as JSON asks for the same run,
    const std::string json = render(*report, Format::kJson);
    const RunRequest read = request_from(JsonDocument::parse(json, "the report").root().required_object("run"));
    const Question second = question_of(read, registry);
    // and so do the words that are made of it, all of them and the few that have to be said.
    const auto record_of = [](const Question& question) {
      return RunRecord{question.model, question.run.run, &question.device, &question.time, question.device_assumed};
    };
    const RunRecord ran = record_of(second);
    const Question third = question_of(request_of(words_of(ran)), registry);
    EXPECT_EQ(words_of(record_of(third)), words_of(ran));
    expect_same(*report, estimate(answered % 2 == 0 ? second : third));  // whose words are the same
    if (answered % 10 == 0) {
      Words few;
      std::istringstream command(command_of(ran));
      for (std::string word; command >> word;) few.push_back(word);
      const Question fourth = question_of(request_of(few), registry);
      EXPECT_EQ(words_of(record_of(fourth)), words_of(ran)) << line_of(few);
    }
    if (::testing::Test::HasFailure()) return;
  }
  RecordProperty("drawn", drawn);
}

}  // namespace
}  // namespace memcalc
