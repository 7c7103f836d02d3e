// spec/names.h, spec/option_names.h
#include "memcalc/spec/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memcalc/spec/option_names.h"
#include "support/paths.h"

namespace memcalc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kOptions = {"optimizer", "tie", "group-size",    "max-positions", "lora", "bs", "gpu",
                                           "gpus",      "seq", "checkpointing", "weights-dtype", "tp",   "cp"};

TEST(Names, EditDistance) {
  EXPECT_EQ(edit_distance("bert", "bert"), 0U);
  EXPECT_EQ(edit_distance("bert", "BERT"), 0U);
  EXPECT_EQ(edit_distance("bert-lage", "bert-large"), 1U);
  EXPECT_EQ(edit_distance("sxm", "smx"), 1U);  // neighbours exchanged
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Names, OneLine) {
  EXPECT_EQ(one_line("a\nb\tc\x01"), "a\\nb\\tc\\x01");
  EXPECT_EQ(one_line("\xff"), "\\xff");
  EXPECT_EQ(one_line("äöü", 3), "ä…");  // a character is not cut in two
}

TEST(Names, OnlyWhatIsReallyNearIsProposed) {
  EXPECT_THAT(nearest_names("optimzer", kOptions), ElementsAre("optimizer"));
  EXPECT_THAT(nearest_names("weights_dtype", kOptions), ElementsAre("weights-dtype"));
  EXPECT_THAT(nearest_names("gpuss", kOptions), ElementsAre("gpus"));
  for (const char* far : {"optim5", "batch-size", "flash-attention", "memory", "zero", "x", ""}) {
    EXPECT_THAT(nearest_names(far, kOptions), IsEmpty()) << far;
  }
}

TEST(Names, TheBeginningOfFewNamesStandsForThem) {
  EXPECT_THAT(nearest_names("check", kOptions), ElementsAre("checkpointing"));
  EXPECT_THAT(nearest_names("optim", kOptions), ElementsAre("optimizer"));
  const std::vector<std::string> many = {"llama-a", "llama-b", "llama-c", "llama-d"};
  EXPECT_THAT(nearest_names("llama-", many, 4), ElementsAre("llama-a", "llama-b", "llama-c", "llama-d"));
  EXPECT_THAT(nearest_names("lla", many, 3), IsEmpty());
}

TEST(OptionNames, AreThoseOfOtherPrograms) {
  const std::string specs = test::specs_dir().string();
  const auto ours = [&](const char* name) {
    const auto found = option_name_elsewhere(specs, name);
    return found ? found->ours : "unknown";
  };
  EXPECT_EQ(ours("--per_device_train_batch_size"), "--bs");
  EXPECT_EQ(ours("--per-device-train-batch-size"), "--bs");
  EXPECT_EQ(ours("--load_in_4bit"), "--quantize nf4");
  EXPECT_EQ(ours("--tensor-model-parallel-size"), "--tp");
  EXPECT_EQ(ours("--parallelism.tensor_parallel_degree"), "--tp");
  EXPECT_EQ(ours("--learning_rate"), "");
  EXPECT_EQ(ours("--xyzzy"), "unknown");
  EXPECT_EQ(ours("--"), "unknown");
  EXPECT_FALSE(option_name_elsewhere("/nowhere", "--batch-size"));
}

}  // namespace
}  // namespace memcalc
