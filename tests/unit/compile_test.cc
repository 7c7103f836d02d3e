// torch.compile: the smallest cut, what the partitioner keeps, and whole models against sums by hand. Real runs:
// rows_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/train/compile/added_products.h"
#include "memcalc/train/compile/fusion.h"
#include "memcalc/train/compile/min_cut.h"
#include "memcalc/train/compile/partition.h"
#include "memcalc/train/compile/peak_order.h"
#include "memcalc/train/compile/reduction_splits.h"
#include "memcalc/train/compile/rules.h"
#include "memcalc/train/compile/schedule.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using compile::GraphNode;
using compile::JointGraph;
using compile::Network;
using compile::NodeIndex;
using compile::NodeKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Operator kOp{"op"};
constexpr std::int64_t kMultiprocessors = 132;

TEST(CompileProducts, OfSixteenBitsArePaddedWhereRowsAreNotAligned) {
  const std::int64_t half = compile::padding_multiple(DType::kBFloat16, false);
  EXPECT_TRUE(compile::is_padded(half, 2560, 1024, 50257));
  EXPECT_FALSE(compile::is_padded(half, 2560, 1024, 50264));
  EXPECT_FALSE(compile::is_padded(half, 8, 64, 63));  // its bytes are the limit
  EXPECT_FALSE(compile::is_padded(half, 51865, 14000, 512, true)) << "as long to turn the gradient over";
  EXPECT_TRUE(compile::is_padded(half, 50257, 5760, 1024, true));
  EXPECT_TRUE(compile::is_padded(half, 50257, 8192, 768, true));
  EXPECT_FALSE(compile::is_padded(half, 50257, 11200, 768, true)) << "a larger operand takes longer";
  EXPECT_FALSE(compile::is_padded(half, 30522, 5760, 1024, true)) << "rows of an even number";
  EXPECT_FALSE(compile::is_padded(half, 768, 14001, 50256, true)) << "its rows are aligned, its length is not";
  EXPECT_FALSE(compile::is_padded(half, 6301, 768, 3072));
  EXPECT_FALSE(compile::is_padded(half, 1024, 768, 30522)) << "few tokens";
  EXPECT_TRUE(compile::is_padded(half, 2048, 768, 30522));
  EXPECT_FALSE(compile::is_padded(half, 256, 768, 50257));
  EXPECT_TRUE(compile::is_padded(half, 576, 768, 50257));
}

TEST(CompileProducts, OfFloat32ArePaddedInTf32Alone) {
  const std::int64_t tf32 = compile::padding_multiple(DType::kFloat32, true);
  EXPECT_TRUE(compile::is_padded(tf32, 11200, 768, 30522));
  EXPECT_FALSE(compile::is_padded(tf32, 11200, 768, 30524));
  EXPECT_TRUE(compile::is_padded(tf32, 30522, 1792, 1024, true));
  EXPECT_FALSE(compile::is_padded(tf32, 30522, 11200, 768, true)) << "as long to turn the gradient over";
  const std::int64_t float32 = compile::padding_multiple(DType::kFloat32, false);
  EXPECT_FALSE(compile::is_padded(float32, 2560, 1024, 50257));
}

// The Trainer leaves torch's defaults: convolutions in TF32, products in float32, which are not padded.
TEST(CompileProducts, OfTheTrainerAreInFloat32) {
  const ModelSpec model = registry().model("bert-base");
  const auto run_in = [&](Precision precision) {
    RunOptions options;
    options.batch_size = 16;
    options.task = Task::kMaskedLm;
    options.precision = precision;
    options.loop = Loop::kTrainer;
    options.compile = true;
    const SymbolicRun ran = run_symbolically(model, resolve(model, options).run, registry().device("h200-sxm"));
    std::int64_t padded = 0;
    for (const Kernel& kernel : ran.kernels) {
      const auto* product = kernel.as<work::Product>();
      padded += product != nullptr && std::max({product->m, product->n, product->k}) == 30524 ? 1 : 0;
    }
    return padded;
  };
  EXPECT_EQ(run_in(Precision::kFp32), 0);
  EXPECT_GT(run_in(Precision::kTf32), 0);
}

TEST(MinCut, TakesTheSmallestEdgesAndOfEqualOnesThoseNearestToTheSink) {
  Network network(4);  // source, a, b, sink
  network.connect(0, 1, 7);
  network.connect(1, 2, 3);
  network.connect(2, 3, 3);
  EXPECT_THAT(network.sink_side(0, 3), ElementsAre(false, false, false, true));
  Network wide(4);
  wide.connect(0, 1, 2);
  wide.connect(0, 2, 2);
  wide.connect(1, 3, 9);
  wide.connect(2, 3, 1);
  EXPECT_THAT(wide.sink_side(0, 3), ElementsAre(false, true, false, true));
}

/// A graph by hand: y = w2 f(w1 x), with a pointwise f whose derivative reads its input.
struct TwoProducts {
  JointGraph graph;
  NodeIndex w1, w2, x, h, f, y;

  explicit TwoProducts(Bytes hidden_bytes) {
    w1 = graph.add({.kind = NodeKind::kParameter, .bytes = 64, .op = &kOp}, true);
    w2 = graph.add({.kind = NodeKind::kParameter, .bytes = 64, .op = &kOp}, true);
    x = graph.add({.kind = NodeKind::kInput, .bytes = 100, .op = &kOp}, true);
    h = graph.add({.kind = NodeKind::kExtern, .bytes = hidden_bytes, .op = &kOp, .inputs = {x, w1}}, true);
    f = graph.add(
        {.kind = NodeKind::kPointwise, .recomputable = true, .bytes = hidden_bytes, .op = &kOp, .inputs = {h}});
    y = graph.add({.kind = NodeKind::kExtern, .bytes = 8, .op = &kOp, .inputs = {f, w2}}, true);
    graph.outputs = {y};
    const NodeIndex tangent =
        graph.add({.kind = NodeKind::kInput, .after_tangents = true, .bytes = 8, .op = &kOp}, true);
    graph.tangents = {tangent};
    const NodeIndex df =
        graph.add({.kind = NodeKind::kExtern, .bytes = hidden_bytes, .op = &kOp, .inputs = {tangent, w2}}, true);
    const NodeIndex dh = graph.add(
        {.kind = NodeKind::kPointwise, .recomputable = true, .bytes = hidden_bytes, .op = &kOp, .inputs = {df, h}});
    graph.gradients = {
        {nullptr, graph.add({.kind = NodeKind::kExtern, .bytes = 64, .op = &kOp, .inputs = {dh, x}}, true)}};
  }
};

TEST(Partition, KeepsWhatCannotBeComputedAgain) {
  const TwoProducts example(400);
  // The product h is read by the derivative of f; f itself is not needed, since w2 gets no gradient here.
  EXPECT_THAT(compile::partition(example.graph), ElementsAre(example.w2, example.x, example.h));
}

TEST(Partition, KeepsAnActivationThatAProductOfBackwardReads) {
  TwoProducts example(400);
  JointGraph& graph = example.graph;
  const NodeIndex dw2 =
      graph.add({.kind = NodeKind::kExtern, .bytes = 64, .op = &kOp, .inputs = {graph.tangents[0], example.f}}, true);
  graph.gradients.emplace_back(nullptr, dw2);
  EXPECT_THAT(compile::partition(graph), Contains(example.f)) << "it would have to be written in backward again";
}

TEST(Schedule, InlinesPointwiseOperatorsAndFreesAtTheLastRead) {
  const TwoProducts example(400);
  const auto saved = compile::partition(example.graph);
  std::vector<NodeIndex> results{example.y};
  results.insert(results.end(), saved.begin(), saved.end());
  const auto forward = compile::make_schedule(example.graph, results, {}, false);
  ASSERT_EQ(forward.launches.size(), 3U);
  EXPECT_EQ(forward.launches[0].node, example.h);
  EXPECT_EQ(forward.launches[1].node, example.f) << "a product reads it, so it is written";
  EXPECT_THAT(forward.launches[2].dead_after, ElementsAre(example.f));
}

// A weight of 64 B that is used twice, of whose gradients the first is a product.
// torch/_inductor/memory.py, topological_sort_lpmf: the gradient of a weight comes before that of what enters the
// layer, because the activation dies behind it.
TEST(PeakOrder, WhatLeavesLeastBehindComesFirst) {
  using compile::PlannedBuffer, compile::PlannedKernel;
  constexpr std::int32_t kGradient = 0, kActivation = 1, kOfInput = 2, kOfWeight = 3;
  const std::vector<PlannedBuffer> buffers{{.bytes = 50},
                                           {.bytes = 100},
                                           {.bytes = 100, .writer = 0, .is_result = true},
                                           {.bytes = 10, .writer = 1, .is_result = true}};
  const std::vector<PlannedKernel> kernels{{.reads = {kGradient}, .writes = {kOfInput}},
                                           {.reads = {kGradient, kActivation}, .writes = {kOfWeight}}};
  EXPECT_THAT(compile::order_for_peak_memory(kernels, buffers), ElementsAre(1, 0));
  // An order that needs no more stays.
  const std::vector<PlannedBuffer> alike{
      {.bytes = 50}, {.bytes = 8, .writer = 0, .is_result = true}, {.bytes = 8, .writer = 1, .is_result = true}};
  const std::vector<PlannedKernel> two{{.reads = {0}, .writes = {1}}, {.reads = {0}, .writes = {2}}};
  EXPECT_THAT(compile::order_for_peak_memory(two, alike), ElementsAre(0, 1));
}

TEST(Schedule, AProductThatAddsAGradientStandsWhereTheSumStood) {
  TwoProducts example(400);
  JointGraph& graph = example.graph;
  const NodeIndex first = graph.gradients.front().second, read = graph[first].inputs.front();
  graph[first].calls_cublas = true;
  const NodeIndex table = graph.add({.kind = NodeKind::kExtern, .bytes = 64, .op = &kOp, .inputs = {read}}, true);
  const NodeIndex sum =
      graph.add({.kind = NodeKind::kPointwise, .bytes = 64, .op = &aten::kAdd, .inputs = {first, table}});
  const NodeIndex saved[] = {example.h, example.x, graph.tangents.front()};
  EXPECT_FALSE(compile::with_added_products(graph)) << "nothing is a gradient yet";
  graph.gradients = {{nullptr, sum}};
  const auto rewritten = compile::with_added_products(graph);
  ASSERT_TRUE(rewritten);
  EXPECT_EQ(graph[sum].kind, NodeKind::kPointwise) << "the graph that was partitioned stays";
  const NodeIndex results[] = {sum};
  const auto backward = compile::make_schedule(*rewritten, results, saved, true);
  ASSERT_EQ(backward.launches.size(), 4U);
  EXPECT_EQ(backward.launches[2].node, table);
  EXPECT_EQ(backward.launches[3].node, sum);
  EXPECT_EQ(backward.launches[3].in_place, compile::kNone) << "at::addmm copies the other gradient into a new tensor";
  EXPECT_THAT(backward.launches[3].dead_after, Contains(read)) << "the first product waits, and its operand with it";
  const KernelList kernels = compile::fused_kernels(*rewritten, backward, saved, results, {}, kMultiprocessors);
  EXPECT_EQ(std::count_if(kernels.begin(), kernels.end(), [](const Kernel& each) { return each.bytes == 128; }), 1)
      << "the copy";
}

// x (400 B) and a bias of 40 B: m is the sum of x's columns, c and d read x; e reads a product of c.
TEST(Fusion, WhatSharesDataAndASizeIsOneKernelThatReadsEachBufferOnce) {
  JointGraph graph;
  const auto add = [&](NodeKind kind, Bytes bytes, std::vector<NodeIndex> inputs) {
    return graph.add({.kind = kind, .bytes = bytes, .op = &kOp, .inputs = std::move(inputs)}, true);
  };
  const NodeIndex x = add(NodeKind::kInput, 400, {}), bias = add(NodeKind::kParameter, 40, {});
  const NodeIndex m = add(NodeKind::kReduction, 40, {x});
  const NodeIndex c = add(NodeKind::kPointwise, 400, {x, m, bias});
  const NodeIndex product = add(NodeKind::kExtern, 400, {c, bias});
  const NodeIndex e = add(NodeKind::kPointwise, 400, {product, x});
  const std::vector<NodeIndex> results{e};
  Kernel multiplied;
  multiplied.kind = KernelKind::kMatrixProduct;
  multiplied.op = &kOp;
  multiplied.views = 3;
  Kernel added;
  added.op = &kOp;
  added.operator_class = OperatorClass::kElementwise;
  added.flops = 7;
  KernelList eager;
  eager.push_back(multiplied);
  eager.push_back(added);
  const KernelList kernels = compile::fused_kernels(graph, compile::make_schedule(graph, results, {}, false), {},
                                                    results, eager, kMultiprocessors);
  ASSERT_EQ(kernels.size(), 3U);
  EXPECT_EQ(kernels[0].kind, KernelKind::kMatrixProduct);
  EXPECT_EQ(kernels[0].views, 0) << "no operator is dispatched";
  EXPECT_EQ(kernels[1].op, &kFusedReduction);
  EXPECT_EQ(kernels[1].bytes, 400 + 40 + 400) << "x and the bias are read, c is written, m stays inside";
  EXPECT_EQ(kernels[2].bytes, 400 + 400 + 400) << "behind the product: a kernel of its own";
  EXPECT_EQ(kernels[2].flops, 7) << "the work counts on";
  for (const Kernel& kernel : kernels) EXPECT_TRUE(is_of_compiled_code(kernel));
}

// x is 64 rows of 100 float32, y of their sums, z of y and a mask of random numbers: Triton's kernel over rows of
// softmax with dropout. A row fills 128 lanes; a random number takes 85 instructions of each.
TEST(Fusion, AKernelOverRowsDrawsTheMaskOfWhatItMakes) {
  JointGraph graph;
  const auto add = [&](NodeKind kind, Bytes bytes, std::vector<NodeIndex> inputs, const Operator* op = &kOp) {
    return graph.add({.kind = kind, .bytes = bytes, .op = op, .inputs = std::move(inputs)}, true);
  };
  const Bytes all = 64 * 100 * 4;
  const NodeIndex x = add(NodeKind::kInput, all, {});
  const NodeIndex sums = add(NodeKind::kReduction, 64 * 4, {x});
  const NodeIndex y = add(NodeKind::kPointwise, all, {x, sums});
  const NodeIndex random = add(NodeKind::kPointwise, all, {}, &compile::kInductorRandom);
  const NodeIndex mask = add(NodeKind::kPointwise, all, {random});
  const NodeIndex z = add(NodeKind::kPointwise, all, {y, mask});
  const std::vector<NodeIndex> results{y, mask, z};
  const KernelList kernels = compile::fused_kernels(graph, compile::make_schedule(graph, results, {}, false), {},
                                                    results, {}, kMultiprocessors);
  ASSERT_EQ(kernels.size(), 2U) << "the seed, and one kernel";
  EXPECT_EQ(kernels[1].bytes, 4 * all) << "reads x; writes y, the mask and z";
  EXPECT_GT(kernels[1].elements, 64 * 128 * 85);
  EXPECT_LT(kernels[1].elements, 64 * 128 * 120);
}

// The gradients of q, k and v of GPT-2, whose heads are turned back: 2,304 elements of a row are no multiple of a block
// of 1,024, so Triton reads them one by one; 3,072 of GPT-2 medium are.
TEST(Fusion, JoinedViewsAreReadOneByOneWhereRowsAreNoMultipleOfABlock) {
  const auto computes = [](const char* name) {
    ModelSpec model = registry().model(name);
    model.architecture.set_layers(1);
    const RunSpec run = resolve(model, {.batch_size = 2,
                                        .sequence_length = 512,
                                        .precision = Precision::kBf16,
                                        .loop = Loop::kBare,
                                        .compile = true})
                            .run;
    constexpr double kInstructionsOfAByte = 12, kLarge = 1e6;  // bytes
    const SymbolicRun symbolic = run_symbolically(model, run, registry().device("h200-sxm"));
    return std::any_of(symbolic.kernels.begin(), symbolic.kernels.end(), [](const Kernel& each) {
      return each.op == &kFusedPointwise && each.bytes > kLarge && each.elements > kInstructionsOfAByte * each.bytes;
    });
  };
  EXPECT_TRUE(computes("gpt2"));
  EXPECT_FALSE(computes("gpt2-medium"));
}

// fx_passes/post_grad.py, unfuse_bias_add_to_pointwise. Of the code that inductor makes of two layers of Pythia in
// float32 (harness/inductor_kernels.py with is_gpu true there): what is added to the residual is `mm`; what attention
// or backward reads is `addmm`.
TEST(Fusion, ABiasThatIsNotIn16BitsIsAddedByThePointwiseKernelBehindItsProduct) {
  const auto operators_of = [](DType dtype) {
    JointGraph graph;
    const auto add = [&](NodeKind kind, std::vector<NodeIndex> inputs, bool fuses_bias = false) {
      return graph.add({.kind = kind,
                        .fuses_bias = fuses_bias,
                        .dtype = dtype,
                        .bytes = 400,
                        .op = &kOp,
                        .inputs = std::move(inputs)},
                       true);
    };
    const NodeIndex x = add(NodeKind::kInput, {}), w = add(NodeKind::kParameter, {});
    const NodeIndex read_by_kernel = add(NodeKind::kExtern, {x, x, w}, true);
    const NodeIndex attention = add(NodeKind::kExtern, {add(NodeKind::kView, {read_by_kernel})});
    const NodeIndex saved = add(NodeKind::kExtern, {x, attention, w}, true);
    const NodeIndex gelu = add(NodeKind::kPointwise, {saved});
    const NodeIndex added = add(NodeKind::kExtern, {x, gelu, w}, true);
    const NodeIndex sum = add(NodeKind::kPointwise, {add(NodeKind::kView, {added}), x});
    const std::vector<NodeIndex> results{sum, add(NodeKind::kView, {saved})};
    KernelList eager;
    for (int i = 0; i < 3; ++i) {
      Kernel& product = eager.emplace_back();
      product.kind = KernelKind::kMatrixProduct;
      product.op = &aten::kAddmm;
    }
    std::vector<const Operator*> operators;
    for (const Kernel& kernel : compile::fused_kernels(graph, compile::make_schedule(graph, results, {}, false), {},
                                                       results, eager, kMultiprocessors)) {
      if (kernel.kind == KernelKind::kMatrixProduct) operators.push_back(kernel.op);
    }
    return operators;
  };
  EXPECT_THAT(operators_of(DType::kFloat32), ElementsAre(&aten::kAddmm, &aten::kAddmm, &aten::kMm));
  EXPECT_THAT(operators_of(DType::kBFloat16), ElementsAre(&aten::kAddmm, &aten::kAddmm, &aten::kAddmm));
}

// A profile of BERT's compiled step under autocast (tests/measured/step_operators_h200.jsonl.gz): of a layer's unfused
// attention two `aten::bmm` of forward in float32, four of backward in bfloat16.
TEST(Fusion, ProductsOfBackwardUnderAutocastAreIn16Bits) {
  const auto type_of_product = [](bool after_tangents, int kernels) {
    JointGraph graph;
    const NodeIndex x = graph.add({.kind = NodeKind::kInput, .bytes = 400, .op = &kOp}, true);
    const NodeIndex product = graph.add({.kind = NodeKind::kExtern,
                                         .calls_cublas = true,
                                         .after_tangents = after_tangents,
                                         .dtype = DType::kBFloat16,
                                         .bytes = 200,
                                         .op = &aten::kMm,
                                         .inputs = {x, x}},
                                        true);
    const std::vector<NodeIndex> results{product};
    KernelList eager;
    for (int i = 0; i < kernels; ++i) {
      Kernel& kernel = eager.emplace_back();
      kernel.kind = KernelKind::kMatrixProduct;
      kernel.op = &aten::kBmm;
      kernel.bytes = 1200;
    }
    const Kernel first = compile::fused_kernels(graph, compile::make_schedule(graph, results, {}, after_tangents), {},
                                                results, eager, kMultiprocessors)[0];
    return std::pair(first.dtype, first.bytes);
  };
  EXPECT_EQ(type_of_product(true, 1), std::pair(DType::kBFloat16, 600.0));
  EXPECT_EQ(type_of_product(false, 1), std::pair(DType::kFloat32, 1200.0));
  EXPECT_EQ(type_of_product(true, 2), std::pair(DType::kFloat32, 1200.0)) << "forward's stand among them, again";
}

// Sizes of inductor's own code for an H200 (tests/measured/inductor_kernels.tsv): 768 and 3,072 columns of 4,096 and
// 8,192 rows, 128 of 65,536.
TEST(ReductionSplits, OfSumsWithFewResultsAreTwoKernels) {
  EXPECT_EQ(compile::parts_of_reduction(4096, 768, true, kMultiprocessors), 32);
  EXPECT_EQ(compile::parts_of_reduction(8192, 768, true, kMultiprocessors), 64);
  EXPECT_EQ(compile::parts_of_reduction(8192, 3072, true, kMultiprocessors), 64);
  EXPECT_EQ(compile::parts_of_reduction(65536, 128, true, kMultiprocessors), 512);
  EXPECT_EQ(compile::parts_of_reduction(32, 768, true, kMultiprocessors), 1) << "few rows";
  EXPECT_EQ(compile::parts_of_reduction(8192, 8448, true, kMultiprocessors), 1) << "64 results for each multiprocessor";
  EXPECT_EQ(compile::parts_of_reduction(768, 8192, false, kMultiprocessors), 1) << "rows enough";
  EXPECT_EQ(compile::parts_of_reduction(4096, 1, false, kMultiprocessors), 1);
  EXPECT_EQ(compile::parts_of_reduction(16384, 1, false, kMultiprocessors), 2);
}

TEST(ReductionSplits, AKernelOverManyLongRowsTakesTheirColumnsAlong) {
  EXPECT_TRUE(compile::takes_columns_along(4096, 2048));
  EXPECT_TRUE(compile::takes_columns_along(65536, 128));
  EXPECT_FALSE(compile::takes_columns_along(4096, 1024)) << "fewer than 5 Mi elements";
  EXPECT_FALSE(compile::takes_columns_along(2048, 8192));
  EXPECT_FALSE(compile::takes_columns_along(65536, 32768));
  EXPECT_EQ(compile::workspace_rows(8192, kMultiprocessors), 512);
  EXPECT_EQ(compile::workspace_rows(4096, kMultiprocessors), 256);
}

// x [8192, 768] float32: row sums, y = x - row sum, and two sums over columns, of x and of y.
TEST(Fusion, SumsOverColumnsStayApartUnlessAKernelOverTheirRowsTakesThemAlong) {
  const auto launches = [](std::int64_t rows) {
    JointGraph graph;
    const auto add = [&](NodeKind kind, Bytes bytes, std::vector<NodeIndex> inputs, bool across_rows = false) {
      return graph.add(
          {.kind = kind, .across_rows = across_rows, .bytes = bytes, .op = &kOp, .inputs = std::move(inputs)}, true);
    };
    const Bytes all = rows * 768 * 4, columns = 768 * 4;
    const NodeIndex x = add(NodeKind::kInput, all, {});
    const NodeIndex sums = add(NodeKind::kReduction, rows * 4, {x});
    const NodeIndex y = add(NodeKind::kPointwise, all, {x, sums});
    const NodeIndex of_x = add(NodeKind::kReduction, columns, {x}, true);
    const NodeIndex of_y = add(NodeKind::kReduction, columns, {y}, true);
    const std::vector<NodeIndex> results{y, of_x, of_y};
    std::vector<int> counts;
    for (const Kernel& kernel : compile::fused_kernels(graph, compile::make_schedule(graph, results, {}, false), {},
                                                       results, {}, kMultiprocessors)) {
      counts.push_back(static_cast<int>(kernel.bytes));
    }
    return counts;
  };
  const int partials = 64 * 768 * 4, all = 8192 * 768 * 4, columns = 768 * 4;
  EXPECT_THAT(launches(8192), ElementsAre(2 * all, 513 * columns, all + partials, partials + columns))
      << "the rows with x's columns, Python's sum of them; y's columns, which the kernel has written first, in two";
  const int small = 2048 * 768 * 4, parts = 16 * 768 * 4;
  EXPECT_THAT(launches(2048), ElementsAre(2 * small, small + parts, parts + columns, small + parts, parts + columns));
}

Report report_of(const char* name, RunOptions options) {
  ModelSpec model = registry().model(name);
  return estimate(model, resolve(model, options), registry().device("h100-sxm"));
}

RunOptions small_run(Precision precision) {
  return {.batch_size = 2,
          .sequence_length = 512,
          .precision = precision,
          .loop = Loop::kBare,
          .optimizer = Optimizer::kSgd,
          .compile = true};
}

Bytes forward_peak(const Report& report) {
  return report.memory.phase_peaks[static_cast<std::size_t>(Phase::kForward)];
}

constexpr Bytes kTokens = 4 * 2048, kHidden = 2048;
constexpr Bytes kHiddenState = 2 * kTokens * kHidden;   // bf16
constexpr Bytes kLogSumExp = 4 * kTokens * 32 + 2 * 8;  // float32 of each head; the two numbers of dropout's state

/// What a sixth layer of LLaMA-3.2-1B keeps, of which `change` says how it is compiled.
template <typename Change>
Bytes kept_by_a_layer(Change change) {
  const auto saved_of = [&](std::int64_t layers) {
    ArchitectureChanges changes;
    changes.layers = layers;
    const ModelSpec model = registry().model("llama-3.2-1b", changes);
    RunOptions options = small_run(Precision::kBf16);
    options.batch_size = 4;  // so many tokens that the peak is where all that was kept is alive
    options.sequence_length = 2048;
    change(options);
    const Report report = estimate(model, resolve(model, options), registry().device("h100-sxm"));
    return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kActivations)];
  };
  return saved_of(6) - saved_of(5);
}

TEST(Compile, LlamaKeepsTwentyHiddenStatesALayer) {
  // Of T tokens in bf16, h = 2048: the layer's input and both norms' outputs, query, key and value of every head,
  // attention's output, its projection: 8 h; gate, up and their product: 3 x 4 h. Beside them the logsumexp.
  EXPECT_EQ(kept_by_a_layer([](RunOptions&) {}), 20 * kHiddenState + kLogSumExp + 2 * 4 * kTokens);
}

TEST(Compile, ACheckpointedLayerKeepsItsInput) {
  for (const CompiledParts parts : {CompiledParts::kModel, CompiledParts::kLayers}) {
    EXPECT_EQ(kept_by_a_layer([&](RunOptions& o) {
                o.checkpointing = Checkpointing::kFull;
                o.compiled_parts = parts;
              }),
              kHiddenState);
  }
}

TEST(Compile, ASelectiveCheckpointKeepsEverySecondProductThatBackwardReads) {
  // The input, query, value (a quarter of the heads), gate (4 h) and attention's output. The seventh product, of the
  // down projection, is kept by the policy, but no derivative reads it.
  EXPECT_EQ(kept_by_a_layer([](RunOptions& o) {
              o.checkpointing = Checkpointing::kSelective;
              o.compiled_parts = CompiledParts::kLayers;
            }),
            kHiddenState * (4 * 7 + 1) / 4 + kLogSumExp);
}

TEST(Compile, Float8KeepsWhatBf16DoesUnderASelectiveCheckpointAndAMaximumForEachCast) {
  const auto kept = [](Float8 float8) {
    return kept_by_a_layer([&](RunOptions& o) {
      o.checkpointing = Checkpointing::kSelective;
      o.compiled_parts = CompiledParts::kLayers;
      o.float8 = float8;
    });
  };
  const Bytes scalars = kept(Float8::kTensorwise) - kept(Float8::kNone);
  EXPECT_GT(scalars, 0);
  EXPECT_LT(scalars, 256);
  EXPECT_LT(kept(Float8::kRowwise) - kept(Float8::kNone), kHiddenState / 100);
}

TEST(Compile, ALayerUnderAutocastKeepsItsWeightsIn16Bits) {
  // Of T tokens: the input in float32 is two hidden states in bf16; both norms' outputs, query, key and value (a
  // quarter of the heads each), attention's output, its projection; gate, up and their product. Every matrix is cast in
  // the graph, once, and backward reads the copy: 2.5 h^2 of attention, 3 x 4 h^2.
  constexpr Bytes kMatrices = 2 * kHidden * kHidden * (2 * 2 + 1 + 2 * 12) / 2;
  EXPECT_EQ(kept_by_a_layer([](RunOptions& o) {
              o.precision = Precision::kAmpBf16;
              o.weights_dtype = DType::kFloat32;
              o.compiled_parts = CompiledParts::kLayers;
            }),
            kHiddenState * (2 * 19 + 1) / 2 + kMatrices + kLogSumExp + 2 * 4 * kTokens);
}

/// What is kept by the last of so many layers of LLaMA-3.2-1B beside a cache.
Bytes kept_beside_a_cache(std::int64_t layers, bool compiles) {
  const auto activations_of = [&](std::int64_t count) {
    ArchitectureChanges changes;
    changes.layers = count;
    const ModelSpec model = registry().model("llama-3.2-1b", changes);
    RunOptions options = small_run(Precision::kBf16);
    options.batch_size = 4;
    options.sequence_length = 2048;
    options.use_cache = true;
    options.compile = compiles;
    if (compiles) options.compiled_parts = CompiledParts::kLayers;
    const Report report = estimate(model, resolve(model, options), registry().device("h100-sxm"));
    return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kActivations)];
  };
  return activations_of(layers) - activations_of(layers - 1);
}

TEST(Compile, OfLayersBesideACacheTheNinthRunsInEagerMode) {
  // Each reads its own number to find its place in the cache, so each is a program, and torch compiles eight of them.
  EXPECT_EQ(kept_beside_a_cache(8, true), kept_beside_a_cache(2, true));
  EXPECT_LT(kept_beside_a_cache(8, true), kept_beside_a_cache(8, false));
  EXPECT_EQ(kept_beside_a_cache(9, true), kept_beside_a_cache(9, false));
}

TEST(Compile, T5sPositionBiasPassesFromLayerToLayer) {
  // The first layer's graph returns it, the others get it as an argument. Its last stride is not 1, so no fused kernel
  // takes it: both self-attentions of a further layer keep float32 weights before and after dropout, and its mask.
  const auto kept_by_the_last = [&](std::int64_t batch, std::int64_t sequence) {
    const auto kept = [&](std::int64_t layers) {
      ArchitectureChanges changes;
      changes.layers = layers;
      const ModelSpec model = registry().model("t5-small", changes);
      RunOptions options = small_run(Precision::kBf16);
      options.batch_size = batch;
      options.sequence_length = sequence;
      options.compiled_parts = CompiledParts::kLayers;
      const Report report = estimate(model, resolve(model, options), registry().device("h100-sxm"));
      return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kActivations)];
    };
    return kept(5) - kept(4);
  };
  // As many tokens in sequences half as long: half of the scores, everything else is nearly the same.
  constexpr Bytes kScores = 2 * 8 * 512 * 512;  // sequences, heads, queries, keys
  constexpr Bytes kHalf = kScores / 2 * 2 * (4 + 4 + 1);
  EXPECT_NEAR(static_cast<double>(kept_by_the_last(2, 512) - kept_by_the_last(4, 256)), kHalf, 0.01 * kHalf);
}

TEST(Compile, AFrozenLayerHasNoBackward) {
  RunOptions options = small_run(Precision::kAmpBf16);
  options.compiled_parts = CompiledParts::kLayers;
  const Report whole = report_of("llama-3.2-1b", options);
  options.frozen = {"layers", "embed_tokens"};
  const Report frozen = report_of("llama-3.2-1b", options);
  EXPECT_LT(frozen.flops[0].backward, whole.flops[0].backward / 2);
  EXPECT_LT(forward_peak(frozen), forward_peak(whole));
}

/// One model of each family that has layers.
constexpr const char* kOfEachFamily[] = {
    "bart-base",    "bert-base",    "distilbert-base", "electra-small-discriminator",
    "t5-small",     "mt5-small",    "whisper-small",   "vit-base-patch16-224",
    "gpt2",         "gpt-neox-20b", "opt-125m",        "phi-2",
    "llama-3.2-1b", "mistral-7b",   "qwen2.5-0.5b",    "qwen3-0.6b",
    "gemma-2b",     "gemma-2-2b",   "gemma-3-1b",      "phi-4-mini",
    "olmo-2-7b",    "mixtral-8x7b", "gpt-oss-20b",     "deepseek-v2-lite",
    "qwen3-30b-a3b"};

/// Answered, or refused; never an error of memcalc itself.
void expect_no_bug(const SpecRegistry& registry, const ModelSpec& model, const RunOptions& options) {
  try {
    (void)estimate(model, resolve(model, options), registry.device("h100-sxm"));
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kUnsupported) << error.what();
  }
}

TEST(Compile, NoCombinationOfCompiledLayersIsAnErrorOfMemcalc) {
  const std::function<void(RunOptions&)> kChanges[] = {
      [](RunOptions&) {},
      [](RunOptions& o) { o.use_cache = true; },
      [](RunOptions& o) { o.checkpointing = Checkpointing::kFull; },
      [](RunOptions& o) { o.lora_rank = 8; },
      [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp2, o.gpus = 2; },
      [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp2, o.gpus = 2, o.use_cache = true; },
  };
  for (const char* name : kOfEachFamily) {
    SCOPED_TRACE(name);
    ArchitectureChanges changes;
    changes.layers = 2;
    const ModelSpec model = registry().model(name, changes);
    for (const Precision precision : {Precision::kBf16, Precision::kAmpBf16}) {
      for (const auto& change : kChanges) {
        RunOptions options = small_run(precision);
        options.sequence_length = 64;
        options.compiled_parts = CompiledParts::kLayers;
        change(options);
        expect_no_bug(registry(), model, options);
      }
    }
  }
}

TEST(Compile, ACheckpointedBlockOfAUsersOwnLayersIsAPartOfTheGraph) {
  const ModelSpec model = registry().model((test::specs_dir() / "examples/decoder.json").string());
  // Of forward: the step's own peak is at backward's end, where the product of the tied head's gradient is.
  const auto kept = [&](Checkpointing checkpointing) {
    RunOptions options{.loop = Loop::kBare, .compile = true};
    options.checkpointing = checkpointing;
    return forward_peak(estimate(model, resolve(model, options), registry().device("h100-sxm")));
  };
  EXPECT_LT(kept(Checkpointing::kFull), kept(Checkpointing::kNone));
}

/// In which steps the compiler times a kernel.
std::set<int> timed_steps(Task task) {
  const ModelSpec model = registry().model("bert-base");
  RunOptions options = small_run(Precision::kFp32);
  options.task = task;
  options.batch_size = 8;
  options.sequence_length = 128;
  const SymbolicRun ran = run_symbolically(model, resolve(model, options).run, registry().device("h200-sxm"));
  std::set<int> steps;
  for (const Event& event : ran.trace.events) {
    if (event.kind != EventKind::kAllocate || event.op == nullptr) continue;
    if (std::string_view(event.op->name) == "benchmark_all_configs") steps.insert(event.step);
  }
  return steps;
}

// loss/loss_utils.py, ForSequenceClassificationLoss: config.problem_type is None in the first step alone.
TEST(Compile, ClassifiersAreCompiledAgainInTheSecondStep) {
  EXPECT_THAT(timed_steps(Task::kSequenceClassification), ElementsAre(1));
  EXPECT_THAT(timed_steps(Task::kMaskedLm), IsEmpty());
}

TEST(Compile, ReportsThatItIsAModelOfTheCompiler) {
  const Report report = report_of("bert-base", small_run(Precision::kAmpBf16));
  EXPECT_THAT(report.assumptions, Contains(HasSubstr("torch.compile")));
  EXPECT_GT(forward_peak(report), 0);
}

TEST(Compile, AccumulationDropoutPaddingAndTheTrainerAnswer) {
  for (const Loop loop : {Loop::kBare, Loop::kTrainer}) {
    for (const bool padding : {false, true}) {
      RunOptions options = small_run(Precision::kAmpFp16);
      options.loop = loop;
      options.padding = padding;
      options.accumulation_steps = 2;
      const Report compiled = report_of("bert-base", options);
      options.compile = false;
      const Report eager = report_of("bert-base", options);
      EXPECT_EQ(compiled.parameters_total, eager.parameters_total);
      EXPECT_NE(compiled.memory.peak_allocated, eager.memory.peak_allocated);
      // The same products, forward and backward.
      EXPECT_NEAR(compiled.flops[0].forward / eager.flops[0].forward, 1, 0.1);
    }
  }
}

TEST(Compile, TheDecodersMaskIsAsLongAsTheEncodersSequence) {
  for (const char* name : {"t5-small", "bart-base"}) {
    for (const Attention attention : {Attention::kSdpa, Attention::kEager}) {
      const auto kept = [&](std::int64_t target) {
        RunOptions options = small_run(Precision::kFp32);
        options.sequence_length = 128;
        options.target_sequence_length = target;
        options.attention = attention;
        return forward_peak(report_of(name, options));
      };
      EXPECT_LT(kept(64), kept(128));
      EXPECT_LT(kept(128), kept(192));
    }
  }
}

TEST(Compile, RefusesWhatBreaksTheGraph) {
  const auto broken = [](auto change) {
    RunOptions options = small_run(Precision::kBf16);
    change(options);
    return error_rule([&] { (void)report_of("llama-3.2-1b", options); });
  };
  EXPECT_EQ(broken([](RunOptions& o) { o.offload_activations = true; }), "compile-activation-offload");
  EXPECT_EQ(broken([](RunOptions& o) { o.gpus = 2; }), "compile-parallel");
  EXPECT_EQ(broken([](RunOptions& o) { o.float8 = Float8::kRowwise; }), "float8-compiled-layers");
  EXPECT_EQ(broken([](RunOptions& o) { o.loss_in_loop = true; }), "loss-in-loop-compiled");
  EXPECT_EQ(broken([](RunOptions& o) { o.liger = true; }), "compile-liger");
}

TEST(Compile, RefusesWhatIsNotKnownOfAModel) {
  const auto refusal = [](const char* name, auto change) {
    RunOptions options = small_run(Precision::kBf16);
    options.sequence_length.reset();
    change(options);
    return error_text([&] { (void)report_of(name, options); });
  };
  const auto layers = [](RunOptions& o) { o.compiled_parts = CompiledParts::kLayers; };
  EXPECT_THAT(refusal("resnet18", layers), HasSubstr("accepted: --compile-parts model"));
  EXPECT_THAT(refusal("t5-small", [](RunOptions& o) { o.checkpointing = Checkpointing::kFull; }),
              HasSubstr("accepted: --checkpointing none, selective"));
}

/// Of a step's forward pass.
std::ptrdiff_t compiled_calls(const char* name, bool use_cache) {
  RunOptions options = small_run(Precision::kBf16);
  options.sequence_length = 64;
  options.use_cache = use_cache;
  const ModelSpec model = registry().model(name);
  const SymbolicRun run = run_symbolically(model, resolve(model, options).run, registry().device("h100-sxm"));
  return std::count_if(run.kernels.begin(), run.kernels.end(),
                       [](const Kernel& each) { return each.op == &kCompiledCall && each.phase == Phase::kForward; });
}

// tests/measured/compile_breaks.jsonl; with a cache Dynamo compiles a layer's frame eight times and no more.
TEST(Compile, LayersAreGraphsOfTheirOwnWhereLayerDropBreaksTheirLoop) {
  EXPECT_EQ(compiled_calls("opt-125m", false), 12 + 1);
  EXPECT_EQ(compiled_calls("opt-125m", true), 8 + 1);
  EXPECT_EQ(compiled_calls("bart-base", false), 6 + 6 + 1);
  EXPECT_EQ(compiled_calls("llama-3.2-1b", false), 1);
  EXPECT_EQ(compiled_calls("gpt2", false), 2);
  EXPECT_EQ(compiled_calls("t5-small", false), 1);
  EXPECT_EQ(compiled_calls("t5-small", true), 3);
  const auto said = Contains(HasSubstr("LayerDrop"));
  EXPECT_THAT(report_of("opt-125m", small_run(Precision::kBf16)).assumptions, said);
  EXPECT_THAT(report_of("gpt2", small_run(Precision::kBf16)).assumptions, Not(said));
}

}  // namespace
}  // namespace memcalc
