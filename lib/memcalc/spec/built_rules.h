// Rules that only the built model can answer: they look at its modules, parameters and tensors, which spec/ does not
// know. The place that finds one broken throws refusal(rule, …). They stand in docs/what-goes-with-what.md beside the
// others (spec/rules.h). Covered by tests/unit/built_rules_test.cc.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "memcalc/base/error.h"

namespace memcalc {

struct BuiltRule {
  std::string_view id;        // as in Rule
  std::string_view options;   // by spaces; the first one is Error.part
  std::string_view message;   // each {}: the next of what the place knows
  std::string_view accepted;  // what to give instead; empty: the message says it
  ErrorCode code = ErrorCode::kUnsupported;
};

namespace rules {

// Models
extern const BuiltRule kKnownActivation, kKnownTorchvision, kMegatronModels, kMegatronMamba, kLitGptModels,
    kImageLargeEnough, kGroupedExperts, kNoClassifier, kClassOfVersion;
// Adapters, quantised weights, frozen parameters
extern const BuiltRule kLoraLayers, kLoraTarget, kFreezeName, kFreezeNotAll, kMarlinShape, kFp8Experts, kPackedHead,
    kPackedExperts, kQuantizedLayers, kFp8BaseLayers, kBlocksToSwap, kSwapLeavesBlocks, kOffloadedParameterHooks;
// torch: tensor parallelism, FSDP, context parallelism, pipelines
extern const BuiltRule kTpDivides, kTpExperts, kTpPlan, kTpNorm, kTpRowBias, kTpLayers;
extern const BuiltRule kFloat32Head, kFsdp1Frozen, kFsdp1Scalar, kFsdp1OneType, kFsdp1Layers, kFsdp2Scalar,
    kFsdp2Layers, kFsdp2DirectRead;
extern const BuiltRule kZero3Frozen, kZero3Hooks, kDeepSpeedBuffers;
extern const BuiltRule kCpMask, kCpCausal, kCpKernel, kStages;
// torch.compile
extern const BuiltRule kCompiledArguments, kScriptedFunctions, kBrokenGraphRecorded;

}  // namespace rules

[[nodiscard]] std::span<const BuiltRule* const> built_rules();

/// The rule as an Error with its message.
[[nodiscard]] Error refusal(const BuiltRule& rule, std::initializer_list<std::string_view> found = {});

}  // namespace memcalc
