// plan/upgrade: what other versions change for a run.
#include "memcalc/plan/upgrade.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "memcalc/base/error.h"
#include "memcalc/memcalc.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using testing::HasSubstr;

class UpgradeTest : public testing::Test {
 protected:
  [[nodiscard]] Profile profile(const std::string& name) const {
    std::vector<std::string> notes;
    return registry().profiles().choose({.profile = name}, "", notes);
  }
  [[nodiscard]] Upgrade between(const char* model, const RunOptions& options, const Profile& from,
                                const Profile& to) const {
    RunRequest request;
    request.run = options;
    return compare_versions(registry().model(model), request, registry().device("h200-sxm"), from, to);
  }
  static const BehaviorEffect* effect_of(const Upgrade& upgrade, std::string_view name) {
    const auto found = std::find_if(upgrade.effects.begin(), upgrade.effects.end(),
                                    [&](const BehaviorEffect& each) { return each.behavior->name == name; });
    return found == upgrade.effects.end() ? nullptr : &*found;
  }
};

TEST_F(UpgradeTest, EachBehaviourAloneAndAllTogether) {
  const RunOptions options{.batch_size = 2, .sequence_length = 256, .loop = Loop::kBare};
  const Upgrade upgrade = between("gpt2", options, profile("p3"), profile("p1"));
  ASSERT_TRUE(upgrade.after.report);
  const BehaviorEffect* buffers = effect_of(upgrade, "gpt2.buffers");
  ASSERT_NE(buffers, nullptr);
  EXPECT_EQ(buffers->before, "mask-and-scalar");
  EXPECT_EQ(buffers->after, "none");
  EXPECT_TRUE(upgrade.matters(*buffers));
  const Bytes before = upgrade.before.report->memory.exact_peak;
  // A mask of 1024 x 1024 bytes and a number for each of 12 layers.
  EXPECT_EQ(buffers->figures.report->memory.exact_peak, before - 12 * (kMiB + 4));
  const BehaviorEffect* t5 = effect_of(upgrade, "t5.attention");
  ASSERT_NE(t5, nullptr);
  EXPECT_FALSE(upgrade.matters(*t5));
  const std::string text = render(answer_of(upgrade), Format::kText);
  EXPECT_THAT(text, HasSubstr("gpt2.buffers"));
  EXPECT_THAT(text, HasSubstr("all together"));
  EXPECT_THAT(text, HasSubstr("without effect on this run"));
}

TEST_F(UpgradeTest, ARunThatIsRefusedAfterwardsIsSaid) {
  const RunOptions options{.batch_size = 2, .sequence_length = 64, .loop = Loop::kBare, .attention = Attention::kSdpa};
  const Upgrade upgrade = between("gemma-2-2b", options, profile("p1"), profile("p4"));
  EXPECT_FALSE(upgrade.after.report);
  EXPECT_THAT(upgrade.after.refusal, HasSubstr("eager attention alone"));
  EXPECT_THAT(render(answer_of(upgrade), Format::kText), HasSubstr("not answered"));
  const BehaviorEffect* eager = effect_of(upgrade, "gemma2.eager");
  ASSERT_NE(eager, nullptr);
  EXPECT_TRUE(upgrade.matters(*eager));
  EXPECT_EQ(eager->evidence, Evidence::kSources);
  EXPECT_THAT(render(answer_of(upgrade), Format::kCsv), HasSubstr("sources"));
}

TEST_F(UpgradeTest, EachBehaviourSaysWhatItWasComparedBy) {
  const std::string csv = render(behaviors_answer(registry().profiles()), Format::kCsv);
  EXPECT_THAT(csv, HasSubstr("experts.form,transformers,5.18.0,unmasked,measured,"));
  EXPECT_THAT(csv, HasSubstr("gemma2.eager,transformers,5.21.0,yes,sources,"));
  EXPECT_THAT(csv, HasSubstr("indexing.open-slices,torch,2.8.0,yes,recorded streams,"));
}

// Releases that are alike in all that a run reads are not executed for it: they share the first versions' report. That
// is right as long as nothing depends on a behaviour but by reading it.
TEST_F(UpgradeTest, WhatARunDoesNotReadHasNoEffectOnIt) {
  struct Case {
    const char* model;
    RunOptions options;
  };
  const Case cases[] = {
      {"gpt2", {.batch_size = 1, .sequence_length = 64, .loop = Loop::kBare}},
      {"bert-base", {.batch_size = 2, .sequence_length = 64, .precision = Precision::kAmpFp16, .padding = true}},
      {"llama-3.2-1b", {.batch_size = 1, .sequence_length = 128, .precision = Precision::kBf16, .lora_rank = 8}},
      {"t5-small", {.batch_size = 1, .sequence_length = 64}},
      {"vit-base", {.batch_size = 1}},
      {"resnet50", {.batch_size = 1, .loop = Loop::kBare}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.model);
    const Profile from = profile("p3"), to = profile("p1");
    const Upgrade upgrade = between(each.model, each.options, from, to);
    std::size_t shared = 0;
    for (const BehaviorEffect& effect : upgrade.effects) {
      if (effect.figures.report != upgrade.before.report) continue;
      ++shared;
      RunRequest request;
      request.run = each.options;
      request.run.profile = from;
      effect.behavior->set(request.run.profile.behaviors, effect.behavior->get(to.behaviors));
      const ModelSpec model = registry().model(each.model);
      const Report alone = estimate(model, resolve_request(model, request), registry().device("h200-sxm"));
      const Report& base = *upgrade.before.report;
      EXPECT_EQ(alone.memory.exact_peak, base.memory.exact_peak) << effect.behavior->name;
      EXPECT_EQ(alone.memory.peak_allocated, base.memory.peak_allocated) << effect.behavior->name;
      EXPECT_EQ(alone.memory.peak_reserved, base.memory.peak_reserved) << effect.behavior->name;
      ASSERT_EQ(alone.time.has_value(), base.time.has_value()) << effect.behavior->name;
      if (base.time) {
        EXPECT_EQ(alone.time->step.step_seconds, base.time->step.step_seconds) << effect.behavior->name;
      }
    }
    EXPECT_GT(shared, upgrade.effects.size() / 2);
    EXPECT_LT(shared, upgrade.effects.size());
  }
}

TEST_F(UpgradeTest, EqualVersionsDifferInNothing) {
  const Upgrade upgrade = between("gpt2", {.loop = Loop::kBare}, Profile{}, Profile{});
  EXPECT_TRUE(upgrade.effects.empty());
  EXPECT_EQ(upgrade.after.report->memory.peak_reserved, upgrade.before.report->memory.peak_reserved);
}

TEST_F(UpgradeTest, ARunThatIsNotAnsweredBeforeIsAnError) {
  const RunOptions options{.loop = Loop::kTrlDpo, .lora_rank = 8};
  try {
    (void)between("gpt2", options, profile("p3"), profile("p1"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--from: "));
  }
}

TEST_F(UpgradeTest, ProfilesAreListedWithTheirVersions) {
  const std::string text = render(answer_of(registry().profiles()), Format::kText);
  EXPECT_THAT(text, HasSubstr("p3"));
  EXPECT_THAT(text, HasSubstr("4.57.6"));
  EXPECT_THAT(text, HasSubstr("by sources"));
}

}  // namespace
}  // namespace memcalc
