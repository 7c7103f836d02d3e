// spec/version, spec/behaviors, spec/profile, spec/profiles, spec/version_file, report/versions_used.
#include "memcalc/spec/profiles.h"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/report/versions_used.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/spec/version_file.h"
#include "support/paths.h"

namespace memcalc {
namespace {

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
    Behaviors behaviors;
    ASSERT_LT(row.get(behaviors), row.values.size()) << row.name;
    for (std::uint8_t value = 0; value < row.values.size(); ++value) {
      row.set(behaviors, value);
      EXPECT_EQ(row.get(behaviors), value) << row.name;
    }
  }
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
  EXPECT_THAT(refusal_of(asking(Software::kTransformers, "4.30")), HasSubstr("before 4.57.6"));
  EXPECT_THAT(refusal_of(asking(Software::kTorch, "new")), HasSubstr("--torch: expected a version"));
  EXPECT_THAT(refusal_of({.profile = "p9"}), HasSubstr("--profile: expected one of p1"));
}

TEST(Profiles, NamedOnesInheritFromTheirParents) {
  const Profile p3 = chosen({.profile = "P3"});
  EXPECT_EQ(p3.version(Software::kTransformers), (Version{4, 57, 6}));
  EXPECT_EQ(p3.version(Software::kBitsandbytes), Profile{}.version(Software::kBitsandbytes));
  EXPECT_EQ(p3.behaviors.experts, ExpertForm::kLoop);
  EXPECT_EQ(p3.behaviors.cudnn_attention, CudnnAttention::kNowhere);
  EXPECT_FALSE(p3.behaviors.sft_chunked_loss);
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
  EXPECT_THAT(open.notes, ElementsAre(HasSubstr("names no single version")));
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
  const SpecRegistry registry(test::specs_dir().string());
  const auto of = [&](const char* name, const RunOptions& options) {
    const ModelSpec model = registry.model(name);
    return versions_text(versions_used(model, resolve(model, options).run));
  };
  EXPECT_EQ(of("gpt2", {.loop = Loop::kBare}), "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0");
  EXPECT_EQ(of("resnet50", {.loop = Loop::kBare}), "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), torchvision 0.26.0");
  EXPECT_EQ(of("gpt2", {.loop = Loop::kTrlSft, .lora_rank = 8}),
            "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0, accelerate 1.15.0, peft 0.21.2, trl 1.16.0");
}

}  // namespace
}  // namespace memcalc
