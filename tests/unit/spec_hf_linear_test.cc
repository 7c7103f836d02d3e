// spec/linear_attention_config.cc and its families: config.json of models with linear attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "memcalc/families/granitemoehybrid/spec.h"
#include "memcalc/families/lfm2/spec.h"
#include "memcalc/families/nemotron_h/spec.h"
#include "memcalc/families/qwen3_next/spec.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec read(const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, "config.json");
  return model_from_hf_config(document.root(), "test");
}

template <typename Spec>
Spec spec_of(const std::string& text) {
  return read(text).architecture.as<Spec>();
}

TEST(HfLinear, EveryFourthLayerOfQwen3NextHasAttention) {
  const auto spec = spec_of<Qwen3NextSpec>(R"({"model_type": "qwen3_next"})");
  EXPECT_EQ(std::count(spec.linear_layers.begin(), spec.linear_layers.end(), true), 36);
  EXPECT_FALSE(spec.linear_layers[3]);
  EXPECT_EQ(spec.rotary_dim, 64);  // a quarter of head_dim
  EXPECT_EQ(spec.delta.key_dim(), 2048);
  EXPECT_EQ(spec.delta.value_dim(), 4096);
  EXPECT_EQ(spec.experts.count, 512);
  EXPECT_FALSE(spec.mrope_section.has_value());
}

TEST(HfLinear, LayerTypesGoBeforeTheInterval) {
  const auto spec = spec_of<Qwen35Spec>(R"({"model_type": "qwen3_5_text", "num_hidden_layers": 3,
    "layer_types": ["full_attention", "linear_attention", "mamba"]})");
  EXPECT_THAT(spec.linear_layers, ElementsAre(false, true, true));
  EXPECT_TRUE(spec.delta.projects_separately);
}

TEST(HfLinear, Qwen35IsItsTextModel) {
  const ModelSpec model = read(R"({"model_type": "qwen3_5", "text_config": {"hidden_size": 1024}})");
  EXPECT_EQ(model.architecture.as<Qwen35Spec>().hidden_size, 1024);
  EXPECT_THAT(model.assumptions, Contains(HasSubstr("no vision tower")));
  EXPECT_THAT(model.assumptions, Contains(HasSubstr("without the packages flash-linear-attention")));
}

TEST(HfLinear, Lfm2sWidthIsTwoThirdsUpToAMultiple) {
  EXPECT_EQ(spec_of<Lfm2Spec>(R"({"model_type": "lfm2", "block_ff_dim": 6656})").intermediate_size, 4608);
  EXPECT_EQ(spec_of<Lfm2Spec>(R"({"model_type": "lfm2", "block_ff_dim": 10752,
    "block_auto_adjust_ff_dim": false})")
                .intermediate_size,
            10752);
  EXPECT_THAT(
      spec_of<Lfm2Spec>(R"({"model_type": "lfm2", "num_hidden_layers": 3, "full_attn_idxs": [1]})").linear_layers,
      ElementsAre(true, false, true));
}

TEST(HfLinear, NemotronHsPatternNamesItsLayers) {
  using Mixer = NemotronHSpec::Mixer;
  const auto spec = spec_of<NemotronHSpec>(R"({"model_type": "nemotron_h", "num_hidden_layers": 52,
    "hybrid_override_pattern": "M-*", "mamba_num_heads": 8, "mamba_head_dim": 16})");
  EXPECT_THAT(spec.layers, ElementsAre(Mixer::kMamba, Mixer::kMlp, Mixer::kAttention));
  EXPECT_EQ(spec.num_hidden_layers, 3);
  EXPECT_EQ(spec.mamba.intermediate_size(), 128);
  EXPECT_THAT(spec_of<NemotronHSpec>(R"({"model_type": "nemotron_h", "hybrid_override_pattern": "ME"})").layers,
              ElementsAre(Mixer::kMamba, Mixer::kExperts));
}

TEST(HfLinear, Granite4IsDenseWithoutExperts) {
  const auto spec = spec_of<GraniteHybridSpec>(R"({"model_type": "granitemoehybrid", "num_local_experts": 0,
    "hidden_size": 64, "mamba_n_heads": 8})");
  EXPECT_EQ(spec.mamba.head_dim, 16);
  EXPECT_FALSE(spec.has_positions);
  EXPECT_EQ(spec_of<GraniteMoeHybridSpec>(R"({"model_type": "granitemoehybrid"})").experts.count, 8);
}

struct Wrong {
  const char* name;
  const char* text;
  const char* message;
};

class WrongLinear : public testing::TestWithParam<Wrong> {};

TEST_P(WrongLinear, GiveOneClearLine) {
  EXPECT_EQ(error_text([] { static_cast<void>(read(GetParam().text)); }), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Configs, WrongLinear,
    testing::Values(
        Wrong{"kind", R"({"model_type": "qwen3_next", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
              "config.json: /layer_types: 'sliding_attention' is not modelled; accepted: full_attention, "
              "linear_attention"},
        Wrong{"count", R"({"model_type": "lfm2", "layer_types": ["conv"]})",
              "config.json: /layer_types: has 1 entries; accepted: one for each of num_hidden_layers (32)"},
        Wrong{"letter", R"({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"})",
              "config.json: /hybrid_override_pattern: 'X' is no kind of layer; accepted: M, *, - and E"},
        Wrong{"value_heads", R"({"model_type": "qwen3_next", "linear_num_key_heads": 3})",
              "config.json: /linear_num_value_heads: found 32; accepted: a multiple of linear_num_key_heads (3)"}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace memcalc
