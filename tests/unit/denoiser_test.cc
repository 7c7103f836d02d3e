// Denoising networks of diffusion pipelines: what diffusers' LoRA scripts make of a run, regions that are checkpointed,
// models of the pipeline that stay on the card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using test::registry;

RunRequest lora(const std::string& model) {
  RunRequest request;
  request.model = model;
  request.run.lora_rank = 16;
  request.run.image_size = 512;
  return request;
}

RunSpec resolved(const RunRequest& request) { return resolve_request(model_of(request, registry()), request).run; }

Bytes weights(const Trace& trace) {
  return std::accumulate(trace.blocks.begin(), trace.blocks.end(), Bytes{0}, [](Bytes sum, const Block& each) {
    return each.category == Category::kWeights ? sum + each.requested : sum;
  });
}

Trace traced(const ModelSpec& model, const RunRequest& request) {
  return run_symbolically(model, resolve_request(model, request).run, registry().device("h100-sxm")).trace;
}

TEST(Denoiser, RunsAsTheScriptsDo) {
  const RunSpec run = resolved(lora("sdxl"));
  EXPECT_EQ(run.precision, Precision::kAmpBf16);
  EXPECT_EQ(run.weights_dtype, DType::kBFloat16);
  EXPECT_EQ(run.training().loop, Loop::kBare);
  EXPECT_EQ(run.training().max_grad_norm, 1.0);
  ASSERT_TRUE(run.fine_tuning.lora.has_value());
  EXPECT_TRUE(run.fine_tuning.lora->in_base_dtype);
  EXPECT_THAT(run.fine_tuning.lora->targets, ElementsAre("to_k", "to_q", "to_v", "to_out.0"));
}

TEST(Denoiser, CastsAdaptersToFloat32UnderTheLossScaler) {
  RunRequest request = lora("sdxl");
  request.run.precision = Precision::kAmpFp16;
  const RunSpec run = resolved(request);
  EXPECT_EQ(run.weights_dtype, DType::kFloat16);
  EXPECT_FALSE(run.fine_tuning.lora->in_base_dtype);
}

TEST(Denoiser, IsFoundByItsPipelinesId) {
  EXPECT_EQ(registry().model("black-forest-labs/FLUX.1-dev").name, "flux.1-dev");
  EXPECT_EQ(registry().model("stabilityai/stable-diffusion-xl-base-1.0").name, "sdxl");
}

// diffusers packs every linear layer (bnb_quantizer.py); peft's prepare_model_for_kbit_training makes float32 of what
// is left, not of latents and prompts.
TEST(Denoiser, PacksItsLastLayerAndKeepsItsInputs) {
  RunRequest request = lora("flux.1-dev");
  request.run.quantization = Quantization::kNf4;
  request.run.lora_rank = 5;  // of adapters no matrix is as large as what is looked for
  const ModelSpec model = model_of(request, registry());
  const Trace trace = traced(model, request);
  const auto asks_for = [&](Bytes bytes, Category category) {
    return std::any_of(trace.blocks.begin(), trace.blocks.end(),
                       [&](const Block& each) { return each.requested == bytes && each.category == category; });
  };
  constexpr Bytes kPrompt = 512 * 4096, kLastWeight = 3072 * 64;
  EXPECT_TRUE(asks_for(2 * kPrompt, Category::kInputs));
  EXPECT_FALSE(asks_for(4 * kPrompt, Category::kInputs));
  const auto packed = std::count_if(trace.blocks.begin(), trace.blocks.end(), [&](const Block& each) {
    return each.requested == kLastWeight / 2 && each.category == Category::kWeights;
  });
  EXPECT_EQ(packed, 2) << "of the first layer and the last";
}

/// The regions of a UNet, which its class checkpoints, are no layers: every second one cannot be chosen.
TEST(Denoiser, ChecksItsOwnRegions) {
  RunRequest request = lora("sdxl");
  const ModelSpec model = model_of(request, registry());
  request.run.checkpointing = Checkpointing::kFull;
  EXPECT_FALSE(traced(model, request).events.empty());
  request.run.checkpoint_every = 2;
  EXPECT_THAT(error_text([&] { (void)traced(model, request); }), HasSubstr("accepted: --checkpointing none, full"));
}

// H200, torch 2.11, 2026-11-29: gradients were wrong, NaN, or the step stopped.
TEST(Denoiser, SaysWhereCudnnsAttentionIsWrongInBackward) {
  const auto limits = [](const std::string& model, const std::string& card) {
    const RunRequest request = lora(model);
    const ModelSpec spec = model_of(request, registry());
    return run_symbolically(spec, resolve_request(spec, request).run, registry().device(card)).not_modelled;
  };
  for (const char* model : {"flux.1-dev", "flux.2-dev"})
    EXPECT_THAT(limits(model, "h200-sxm"), Contains(HasSubstr("enable_cudnn_sdp(False)"))) << model;
  EXPECT_THAT(limits("flux.1-dev", "rtx-4090"), Not(Contains(HasSubstr("enable_cudnn_sdp"))));
  EXPECT_THAT(limits("sd3-medium", "h200-sxm"), Not(Contains(HasSubstr("enable_cudnn_sdp"))));
}

TEST(Denoiser, HoldsWhatStaysOnTheCardBesideIt) {
  const RunRequest request = lora("sdxl");
  const ModelSpec model = model_of(request, registry());
  auto program = std::make_shared<Program>(*model.architecture.as<ProgramSpec>().program);
  ASSERT_EQ(program->parts.size(), 3U);
  for (PipelinePart& each : program->parts) each.is_resident = true;
  ModelSpec with_all = model;
  with_all.architecture = ProgramSpec{std::move(program)};
  // AutoencoderKL in float32, two text models of CLIP in bfloat16.
  const Bytes beside = 83'653'863 * 4 + (123'060'480 + 694'659'840) * 2;
  EXPECT_NEAR(static_cast<double>(weights(traced(with_all, request)) - weights(traced(model, request))),
              static_cast<double>(beside), 1e6);
}

/// Parts as their scripts leave them on the card, in the network's 16 bits: an autoencoder alone, or with CLIP's text
/// model.
TEST(Denoiser, HoldsThePartsOfItsPipeline) {
  const struct {
    const char* name;
    Bytes beside;
  } cases[] = {{"sd-1.5", 2 * (83'653'863 + 123'060'480)},
               {"z-image-turbo", 2 * 83'819'683},
               {"qwen-image", 2 * 126'892'531},
               {"flux.2-dev", 2 * 84'046'115}};
  for (const auto& each : cases) {
    const auto weights_of = [](const std::string& name) {
      const RunRequest request = lora(name);
      return static_cast<double>(weights(traced(model_of(request, registry()), request)));
    };
    EXPECT_NEAR(weights_of(std::string(each.name) + "-pipeline") - weights_of(each.name),
                static_cast<double>(each.beside), 1e6)
        << each.name;
  }
}

}  // namespace
}  // namespace memcalc
