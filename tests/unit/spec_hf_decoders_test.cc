// config.json of decoders beyond LLaMA's relatives: defaults and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/families/apertus/spec.h"
#include "memcalc/families/bloom/spec.h"
#include "memcalc/families/cohere/spec.h"
#include "memcalc/families/deepseek/spec.h"
#include "memcalc/families/deepseek_v32/spec.h"
#include "memcalc/families/deepseek_v4/spec.h"
#include "memcalc/families/dots1/spec.h"
#include "memcalc/families/ernie4_5/spec.h"
#include "memcalc/families/exaone4/spec.h"
#include "memcalc/families/falcon/spec.h"
#include "memcalc/families/falcon_h1/spec.h"
#include "memcalc/families/gemma3n/spec.h"
#include "memcalc/families/glm/spec.h"
#include "memcalc/families/granite/spec.h"
#include "memcalc/families/hunyuan_v1_dense/spec.h"
#include "memcalc/families/internvl/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/llama4/spec.h"
#include "memcalc/families/ministral3/spec.h"
#include "memcalc/families/mllama/spec.h"
#include "memcalc/families/mpt/spec.h"
#include "memcalc/families/olmo/spec.h"
#include "memcalc/families/olmo2/spec.h"
#include "memcalc/families/seed_oss/spec.h"
#include "memcalc/families/smollm3/spec.h"
#include "memcalc/families/stablelm/spec.h"
#include "memcalc/families/starcoder2/spec.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/json_reader.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

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

std::string refusal_of(const std::string& text) {
  return error_text([&] { (void)read(text); });
}

TEST(HfDecoders, GraniteHasLlamasSizes) {
  const auto spec = spec_of<GraniteSpec>(R"({"model_type": "granite", "logits_scaling": 8.0})");
  EXPECT_EQ(spec.vocab_size, 32000);
  EXPECT_EQ(spec.intermediate_size, 11008);
  EXPECT_EQ(spec.num_key_value_heads, 32);
  EXPECT_EQ(spec.max_position_embeddings, 2048);
  EXPECT_FALSE(spec.attention_bias || spec.mlp_bias || spec.tie_word_embeddings);
  EXPECT_THAT(refusal_of(R"({"model_type": "granite", "hidden_act": "nonsense"})"), HasSubstr("hidden_act"));
}

TEST(HfDecoders, SmolLm3LeavesPositionsOutOfEveryFourthLayer) {
  const auto spec = spec_of<SmolLm3Spec>(R"({"model_type": "smollm3", "num_hidden_layers": 5})");
  EXPECT_EQ(spec.vocab_size, 128256);
  EXPECT_EQ(spec.num_key_value_heads, 4);
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_THAT(spec.rotates, ElementsAre(true, true, true, false, true));
  EXPECT_TRUE(spec.sliding_layers.empty());
  const auto sliding = spec_of<SmolLm3Spec>(R"({"model_type": "smollm3", "num_hidden_layers": 2,
      "no_rope_layers": [0, 1, 1], "use_sliding_window": true, "sliding_window": 128})");
  EXPECT_THAT(sliding.rotates, ElementsAre(false, true));
  EXPECT_THAT(sliding.sliding_layers, ElementsAre(true, false));
  EXPECT_EQ(refusal_of(R"({"model_type": "smollm3", "no_rope_layers": [1]})"),
            "config.json: /no_rope_layers: has 1 entries; accepted: one for each of num_hidden_layers (36)");
}

TEST(HfDecoders, SeedOssHasDropoutByDefault) {
  const auto spec = spec_of<SeedOssSpec>(R"({"model_type": "seed_oss"})");
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.num_attention_heads, 80);
  EXPECT_EQ(spec.attention_dropout, 0.1);
  EXPECT_EQ(spec.residual_dropout, 0.1);
  EXPECT_TRUE(spec.attention_bias);
  EXPECT_FALSE(spec.attention_out_bias);
  EXPECT_THAT(refusal_of(R"({"model_type": "seed_oss", "residual_dropout": 2})"),
              HasSubstr("found 2; accepted: a number from 0 to 1"));
}

TEST(HfDecoders, Olmo3SlidesInThreeLayersOfFour) {
  const auto spec = spec_of<Olmo2Spec>(R"({"model_type": "olmo3", "num_hidden_layers": 4})");
  EXPECT_THAT(spec.sliding_layers, ElementsAre(true, true, true, false));
  EXPECT_EQ(spec.sliding_window, 4096);
  EXPECT_FALSE(spec.yarn_positions);
  EXPECT_TRUE(spec_of<Olmo2Spec>(R"({"model_type": "olmo3", "rope_scaling": {"rope_type": "yarn", "factor": 8}})")
                  .yarn_positions);
  EXPECT_EQ(refusal_of(R"({"model_type": "olmo3", "sliding_window": null})"),
            "config.json: /sliding_window: null; accepted: a size, since a mask is made of it");
}

TEST(HfDecoders, OlmoIsNotClipped) {
  EXPECT_EQ(spec_of<OlmoSpec>(R"({"model_type": "olmo", "clip_qkv": null})").vocab_size, 50304);
  EXPECT_EQ(refusal_of(R"({"model_type": "olmo", "clip_qkv": 8.0})"),
            "config.json: /clip_qkv: clipping query, key and value is not modelled; accepted: null");
}

TEST(HfDecoders, Exaone4NeedsToKnowItsLayersWithoutAWindow) {
  const auto spec = spec_of<Exaone4Spec>(R"({"model_type": "exaone4", "num_hidden_layers": 4})");
  EXPECT_EQ(spec.vocab_size, 102400);
  EXPECT_EQ(spec.sliding_window, 4096);
  EXPECT_THAT(spec.sliding_layers, ElementsAre(true, true, true, false));
  EXPECT_EQ(refusal_of(R"({"model_type": "exaone4", "sliding_window": null})"),
            "config.json: /sliding_window: null; accepted with it: layer_types that are all full_attention");
}

TEST(HfDecoders, GlmRotatesHalfOfAHead) {
  for (const std::string type : {"glm", "glm4"}) {
    const auto spec = spec_of<GlmSpec>(R"({"model_type": ")" + type + R"("})");
    EXPECT_EQ(spec.head_dim, 128);
    EXPECT_EQ(spec.rotary_dim, 64);
    EXPECT_EQ(spec.num_key_value_heads, 2);
    EXPECT_TRUE(spec.attention_bias);
  }
  EXPECT_THAT(refusal_of(R"({"model_type": "glm4", "partial_rotary_factor": 0.01})"),
              HasSubstr("rotates 1 of 128 numbers of a head"));
}

TEST(HfDecoders, Ministral3ScalesItsQueries) {
  const auto spec = spec_of<Ministral3Spec>(R"({"model_type": "ministral3"})");
  EXPECT_EQ(spec.num_hidden_layers, 34);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_TRUE(spec.yarn_positions);
  EXPECT_FALSE(spec.sliding_window.has_value());
  EXPECT_EQ(refusal_of(R"({"model_type": "ministral3", "rope_parameters": {"rope_type": "yarn"}})"),
            "config.json: /rope_parameters: has no llama_4_scaling_beta; accepted: a number, which scales the queries");
}

TEST(HfDecoders, Gemma3nSaysOfEachLayerHowItGoes) {
  const auto spec = spec_of<Gemma3nSpec>(R"({"model_type": "gemma3n", "text_config": {"num_hidden_layers": 12,
      "num_kv_shared_layers": 4}})");
  EXPECT_EQ(spec.intermediate_sizes, std::vector<std::int64_t>(12, 16384));
  EXPECT_EQ(std::count(spec.sparse_layers.begin(), spec.sparse_layers.end(), true), 10);
  EXPECT_EQ(std::count(spec.sliding_layers.begin(), spec.sliding_layers.end(), false), 2);  // every fifth is global
  EXPECT_TRUE(spec.shares_keys(8));
  EXPECT_FALSE(spec.shares_keys(7));
  const auto few = spec_of<Gemma3nSpec>(R"({"model_type": "gemma3n_text", "num_hidden_layers": 2,
      "intermediate_size": [96, 128], "activation_sparsity_pattern": [0.95, 0.0]})");
  EXPECT_EQ(few.intermediate_size, 128);
  EXPECT_TRUE(few.sparse_layers[0] && !few.sparse_layers[1]);
  EXPECT_THAT(refusal_of(R"({"model_type": "gemma3n_text", "num_hidden_layers": 2, "intermediate_size": [96]})"),
              HasSubstr("has 1 numbers; accepted: one for each of num_hidden_layers (2)"));
  EXPECT_THAT(refusal_of(R"({"model_type": "gemma3n_text", "num_hidden_layers": 2, "num_kv_shared_layers": 1,
      "layer_types": ["sliding_attention", "full_attention"]})"),
              HasSubstr("leaves no layer of a type whose keys a later one shares"));
}

TEST(HfDecoders, InternVlJoinsPatchesOfATile) {
  const ModelSpec model = read(R"({"model_type": "internvl", "text_config": {"model_type": "qwen3"}})");
  const ImageTextSpec& spec = *image_text_of(model);
  EXPECT_EQ(spec.places(448), 256);
  EXPECT_EQ(spec.parts.as<InternVlParts>().merged_width(), 4096);
  EXPECT_THAT(refusal_of(R"({"model_type": "internvl", "text_config": {"model_type": "gpt_oss"}})"),
              HasSubstr("gpt_oss is not modelled here; accepted: llama, qwen2, qwen3, qwen3_moe"));
  EXPECT_THAT(refusal_of(R"({"model_type": "internvl", "downsample_ratio": 0.3})"),
              HasSubstr("does not join whole patches"));
  EXPECT_THAT(refusal_of(R"({"model_type": "internvl", "vision_feature_layer": -2})"),
              HasSubstr("states of other layers are not modelled"));
  EXPECT_THAT(refusal_of(R"({"model_type": "internvl", "vision_config": {"image_size": [448, 224]}})"),
              HasSubstr("is no square"));
}

TEST(HfDecoders, Mistral3ShowsImagesOnlyWhereARunHasThem) {
  ModelSpec model = read(R"({"model_type": "mistral3", "text_config": {}, "vision_config": {"patch_size": 14}})");
  EXPECT_FALSE(is_image_text(model));
  auto& spec = model.architecture.change<ImageTextSpec>();
  spec.images = 2;
  EXPECT_TRUE(is_image_text(model));
  EXPECT_EQ(spec.places(560), 2 * 400);
  EXPECT_THAT(refusal_of(R"({"model_type": "mistral3", "text_config": {}, "vision_config": {"model_type": "clip"}})"),
              HasSubstr("clip is not modelled; accepted: pixtral"));
}

TEST(HfDecoders, Mistral3WithoutATowerIsItsTextModel) {
  const ModelSpec small = read(R"({"model_type": "mistral3", "text_config": {"model_type": "mistral"}})");
  EXPECT_EQ(small.architecture.as<LlamaSpec>().intermediate_size, 14336);
  EXPECT_EQ(small.assumptions.back(),
            "mistral3 is its text model (text_config): no vision tower, no projector, no images");
  EXPECT_TRUE(read(R"({"model_type": "mistral3", "text_config": {"model_type": "ministral3"}})")
                  .architecture.is<Ministral3Spec>());
  EXPECT_THAT(refusal_of(R"({"model_type": "mistral3", "text_config": {"model_type": "llama"}})"),
              HasSubstr("llama is not modelled here; accepted: mistral, ministral3"));
  EXPECT_THAT(refusal_of(R"({"model_type": "mistral3"})"), HasSubstr("text_config"));
}

TEST(HfDecoders, HunyuanAndErnieHaveTheirOwnSizes) {
  const auto hunyuan = spec_of<HunyuanSpec>(R"({"model_type": "hunyuan_v1_dense"})");
  EXPECT_EQ(hunyuan.vocab_size, 290943);
  EXPECT_EQ(hunyuan.head_dim, 128);
  const auto ernie = spec_of<Ernie45Spec>(R"({"model_type": "ernie4_5", "attention_dropout": 0.5})");
  EXPECT_EQ(ernie.num_hidden_layers, 18);
  EXPECT_EQ(ernie.head_dim, 128);
  EXPECT_EQ(ernie.attention_dropout, 0);
  EXPECT_FALSE(ernie.use_bias);
  EXPECT_THAT(refusal_of(R"({"model_type": "ernie4_5", "num_hidden_layers": 0})"), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal_of(R"({"model_type": "hunyuan_v1_dense", "head_dim": 65})"), HasSubstr("gives a head of 65"));
}

TEST(HfDecoders, Starcoder2HasBiasesAndNoWindowByDefault) {
  const auto spec = spec_of<Starcoder2Spec>(R"({"model_type": "starcoder2"})");
  EXPECT_TRUE(spec.use_bias && spec.tie_word_embeddings);
  EXPECT_EQ(spec.hidden_act, "gelu_pytorch_tanh");
  EXPECT_FALSE(spec.sliding_window.has_value());
  EXPECT_EQ(spec_of<Starcoder2Spec>(R"({"model_type": "starcoder2", "sliding_window": 4096})").sliding_window, 4096);
  EXPECT_THAT(refusal_of(R"({"model_type": "starcoder2", "embedding_dropout": 3})"), HasSubstr("embedding_dropout"));
}

TEST(HfDecoders, StableLmRotatesAQuarterOfAHead) {
  const auto spec = spec_of<StableLmSpec>(R"({"model_type": "stablelm"})");
  EXPECT_EQ(spec.head_dim, 80);
  EXPECT_EQ(spec.rotary_dim, 20);
  EXPECT_FALSE(spec.use_qkv_bias || spec.use_parallel_residual);
  EXPECT_EQ(refusal_of(R"({"model_type": "stablelm", "qk_layernorm": true})"),
            "config.json: /qk_layernorm: true is not modelled for stablelm yet");
}

TEST(HfDecoders, CommandRHasLocalLayersFromR7bOn) {
  const auto first = spec_of<CohereSpec>(R"({"model_type": "cohere"})");
  EXPECT_EQ(first.num_key_value_heads, 64);
  EXPECT_TRUE(first.sliding_layers.empty());
  const auto second = spec_of<CohereSpec>(R"({"model_type": "cohere2", "num_hidden_layers": 4})");
  EXPECT_THAT(second.sliding_layers, ElementsAre(true, true, true, false));
  EXPECT_EQ(second.sliding_window, 4096);
  EXPECT_TRUE(spec_of<CohereSpec>(R"({"model_type": "cohere", "use_qk_norm": true})").use_qk_norm);
}

TEST(HfDecoders, ApertusHasXieluUnlessItSaysOtherwise) {
  const auto spec = spec_of<ApertusSpec>(R"({"model_type": "apertus"})");
  EXPECT_EQ(spec.vocab_size, 131072);
  EXPECT_EQ(spec.intermediate_size, 14336);
  EXPECT_EQ(spec.num_key_value_heads, 32);
  EXPECT_TRUE(spec.hidden_act.empty());
  EXPECT_EQ(spec_of<ApertusSpec>(R"({"model_type": "apertus", "hidden_act": "silu"})").hidden_act, "silu");
}

TEST(HfDecoders, FalconHasThreeKindsOfLayers) {
  const auto seven = spec_of<FalconSpec>(R"({"model_type": "falcon"})");
  EXPECT_EQ(seven.hidden_size, 4544);
  EXPECT_EQ(seven.head_dim(), 64);
  EXPECT_EQ(seven.kept_heads(), 1);
  EXPECT_EQ(seven.norms, FalconNorms::kShared);
  const auto forty = spec_of<FalconSpec>(R"({"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128,
      "num_kv_heads": 8, "new_decoder_architecture": true})");
  EXPECT_EQ(forty.norms, FalconNorms::kParallel);
  EXPECT_EQ(forty.kept_heads(), 128);
  const auto old = spec_of<FalconSpec>(R"({"model_type": "falcon", "n_embed": 2048, "num_attention_heads": 32,
      "alibi": true, "multi_query": false, "parallel_attn": false})");
  EXPECT_EQ(old.hidden_size, 2048);
  EXPECT_EQ(old.norms, FalconNorms::kSequential);
  EXPECT_EQ(old.kept_heads(), 32);
  EXPECT_EQ(refusal_of(R"({"model_type": "falcon", "num_ln_in_parallel_attn": 2})"),
            "config.json: /num_ln_in_parallel_attn: found 2; accepted: 1");
  EXPECT_THAT(refusal_of(R"({"model_type": "falcon", "new_decoder_architecture": true, "parallel_attn": false})"),
              HasSubstr("parallel_attn"));
  EXPECT_THAT(refusal_of(R"({"model_type": "falcon", "num_attention_heads": 70})"), HasSubstr("num_attention_heads"));
}

TEST(HfDecoders, BloomIsTinyByDefault) {
  const auto spec = spec_of<BloomSpec>(R"({"model_type": "bloom"})");
  EXPECT_EQ(spec.vocab_size, 250880);
  EXPECT_EQ(spec.hidden_size, 64);
  EXPECT_EQ(spec.n_layer, 2);
  EXPECT_EQ(spec_of<BloomSpec>(R"({"model_type": "bloom", "n_embed": 128, "num_hidden_layers": 3})").hidden_size, 128);
  EXPECT_THAT(refusal_of(R"({"model_type": "bloom", "slow_but_exact": true})"), HasSubstr("slow_but_exact"));
}

TEST(HfDecoders, MptHasItsDropoutInAttnConfig) {
  const auto spec = spec_of<MptSpec>(R"({"model_type": "mpt", "attn_config": {"attn_pdrop": 0.1, "clip_qkv": 8}})");
  EXPECT_EQ(spec.d_model, 2048);
  EXPECT_EQ(spec.max_seq_len, 2048);
  EXPECT_EQ(spec.attn_pdrop, 0.1);
  EXPECT_TRUE(spec.clips_qkv);
  EXPECT_EQ(refusal_of(R"({"model_type": "mpt", "attn_config": {"attn_pdrop": 2}})"),
            "config.json: /attn_config/attn_pdrop: found 2; accepted: a number from 0 to 1");
}

TEST(HfDecoders, UseCacheIsTheConfigurationsOrItsClasss) {
  EXPECT_TRUE(read(R"({"model_type": "bloom"})").use_cache);
  EXPECT_FALSE(read(R"({"model_type": "bloom", "use_cache": false})").use_cache);
  EXPECT_FALSE(read(R"({"model_type": "mpt"})").use_cache);
  EXPECT_TRUE(read(R"({"model_type": "mpt", "use_cache": true})").use_cache);
}

TEST(HfDecoders, Glm4MoeLiteIsDeepseekV3WithOneDenseLayer) {
  const auto spec = spec_of<DeepseekV3Spec>(R"({"model_type": "glm4_moe_lite"})");
  EXPECT_EQ(spec.latent.q_lora_rank, 768);
  EXPECT_EQ(spec.latent.v_head_dim, 256);
  EXPECT_EQ(spec.experts.count, 64);
  EXPECT_EQ(spec.first_k_dense_replace, 1);
  EXPECT_TRUE(spec.float32_correction);
  EXPECT_EQ(spec_of<DeepseekV3Spec>(R"({"model_type": "glm4_moe_lite", "num_hidden_layers": 3,
      "mlp_layer_types": ["dense", "dense", "sparse"]})")
                .first_k_dense_replace,
            2);
  EXPECT_THAT(refusal_of(R"({"model_type": "glm4_moe_lite", "num_hidden_layers": 2,
      "mlp_layer_types": ["sparse", "dense"]})"),
              HasSubstr("/mlp_layer_types: found another order"));
}

TEST(HfDecoders, YoutuIsDeepseekV3WithoutExperts) {
  const auto spec = spec_of<DeepseekV3Spec>(R"({"model_type": "youtu"})");
  EXPECT_GE(spec.first_k_dense_replace, spec.num_hidden_layers);
  EXPECT_EQ(spec.experts.count, 0);
  EXPECT_TRUE(spec.tie_word_embeddings && spec.rope_interleave);
}

TEST(HfDecoders, Dots1SaysHowManyExperts) {
  const std::string experts = R"("n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2)";
  const auto spec = spec_of<Dots1Spec>(R"({"model_type": "dots1", "sliding_window": null, )" + experts + "}");
  EXPECT_EQ(spec.experts.intermediate_size, 1408);
  EXPECT_TRUE(spec.sliding_layers.empty());
  const auto slides =
      spec_of<Dots1Spec>(R"({"model_type": "dots1", "num_hidden_layers": 3, "max_window_layers": 2, )" + experts + "}");
  EXPECT_THAT(slides.sliding_layers, ElementsAre(false, false, true));
  EXPECT_THAT(refusal_of(R"({"model_type": "dots1"})"), HasSubstr("num_experts_per_tok"));
}

TEST(HfDecoders, FalconH1HasAMixerAsWideAsItIsTold) {
  const auto spec = spec_of<FalconH1Spec>(R"({"model_type": "falcon_h1"})");
  EXPECT_EQ(spec.mamba.intermediate_size(), 1024);
  EXPECT_EQ(spec.mamba.head_dim, 8);
  EXPECT_FALSE(spec.mamba.has_norm || spec.mamba.output_bias);
  EXPECT_EQ(spec_of<FalconH1Spec>(R"({"model_type": "falcon_h1", "mamba_d_ssm": null})").mamba.intermediate_size(),
            8192);
  EXPECT_THAT(refusal_of(R"({"model_type": "falcon_h1", "mamba_rms_norm": true})"),
              HasSubstr("/mamba_rms_norm: true is not modelled for falcon_h1; accepted: false"));
}

TEST(HfDecoders, DeepseekV4SaysLayerByLayerWhichKeysItSees) {
  using enum CompressedKeys;
  const auto spec = [](const std::string& keys) {
    return spec_of<DeepseekV4Spec>(R"({"model_type": "deepseek_v4", "num_hidden_layers": 4)" + keys + "}");
  };
  EXPECT_THAT(spec("").layers, ElementsAre(kAll, kAll, kAll, kChosen));
  EXPECT_THAT(spec("").hashed_layers, ElementsAre(true, true, true, false));
  // The last ratio is that of the layer that predicts a further token.
  EXPECT_THAT(spec(R"(, "compress_ratios": [0, 4, 128, 4, 0])").layers, ElementsAre(kNone, kChosen, kAll, kChosen));
  EXPECT_EQ(spec(R"(, "compress_rates": {"heavily_compressed_attention": 64})").all_rate, 64);
  EXPECT_EQ(spec(R"(, "head_dim": 128, "qk_rope_head_dim": 32)").rotary_dim, 32);
  EXPECT_EQ(spec("").rotary_dim, 64);
  EXPECT_TRUE(spec(R"(, "rope_scaling": {"type": "yarn", "factor": 16})").yarn_positions);
  EXPECT_TRUE(spec(R"(, "rope_parameters": {"main": {}, "compress": {"rope_type": "yarn"}})").yarn_positions);
  EXPECT_THAT(refusal_of(R"({"model_type": "deepseek_v4", "num_hidden_layers": 2, "compress_ratios": [0]})"),
              HasSubstr("/compress_ratios: has 1 entries; accepted: one for each of num_hidden_layers (2)"));
  EXPECT_THAT(refusal_of(R"({"model_type": "deepseek_v4", "num_hidden_layers": 1, "layer_types": ["full_attention"]})"),
              HasSubstr("/layer_types: 'full_attention' is not modelled"));
}

TEST(HfDecoders, Glm5SharesWhatAnIndexerChose) {
  EXPECT_TRUE(spec_of<DeepseekV32Spec>(R"({"model_type": "deepseek_v32"})").shared_indexers.empty());
  const auto shared = [](const std::string& keys) {
    return spec_of<DeepseekV32Spec>(R"({"model_type": "glm_moe_dsa", "num_hidden_layers": 5, )" + keys + "}")
        .shared_indexers;
  };
  EXPECT_THAT(shared(R"("index_topk_pattern": null)"), ElementsAre(false, false, false, false, false));
  EXPECT_THAT(shared(R"("index_topk_pattern": "FFSSF")"), ElementsAre(false, false, true, true, false));
  EXPECT_THAT(shared(R"("index_topk_freq": 2)"), ElementsAre(false, false, true, false, true));
  EXPECT_THAT(refusal_of(R"({"model_type": "glm_moe_dsa", "num_hidden_layers": 2,
      "indexer_types": ["shared", "full"]})"),
              HasSubstr("/indexer_types: found 2; accepted: \"full\" or \"shared\" for each of 2 layers"));
  EXPECT_THAT(refusal_of(R"({"model_type": "deepseek_v32", "q_lora_rank": null})"), HasSubstr("/q_lora_rank: null"));
}

TEST(HfDecoders, Llama4SaysWhichLayersMixAndWhichRotate) {
  const auto spec = spec_of<Llama4TextSpec>(
      R"({"model_type": "llama4_text", "num_hidden_layers": 4, "interleave_moe_layer_step": 2})");
  EXPECT_THAT(spec.dense_layers, ElementsAre(true, false, true, false));
  EXPECT_THAT(spec.rotates, ElementsAre(true, true, true, false));
  EXPECT_EQ(spec.sliding_layers, spec.rotates);
  EXPECT_EQ(spec.sliding_window, 8192);
  const auto dense = spec_of<Llama4TextSpec>(
      R"({"model_type": "llama4_text", "num_hidden_layers": 2, "moe_layers": [], "no_rope_layers": [1, 1]})");
  EXPECT_THAT(dense.dense_layers, ElementsAre(true, true));
  EXPECT_EQ(dense.experts.count, 0);
  EXPECT_THAT(refusal_of(R"({"model_type": "llama4_text", "num_hidden_layers": 2, "no_rope_layers": [1]})"),
              HasSubstr("/no_rope_layers: found 1 numbers; accepted: 2"));
}

TEST(HfDecoders, MllamaAndLlama4AreReadAsTheirTextModels) {
  const ModelSpec model = read(R"({"model_type": "mllama", "text_config": {"num_hidden_layers": 5}})");
  EXPECT_THAT(model.architecture.as<MllamaTextSpec>().looks_at_images, ElementsAre(false, false, false, true, false));
  EXPECT_THAT(model.assumptions, ::testing::Contains(HasSubstr("mllama sees images too")));
  EXPECT_THAT(refusal_of(R"({"model_type": "mllama"})"), HasSubstr("/text_config: missing"));
  const ModelSpec scout = read(R"({"model_type": "llama4", "text_config": {"num_hidden_layers": 4}})");
  EXPECT_EQ(scout.architecture.as<Llama4TextSpec>().num_hidden_layers, 4);
  EXPECT_THAT(scout.assumptions, ::testing::Contains(HasSubstr("llama4 sees images too")));
  EXPECT_EQ(read(R"({"model_type": "llama4"})").architecture.as<Llama4TextSpec>().num_hidden_layers,
            48);  // its default
}

}  // namespace
}  // namespace memcalc
