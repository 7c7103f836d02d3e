// plan/ladder.h: what is suggested to drawn runs that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memcalc/planning.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::SizeIs;

/// What is behind "memcalc": no word of these commands has a blank in it.
std::vector<std::string> words_behind_name(const std::string& command) {
  std::vector<std::string> words = test::words_in(command);
  words.erase(words.begin());
  return words;
}

Report report_of(const std::string& line) { return estimate(test::question_of(test::words_in(line))); }

/// A run as people type it; most of them too large for the card.
std::string drawn_run(std::mt19937& random) {
  const auto one_of = [&](const auto& list) { return std::string(list[random() % std::size(list)]); };
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  constexpr std::array kDecoders = {"gpt2",         "gpt2-medium", "llama-3.2-1b", "qwen2.5-0.5b",
                                    "qwen2.5-1.5b", "gemma-2-2b",  "opt-1.3b",     "llama-3.1-8b"};
  constexpr std::array kOthers = {"bert-large", "roberta-base", "t5-base", "vit-large", "resnet50", "convnext-base"};
  constexpr std::array kCards = {"t4",      "rtx-4060",        "rtx-3060-12gb",    "rtx-4090",
                                 "a10",     "rtx-4050-laptop", "h100-mig-1g.10gb", "v100-sxm2-16gb",
                                 "h100-sxm"};
  constexpr std::array kBatches = {"1", "2", "6", "16", "48", "64"};
  constexpr std::array kPrecisions = {"", " --bf16", " --fp16", " --precision bf16", " --precision tf32"};
  const bool decoder = chance(70);
  std::string line = "--model " + (decoder ? one_of(kDecoders) : one_of(kOthers)) + " --gpu " + one_of(kCards) +
                     " --bs " + one_of(kBatches) + one_of(kPrecisions);
  if (decoder) line += " --seq " + one_of(std::array{"512", "1024"});
  if (decoder && chance(20)) {
    line += " --infer";
    if (chance(50)) line = line.substr(0, line.find(" --seq")) + " --seq 512 --infer --new-tokens 16";
    return line;
  }
  if (decoder && chance(30)) line += " --lora 8";
  if (chance(30)) line += " --loop bare";
  if (chance(20)) line += " --optimizer " + one_of(std::array{"adamw-8bit", "sgd", "adafactor", "adamw"});
  if (chance(15)) line += " --accum 4";
  if (decoder && chance(15)) line += " --gpus 2 --parallel " + one_of(std::array{"ddp", "fsdp2"});
  return line;
}

// Every command that is suggested is read by the same parser and asked again. "Fits" is what it was suggested for.
TEST(Remedies, OfTwoHundredDrawnRunsFitWhenTheyAreAskedFor) {
  std::mt19937 random(17);
  int answered = 0, suggested = 0;
  for (int tries = 0; answered < 200 && tries < 2000; ++tries) {
    const std::string line = drawn_run(random);
    SCOPED_TRACE(line);
    std::optional<Report> report;
    try {
      report = report_of(line);
    } catch (const Error&) {
      continue;  // what is drawn is not always possible
    }
    if (report->fits()) continue;
    ++answered;
    const std::vector<Remedy> remedies = remedies_for(*report);
    EXPECT_LE(remedies.size(), 3U);
    std::set<std::string> commands;
    for (const Remedy& each : remedies) commands.insert(each.command);
    EXPECT_EQ(commands.size(), remedies.size());
    for (const Remedy& each : remedies) {
      SCOPED_TRACE(each.command);
      const Report again = estimate(test::question_of(words_behind_name(each.command)));
      EXPECT_EQ(again.needed(), each.needed);
      EXPECT_EQ(again.verdict, each.verdict);
      EXPECT_EQ(again.run.trains(), report->run.trains());
      if (again.fits()) {
        ++suggested;
      } else {
        EXPECT_THAT(remedies, SizeIs(1));  // the least that was found
        EXPECT_LT(again.needed(), report->needed());
      }
    }
  }
  EXPECT_EQ(answered, 200);
  EXPECT_GT(suggested, 300);
}

}  // namespace
}  // namespace memcalc
