// No time of generate() is shorter than its card allows, in any family that generates: a later token reads what its
// products multiply once, and the prompt's forward pass computes them at the datasheet's rate at most.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/train/step.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

/// Of each kind of model the smallest, with two layers.
std::map<std::string, ModelSpec> small_models() {
  std::map<std::string, ModelListing> smallest;
  for (const ModelListing& each : registry().models()) {
    if (each.is_program) continue;
    const auto size = [](const ModelListing& of) { return of.parameters.value_or(INT64_MAX); };
    const auto [at, is_new] = smallest.try_emplace(each.model_type, each);
    if (!is_new && size(each) < size(at->second)) at->second = each;
  }
  std::map<std::string, ModelSpec> models;
  for (const auto& [type, listing] : smallest) {
    try {
      models.emplace(type, registry().model(listing.name, {.layers = 2}));
    } catch (const Error&) {  // layers that are no option of it
      models.emplace(type, registry().model(listing.name));
    }
  }
  return models;
}

std::optional<RunSpec> generating(const ModelSpec& model, Precision precision) {
  RunOptions options{.batch_size = 1, .precision = precision};
  options.sequence_length = image_text_of(model) != nullptr ? 1100 : 64;
  if (model.model_type == "whisper") options.sequence_length.reset();
  options.inference = Inference{.new_tokens = 2};
  try {
    const RunSpec run = resolve(model, options).run;
    static_cast<void>(run_symbolically(model, run, registry().device("h200-sxm")));
    return run;
  } catch (const Error&) {
    return std::nullopt;  // it does not generate, or not so
  }
}

/// Seconds that products of a phase take at least: their operands at the memory's rate, their FLOPs at the card's.
double least_seconds(const KernelList& kernels, Phase phase, const DeviceSpec& device) {
  double reading = 0, computing = 0;
  for (const Kernel& kernel : kernels) {
    if (kernel.phase != phase || kernel.operator_class != OperatorClass::kContraction) continue;
    const auto repeats = static_cast<double>(kernel.repeats);
    computing += kernel.flops / 2 / peak_flops(kernel, device) * repeats;  // half: of causal attention that is computed
    constexpr double kLeastBytes = 1e8;                                    // the card's cache may hold what is smaller
    if (kernel.bytes > kLeastBytes) reading += kernel.bytes / device.memory_bandwidth_bytes_per_second * repeats;
  }
  return std::max(reading, computing);
}

TEST(GenerationTimes, AreNotBelowWhatTheCardAllows) {
  const DeviceSpec device = registry().device("h200-sxm");
  int checked = 0;
  for (const auto& [type, model] : small_models()) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
      const std::optional<RunSpec> run = generating(model, precision);
      if (!run) continue;
      SCOPED_TRACE(model.name + (precision == Precision::kBf16 ? " bf16" : " fp32"));
      const Report report = estimate(model, *run, device);
      if (!report.time) continue;  // of a format whose kernels were not timed
      ASSERT_TRUE(report.time->generation);
      const GenerationTime& time = *report.time->generation;
      const KernelList kernels = run_symbolically(model, *run, device).kernels;
      EXPECT_GT(time.token_seconds, least_seconds(kernels, Phase::kDecode, device));
      EXPECT_GT(time.prefill_seconds, least_seconds(kernels, Phase::kForward, device));
      EXPECT_GT(time.prefill_seconds, 0.3 * time.token_seconds);
      EXPECT_LE(report.time->mfu, 1);
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace memcalc
