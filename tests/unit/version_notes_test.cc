// train/version_notes: what rests on sources alone is said, where this run may feel it.
#include "memcalc/train/version_notes.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_options.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> said_of(const char* model_name, const RunOptions& options, const char* software,
                                 const char* version) {
  const ModelSpec model = registry().model(model_name);
  RunSpec run = resolve(model, options).run;
  VersionOptions asked;
  for (std::size_t i = 0; i < kSoftwareCount; ++i) {
    if (kSoftwareNames[i] == software) asked.asked[i] = version;
  }
  std::vector<std::string> notes;
  run.profile = registry().profiles().choose(asked, "", notes);
  SymbolicRun result;
  tell_about_versions(model, run, registry().device("h100-sxm"), result);
  return result.assumptions;
}

const RunOptions kBare{.loop = Loop::kBare};

TEST(VersionNotes, TodaysVersionsNeedNone) {
  EXPECT_THAT(said_of("gemma-2-2b", kBare, "transformers", "5.17.0"), IsEmpty());
}

TEST(VersionNotes, WhatRestsOnSourcesIsSaidWhereItIsFelt) {
  const auto eager = HasSubstr("gemma2.eager is 'yes' by sources alone");
  EXPECT_THAT(said_of("gemma-2-2b", kBare, "transformers", "5.23.0"), Contains(eager));
  EXPECT_THAT(said_of("llama-3.2-1b", kBare, "transformers", "5.23.0"), IsEmpty());
  EXPECT_THAT(said_of("gpt2", kBare, "torch", "2.9.1"),
              Contains(HasSubstr("sdpa.prefers-cudnn is 'nowhere' by sources")));
  RunOptions eager_attention = kBare;
  eager_attention.attention = Attention::kEager;
  EXPECT_THAT(said_of("gpt2", eager_attention, "torch", "2.9.1"), Not(Contains(HasSubstr("sdpa.prefers-cudnn"))));
}

TEST(VersionNotes, WhatACardHasShownIsNot) {
  for (const std::string& each : said_of("gpt2", kBare, "transformers", "4.57.6")) {
    EXPECT_THAT(each, Not(HasSubstr("gpt2.buffers")));
  }
}

TEST(VersionNotes, HowALoopOverExpertsSharesTokensOutIsSaid) {
  EXPECT_THAT(said_of("mixtral-8x7b", kBare, "transformers", "4.57.6"),
              Contains(HasSubstr("as a router without training lets them")));
}

TEST(VersionNotes, RecordedStreamsAreNamedAsSuch) {
  EXPECT_THAT(said_of("gpt2", kBare, "torch", "2.8.0"),
              Contains(HasSubstr("indexing.open-slices is 'yes' by recorded streams alone")));
}

}  // namespace
}  // namespace memcalc
