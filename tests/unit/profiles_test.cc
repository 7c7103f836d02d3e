// spec/version, spec/behaviors, spec/profile, spec/profiles, spec/version_file, report/versions_used.
#include "memcalc/spec/profiles.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/report/versions_used.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/spec/version_file.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

const Profiles& known() {
  static const Profiles profiles((test::specs_dir() / "profiles").string());
  return profiles;
}

VersionOptions asking(Software of, const std::string& version) {
  VersionOptions options;
  options.asked[static_cast<std::size_t>(of)] = version;
  return options;
}

Profile chosen(const VersionOptions& options, const std::string& file = "") {
  std::vector<std::string> notes;
  return known().choose(options, file, notes);
}

std::string refusal_of(const VersionOptions& options) {
  try {
    (void)chosen(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Version, IsReadAsPipWritesIt) {
  EXPECT_EQ(version_of("5.17"), (Version{5, 17, 0}));
  EXPECT_EQ(version_of("5.17.0"), (Version{5, 17, 0}));
  EXPECT_EQ(version_of("2.11.0+cu130"), (Version{2, 11, 0}));
  EXPECT_EQ(version_of("5.18.0.dev0"), (Version{5, 18, 0}));
  EXPECT_EQ(version_of("v4.57.6"), (Version{4, 57, 6}));
  for (const char* text : {"", "5", "new", "5.", "-1.2", "1.2 3"}) EXPECT_FALSE(version_of(text)) << text;
}

TEST(Behaviors, HaveNamesOfTheirOwnAndReachTheirMembers) {
  std::set<std::string_view> names;
  for (const Behavior& row : behavior_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_FALSE(row.source.empty()) << row.name;
    EXPECT_EQ(row.evidence.size(), row.values.size()) << row.name;
    if (row.name != decltype(Behaviors::casts_lengths)::kName) {  // no job with DoRA over a packed base was measured
      EXPECT_EQ(evidence_of(row, Behaviors{}), Evidence::kMeasured) << row.name << ": of today's value";
    }
    Behaviors behaviors;
    ASSERT_LT(row.get(behaviors), row.values.size()) << row.name;
    for (std::uint8_t value = 0; value < row.values.size(); ++value) {
      row.set(behaviors, value);
      EXPECT_EQ(row.get(behaviors), value) << row.name;
    }
  }
}

TEST(Behaviors, WhatIsReadIsNoted) {
  const Behaviors behaviors;
  const std::size_t t5 = row_of_behavior("t5.attention"), by_sum = row_of_behavior("masks.all-by-sum");
  ASSERT_EQ(behavior_table()[t5].name, "t5.attention");
  const BehaviorReads whole;
  {
    const BehaviorReads part;
    const Behaviors copied = behaviors;
    EXPECT_TRUE(copied == behaviors);
    (void)behavior_table()[t5].get(copied);
    EXPECT_TRUE(part.rows().none()) << "to copy, compare or list them is not to read one";
    EXPECT_TRUE(copied.t5_attention == T5Attention::kSdpa);
    EXPECT_TRUE(part.rows().test(t5));
    EXPECT_EQ(part.rows().count(), 1);
  }
  [[maybe_unused]] const bool sums = behaviors.all_by_sum;
  EXPECT_TRUE(whole.rows().test(by_sum));
  EXPECT_TRUE(whole.rows().test(t5)) << "read in a part of it";
  EXPECT_EQ(whole.rows().count(), 2);
}

// What a release does not say, the one before it does: so the first one has to say everything.
TEST(Profiles, TheFirstReleaseGivesEveryBehaviour) {
  std::set<std::size_t> given;
  for (std::size_t i = 0; i < kSoftwareCount; ++i) {
    for (const auto& [row, value] : known().releases(static_cast<Software>(i)).front().changes) given.insert(row);
  }
  for (std::size_t i = 0; i < behavior_table().size(); ++i) EXPECT_THAT(given, Contains(i)) << behavior_table()[i].name;
}

TEST(Profiles, ADefaultProfileIsThatOfItsVersions) {
  VersionOptions all;
  for (std::size_t i = 0; i < kSoftwareCount; ++i) all.asked[i] = text_of(Profile{}.versions[i]);
  EXPECT_EQ(chosen(all), Profile{});
  EXPECT_EQ(chosen({.profile = "p1"}), Profile{});
}

TEST(Profiles, AVersionBetweenTwoTakesTheOldersBehaviours) {
  std::vector<std::string> notes;
  const Profile between = known().choose(asking(Software::kTransformers, "5.7.0"), "", notes);
  EXPECT_EQ(between.behaviors, chosen(asking(Software::kTransformers, "5.5.4")).behaviors);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("5.7.0 behaves as 5.5.4")));
  notes.clear();
  (void)known().choose(asking(Software::kTransformers, "5.17.1"), "", notes);  // a patch says nothing
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_THAT(refusal_of(asking(Software::kTransformers, "4.30")), HasSubstr("before 4.57.0"));
  EXPECT_THAT(refusal_of(asking(Software::kTorch, "new")), HasSubstr("--torch: expected a version"));
  EXPECT_THAT(refusal_of({.profile = "p9"}), HasSubstr("--profile: expected one of p1"));
}

TEST(Profiles, AVersionWithoutAPatchIsTheNewestPatchThatIsKnown) {
  const auto newest = [](Software of, const char* text) { return text_of(chosen(asking(of, text)).version(of)); };
  EXPECT_EQ(newest(Software::kTransformers, "5.5"), "5.5.4");
  EXPECT_EQ(newest(Software::kTransformers, "5.20"), "5.20.2");
  EXPECT_EQ(newest(Software::kTransformers, "4.57"), "4.57.6");
  EXPECT_EQ(newest(Software::kTorch, "2.9"), "2.9.1");
  EXPECT_EQ(newest(Software::kTransformers, "5.7"), "5.7.0");  // none is known
  // What is written down is what is installed: "==5.5" is 5.5.0.
  EXPECT_EQ(text_of(chosen({}, "transformers==5.5").version(Software::kTransformers)), "5.5.0");
}

TEST(Profiles, AReleaseBeginsWithTheFirstVersionOfTheSameSource) {
  std::vector<std::string> notes;
  for (const auto& [first, release] : {std::pair("5.5.0", "5.5.4"), std::pair("4.57.0", "4.57.6"),
                                       std::pair("5.15.0", "5.15.1"), std::pair("5.21.0", "5.21.1")}) {
    EXPECT_EQ(known().choose(asking(Software::kTransformers, first), "", notes).behaviors,
              chosen(asking(Software::kTransformers, release)).behaviors)
        << first;
  }
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_NE(chosen(asking(Software::kTransformers, "5.4.0")).behaviors,
            chosen(asking(Software::kTransformers, "5.5.0")).behaviors);
}

TEST(Profiles, TheCudaOfTorchsWheelDecidesItsCudnn) {
  const auto torch = [](const char* text) { return chosen(asking(Software::kTorch, text)); };
  EXPECT_EQ(torch("2.11.0").cudnn, (Version{9, 19, 0}));
  EXPECT_EQ(torch("2.11.0+cu126").cudnn, (Version{9, 10, 2}));
  EXPECT_EQ(torch("2.11.0+cu126").behaviors.cudnn_attention, CudnnAttention::kNowhere);
  EXPECT_EQ(torch("2.11.0+cu128").behaviors, Behaviors{});
  // 2.10's own wheel brings 9.10, the one for CUDA 13.0 9.15.1.
  EXPECT_EQ(torch("2.10.0").behaviors.cudnn_attention, CudnnAttention::kNowhere);
  EXPECT_EQ(torch("2.10.0+cu130").behaviors.cudnn_attention, CudnnAttention::kHopperAndB200);
  std::vector<std::string> notes;
  (void)known().choose(asking(Software::kTorch, "2.11.0+cu124"), "", notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("which cuDNN this wheel brings is not known")));
}

TEST(Profiles, AWheelHasKernelsFromAnArchitectureOn) {
  const auto oldest = [](const char* text) { return chosen(asking(Software::kTorch, text)).oldest_architecture; };
  EXPECT_EQ(oldest("2.8.0"), CudaArchitecture::kVolta);
  EXPECT_EQ(oldest("2.8.0+cu126"), CudaArchitecture::kMaxwell);
  EXPECT_EQ(oldest("2.9.1+cu130"), CudaArchitecture::kTuring);  // as 2.8 has it
  EXPECT_EQ(oldest("2.11.0"), CudaArchitecture::kTuring);
  EXPECT_EQ(oldest("2.11.0+cu124"), CudaArchitecture::kNone);  // of no wheel that is known
  EXPECT_EQ(chosen(asking(Software::kTorch, "2.11.0")), Profile{});
  EXPECT_EQ(chosen(asking(Software::kTorch, "2.14.0")).wheel_of_older,
            (WheelArchitecture{{12, 6, 0}, CudaArchitecture::kMaxwell}));
  EXPECT_EQ(chosen(asking(Software::kTorch, "2.15.0")).wheel_of_older, WheelArchitecture{});
}

TEST(Profiles, NamedOnesInheritFromTheirParents) {
  const Profile p3 = chosen({.profile = "P3"});
  EXPECT_EQ(p3.version(Software::kTransformers), (Version{4, 57, 6}));
  EXPECT_EQ(p3.version(Software::kBitsandbytes), Profile{}.version(Software::kBitsandbytes));
  EXPECT_EQ(p3.behaviors.experts, ExpertForm::kLoop);
  EXPECT_EQ(p3.behaviors.cudnn_attention, CudnnAttention::kNowhere);
  EXPECT_EQ(p3.behaviors.sft_loss, SftLossForm::kLogits);
}

TEST(Profiles, ACudaOfItsOwnIsKept) {
  const Profile colab = chosen(asking(Software::kTorch, "2.11.0+cu128"));
  EXPECT_EQ(colab.cuda, (Version{12, 8, 0}));
  EXPECT_EQ(wheel_of(colab, Software::kTorch), "2.11.0+cu128");
  EXPECT_EQ(wheel_of(chosen(asking(Software::kTorch, "2.11.0+cu130")), Software::kTorch), "2.11.0");
}

TEST(Profiles, OneSoftwareIsTakenFromAnother) {
  Profile mixed;
  take_software(mixed, Software::kTransformers, chosen({.profile = "p3"}));
  EXPECT_EQ(mixed, chosen(asking(Software::kTransformers, "4.57.6")));
}

TEST(VersionFile, ReadsWhatToolsWrite) {
  const auto read = [](std::string_view text) {
    std::vector<std::pair<Software, std::string>> found;
    for (const auto& each : versions_in(text).found) found.emplace_back(each.of, each.version);
    return found;
  };
  EXPECT_THAT(read("# mine\ntorch==2.10.0+cu128\nnumpy==1.2.3\ntransformers[torch]==4.57.6 ; python_version > '3'\n"),
              ElementsAre(Pair(Software::kTorch, "2.10.0+cu128"), Pair(Software::kTransformers, "4.57.6")));
  EXPECT_THAT(read("Package      Version\ntorch        2.9.1\n"), ElementsAre(Pair(Software::kTorch, "2.9.1")));
  EXPECT_THAT(
      read("[[package]]\nname = \"torch\"\nversion = \"2.9.1\"\n[[package]]\nname = \"numpy\"\nversion = \"2.0\"\n"),
      ElementsAre(Pair(Software::kTorch, "2.9.1")));
  EXPECT_THAT(read("torch==2.11.0,transformers==5.5.4"),
              ElementsAre(Pair(Software::kTorch, "2.11.0"), Pair(Software::kTransformers, "5.5.4")));
  const WrittenVersions open = versions_in("transformers>=5,<6\n");
  EXPECT_THAT(open.found, IsEmpty());
  EXPECT_THAT(open.notes, ElementsAre(HasSubstr("names no single version: pin it (transformers==5.17.0), or say")));
  EXPECT_THAT(read("torch @ https://download.pytorch.org/whl/cu128/torch-2.11.0%2Bcu128-cp312-cp312-linux_x86_64.whl\n"
                   "trl @ git+https://github.com/huggingface/trl\n"),
              ElementsAre(Pair(Software::kTorch, "2.11.0+cu128")));
  EXPECT_THAT(read("torch==2.11.*\n"), IsEmpty());
}

TEST(VersionFile, ReadsWhatAFileIncludesAndWhatAnEnvironmentHolds) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "versions";
  const std::filesystem::path packages = folder / "lib" / "python3.12" / "site-packages";
  std::filesystem::create_directories(packages / "torch-2.10.0+cu128.dist-info");
  std::filesystem::create_directories(packages / "torchvision-0.25.0.dist-info");
  std::filesystem::create_directories(packages / "transformers-5.5.4.dist-info");
  std::ofstream(folder / "all.txt") << "-r base.txt\ntrl==1.16.0\n";
  std::ofstream(folder / "base.txt") << "transformers==5.23.0  # the newest\n";
  std::ofstream(folder / "circle.txt") << "--requirement circle.txt\n";
  std::ofstream(folder / "open.txt") << "transformers>=5\n";
  const Profile written = chosen({}, (folder / "all.txt").string());
  EXPECT_EQ(written.version(Software::kTransformers), (Version{5, 23, 0}));
  EXPECT_EQ(written.version(Software::kTrl), (Version{1, 16, 0}));
  // PowerShell's redirection and some editors.
  std::ofstream(folder / "marked.txt") << "\xef\xbb\xbftransformers==5.5.4\r\n";
  std::string wide = "\xff\xfe";
  for (const char c : std::string("transformers==5.9.0\r\n")) wide += std::string{c, '\0'};
  std::ofstream(folder / "wide.txt") << wide;
  EXPECT_EQ(chosen({}, (folder / "marked.txt").string()).version(Software::kTransformers), (Version{5, 5, 4}));
  EXPECT_EQ(chosen({}, (folder / "wide.txt").string()).version(Software::kTransformers), (Version{5, 9, 0}));
  const Profile installed = chosen({}, folder.string());
  EXPECT_EQ(installed.version(Software::kTransformers), (Version{5, 5, 4}));
  EXPECT_EQ(installed.version(Software::kTorch), (Version{2, 10, 0}));
  const auto refused = [&](const char* name) {
    try {
      (void)chosen({}, (folder / name).string());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("circle.txt"), HasSubstr("include each other"));
  EXPECT_THAT(refused("open.txt"), HasSubstr("pin it (transformers==5.17.0)"));
  std::filesystem::create_directories(folder / "empty");
  EXPECT_THAT(refused("empty"), HasSubstr("is installed there"));
  std::filesystem::remove_all(folder);
}

TEST(VersionFile, AnOptionIsStrongerAndAnOldVersionIsSaid) {
  std::vector<std::string> notes;
  const Profile profile =
      known().choose(asking(Software::kTransformers, "5.5.4"), "torch==2.1.0,transformers==4.57.6", notes);
  EXPECT_EQ(profile.version(Software::kTransformers), (Version{5, 5, 4}));
  EXPECT_EQ(profile.version(Software::kTorch), (Version{2, 1, 0}));
  EXPECT_THAT(notes, Contains(HasSubstr("torch 2.1.0 is answered as 2.8.0")));
}

TEST(VersionsUsed, NamesWhatTheRunTouches) {
  const auto of = [&](const char* name, const RunOptions& options) {
    const ModelSpec model = registry().model(name);
    return versions_text(versions_used(model, resolve(model, options).run));
  };
  EXPECT_EQ(of("gpt2", {.loop = Loop::kBare}), "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0");
  EXPECT_EQ(of("resnet50", {.loop = Loop::kBare}), "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), torchvision 0.26.0");
  EXPECT_EQ(of("gpt2", {.loop = Loop::kTrlSft, .lora_rank = 8}),
            "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0, accelerate 1.15.0, peft 0.21.2, trl 1.16.0");
  EXPECT_EQ(of("llama-3.2-1b", {.loop = Loop::kBare, .optimizer = Optimizer::kAdamW8bit, .liger = true}),
            "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0, bitsandbytes 0.50.2, liger-kernel 0.8.5");
  RunOptions megatron;
  megatron.gpus = 2;
  megatron.parallel.tensor = 2;
  megatron.framework = Framework::kMegatron;
  EXPECT_EQ(of("llama-3.2-1b", megatron),
            "torch 2.11.0 (CUDA 13.0, cuDNN 9.19, NCCL 2.28.9), megatron-core 0.14.0, transformer-engine 2.11.0");
}

}  // namespace
}  // namespace memcalc
