// report/weights_comparison, models/checkpoint_names and report/render_weights: weights on disk against a model.
#include "memcalc/report/weights_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "memcalc/models/checkpoint_names.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/report/render_weights.h"

namespace memcalc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Dims = std::vector<std::int64_t>;
using Named = std::vector<std::pair<std::string, Dims>>;

std::int64_t product(const Dims& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Weights weights_of(const Named& tensors) {
  Weights weights{.path = "w.safetensors", .files = {"w.safetensors"}};
  for (const auto& [name, shape] : tensors) {
    const std::int64_t elements = product(shape);
    weights.tensors.push_back({name, {"F32", 32, DType::kFloat32}, shape, elements, 4 * elements});
    weights.parameters += elements;
    weights.bytes += 4 * elements;
  }
  return weights;
}

WeightsComparison compare(const Named& on_disk, const Named& model, std::string_view model_type = "bert") {
  std::vector<ParameterShape> parameters;
  std::int64_t total = 0;
  for (const auto& [name, shape] : model) {
    parameters.push_back({name, shape, product(shape)});
    total += product(shape);
  }
  const WeightsComparison result = compare_weights(weights_of(on_disk), model_type, parameters);
  // Every parameter of the model is accounted for.
  EXPECT_EQ(result.parameters - result.copies.parameters - result.buffers.parameters - result.unexpected.parameters +
                result.missing.parameters + result.reshaped_difference,
            total);
  return result;
}

const Named kModel = {{"bert.embeddings.word_embeddings.weight", {10, 4}},
                      {"bert.embeddings.LayerNorm.weight", {4}},
                      {"bert.embeddings.LayerNorm.bias", {4}},
                      {"classifier.weight", {2, 4}}};

TEST(WeightsComparison, TheSameNamesAgree) {
  const WeightsComparison result = compare(kModel, kModel);
  EXPECT_TRUE(result.agrees());
  EXPECT_EQ(result.tensors, 4);
  EXPECT_EQ(result.parameters, 56);
  EXPECT_EQ(result.bytes, 224);
  EXPECT_THAT(weights_notes(result), ElementsAre("they hold every parameter of the model, in its shape"));
}

TEST(WeightsComparison, ABaseModelHasNoPrefixAndNoHead) {
  const WeightsComparison result = compare({{"embeddings.word_embeddings.weight", {10, 4}},
                                            {"embeddings.LayerNorm.gamma", {4}},
                                            {"embeddings.LayerNorm.beta", {4}},
                                            {"pooler.dense.weight", {4, 4}}},
                                           kModel);
  EXPECT_THAT(result.missing.names, ElementsAre("classifier.weight"));
  EXPECT_THAT(result.unexpected.names, ElementsAre("pooler.dense.weight"));
  EXPECT_THAT(weights_notes(result),
              ElementsAre("1 tensor of the model is not there and starts anew: classifier.weight (8 parameters)",
                          "1 tensor there is not of the model and is not loaded: pooler.dense.weight (16 parameters)"));
}

TEST(WeightsComparison, ATiedHeadMayBeThereOrNot) {
  const Named model = {{"model.embed_tokens.weight", {10, 4}}, {"model.norm.weight", {4}}};
  EXPECT_TRUE(compare(model, model, "llama").agrees());
  Named with_head = model;
  with_head.push_back({"lm_head.weight", {10, 4}});
  const WeightsComparison both = compare(with_head, model, "llama");
  EXPECT_TRUE(both.agrees());
  EXPECT_THAT(both.copies.names, ElementsAre("lm_head.weight"));
  EXPECT_EQ(both.copies.parameters, 40);
  EXPECT_EQ(both.parameters, 84);
  // Saved under the name of the head alone.
  const WeightsComparison head_alone = compare({{"model.norm.weight", {4}}, {"lm_head.weight", {10, 4}}}, model);
  EXPECT_TRUE(head_alone.agrees());
  EXPECT_EQ(head_alone.copies.tensors, 0);
  // A head of another vocabulary is no copy.
  with_head.back().second = {12, 4};
  EXPECT_THAT(compare(with_head, model).unexpected.names, ElementsAre("lm_head.weight"));
  // Not tied: the model has the head itself, and misses it.
  Named untied = model;
  untied.push_back({"lm_head.weight", {10, 4}});
  EXPECT_THAT(compare(model, untied).missing.names, ElementsAre("lm_head.weight"));
}

TEST(WeightsComparison, BuffersAreNoParameters) {
  const Named model = {{"transformer.wte.weight", {10, 4}}, {"transformer.h.0.attn.c_attn.bias", {12}}};
  const WeightsComparison result = compare({{"wte.weight", {10, 4}},
                                            {"h.0.attn.c_attn.bias", {12}},
                                            {"h.0.attn.bias", {1, 1, 8, 8}},
                                            {"h.0.attn.masked_bias", {}}},
                                           model, "gpt2");
  EXPECT_TRUE(result.agrees());
  EXPECT_EQ(result.buffers.tensors, 2);
  EXPECT_EQ(result.buffers.parameters, 65);
}

TEST(WeightsComparison, OtherShapesAreTold) {
  Named on_disk = kModel;
  on_disk[0].second = {12, 4};
  const WeightsComparison result = compare(on_disk, kModel);
  EXPECT_FALSE(result.agrees());
  EXPECT_EQ(result.reshaped_difference, -8);
  EXPECT_THAT(weights_notes(result),
              ElementsAre("1 tensor there has another shape than config.json says, which is estimated: "
                          "bert.embeddings.word_embeddings.weight [12, 4], in the model [10, 4] (48 parameters)"));
}

TEST(WeightsComparison, ExpertsAreStacked) {
  const Named model = {{"model.layers.0.mlp.gate.weight", {2, 4}},
                       {"model.layers.0.mlp.experts.gate_up_proj", {2, 6, 4}},
                       {"model.layers.0.mlp.experts.down_proj", {2, 4, 3}}};
  Named qwen = {{"model.layers.0.mlp.gate.weight", {2, 4}}};
  Named mixtral = {{"model.layers.0.block_sparse_moe.gate.weight", {2, 4}}};
  for (const char* expert : {"0", "1"}) {
    const std::string name = "model.layers.0.mlp.experts." + std::string(expert);
    qwen.insert(qwen.end(), {{name + ".gate_proj.weight", {3, 4}},
                             {name + ".up_proj.weight", {3, 4}},
                             {name + ".down_proj.weight", {4, 3}}});
    const std::string old = "model.layers.0.block_sparse_moe.experts." + std::string(expert);
    mixtral.insert(mixtral.end(),
                   {{old + ".w1.weight", {3, 4}}, {old + ".w3.weight", {3, 4}}, {old + ".w2.weight", {4, 3}}});
  }
  EXPECT_TRUE(compare(qwen, model, "qwen3_moe").agrees());
  EXPECT_TRUE(compare(mixtral, model, "mixtral").agrees());
  qwen.pop_back();
  EXPECT_EQ(compare(qwen, model, "qwen3_moe").reshaped.tensors, 1);
}

TEST(WeightsComparison, NamesInListsAreBoundedAndFitForALine) {
  Named many;
  for (int i = 0; i < 100; ++i) many.push_back({"x" + std::to_string(i) + "\x1b\n", {1}});
  const WeightsComparison result = compare(many, kModel);
  EXPECT_EQ(result.unexpected.tensors, 100);
  EXPECT_EQ(result.unexpected.names.size(), kNamedTensors);
  EXPECT_THAT(weights_notes(result).at(1), HasSubstr("x7\\x1b\\n and 92 more (100 parameters)"));
}

TEST(WeightsComparison, NothingOnDiskMissesAll) {
  EXPECT_EQ(compare({}, kModel).missing.tensors, 4);
  EXPECT_EQ(compare(kModel, {}).unexpected.tensors, 4);
}

TEST(CheckpointNames, FollowConversionMapping) {
  const auto name = [](const char* type, const char* tensor) { return parameter_name_of(type, tensor); };
  EXPECT_EQ(name("vit", "vit.encoder.layer.0.attention.attention.query.weight"),
            "vit.layers.0.attention.q_proj.weight");
  EXPECT_EQ(name("deit", "encoder.layer.11.attention.output.dense.bias"), "layers.11.attention.o_proj.bias");
  EXPECT_EQ(name("vit", "vit.encoder.layer.0.intermediate.dense.bias"), "vit.layers.0.mlp.fc1.bias");
  EXPECT_EQ(name("vit", "vit.encoder.layer.0.output.dense.weight"), "vit.layers.0.mlp.fc2.weight");
  EXPECT_EQ(name("bert", "bert.encoder.layer.0.output.dense.weight"), "bert.encoder.layer.0.output.dense.weight");
  EXPECT_EQ(name("gpt_neox", "embed_out.weight"), "lm_head.weight");
  EXPECT_EQ(name("qwen3_moe", "model.layers.7.mlp.experts.127.down_proj.weight"),
            "model.layers.7.mlp.experts.down_proj");
  EXPECT_EQ(name("qwen3_moe", "model.layers.7.mlp.experts.x"), "model.layers.7.mlp.experts.x");
  EXPECT_EQ(name("qwen3_moe", "a.experts.127"), "a.experts.127");
}

TEST(RenderWeights, OneRowAType) {
  Weights weights = weights_of({{"a", {1024, 1024}}, {"b", {3}}});
  weights.tensors[1].type = {"BF16", 16, DType::kBFloat16};
  weights.tensors[1].bytes = 6;
  weights.bytes -= 6;
  EXPECT_EQ(render(weights, Format::kText),
            "dtype  tensors  parameters     bytes\n"
            "F32          1   1,048,576  4.00 MiB\n"
            "BF16         1           3       6 B\n"
            "total        2   1,048,579  4.00 MiB\n");
  EXPECT_EQ(render(weights, Format::kCsv),
            "dtype,tensors,parameters,bytes\nF32,1,1048576,4194304\nBF16,1,3,6\ntotal,2,1048579,4194310\n");
  EXPECT_THAT(render(weights, Format::kMarkdown), HasSubstr("| BF16 | 1 | 3 | 6 B |"));
  EXPECT_THAT(render(weights, Format::kJson), HasSubstr("\"parameters\": 1048579"));
}

}  // namespace
}  // namespace memcalc
