// Operators over images, volumes and sequences of steps: what they request, forward and backward, on shapes small
// enough to check by hand, and the layouts that they hand on (symbolic/channels_last.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/ops/batch_norm.h"
#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/ops/conv1d.h"
#include "memcalc/symbolic/ops/conv_engine.h"
#include "memcalc/symbolic/ops/conv_workspace.h"
#include "memcalc/symbolic/ops/einsum.h"
#include "memcalc/symbolic/ops/fold.h"
#include "memcalc/symbolic/ops/interpolate.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/pool.h"
#include "memcalc/symbolic/ops/recurrent.h"
#include "memcalc/symbolic/ops/recurrent_space.h"
#include "memcalc/symbolic/ops/view.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr DType kFloat = DType::kFloat32;
constexpr DType kBfloat = DType::kBFloat16;

bool has_shape(const Tensor& x, const Shape& shape) { return x.shape() == shape; }

Tensor channels_last_input(TapeBench& bench, const Shape& shape, DType dtype = kFloat) {
  return bench.strided_input(shape, channels_last_strides(shape), dtype);
}

TEST(Images, ChannelsLastIsSeenByStrides) {
  TapeBench bench;
  EXPECT_TRUE(is_channels_last(channels_last_input(bench, {2, 8, 4, 4})));
  EXPECT_TRUE(is_channels_last(channels_last_input(bench, {2, 8, 3, 4, 4})));
  EXPECT_FALSE(is_channels_last(bench.input({2, 8, 4, 4})));
  EXPECT_FALSE(is_channels_last(bench.input({2, 8, 1, 1})));
  EXPECT_FALSE(is_channels_last(bench.input({2, 1, 1, 1})));
  EXPECT_FALSE(is_channels_last(bench.input({2, 8, 4})));
  // The mean over the pixels of a channels-last image: [N, C, 1, 1] with the strides of it.
  EXPECT_TRUE(is_channels_last(bench.strided_input({2, 8, 1, 1}, {8, 1, 8, 8})));
  // Half of the channels: the order is still that, though there are gaps.
  const Tensor half = slice(channels_last_input(bench, {2, 8, 4, 4}), 1, 0, 4);
  EXPECT_TRUE(is_channels_last(half));
}

TEST(Images, ConvolutionsHaveTheSizesOfTheirStridesPaddingAndDilation) {
  TapeBench bench;
  const Tensor image = bench.input({1, 4, 16, 24}), weight = bench.input({8, 4, 3, 5});
  EXPECT_TRUE(has_shape(conv2d(image, weight, {}, {.stride = {2, 3}, .padding = {1, 2}}), {1, 8, 8, 8}));
  EXPECT_TRUE(has_shape(conv2d(image, weight, {}, {.dilation = {2, 1}}), {1, 8, 12, 20}));
  const Tensor volume = bench.input({1, 4, 6, 8, 8}), cube = bench.input({8, 4, 3, 3, 3});
  EXPECT_TRUE(has_shape(convolution(volume, cube, {}, {.stride = 2, .padding = 1}), {1, 8, 3, 4, 4}));
  // (6 - 1) * 2 - 2 + 3 + 1 = 12
  const Tensor back = bench.input({4, 8, 3, 3, 3});
  const ConvolutionOptions doubles{.stride = 2, .padding = 1, .transposed = true, .output_padding = 1};
  EXPECT_TRUE(has_shape(convolution(volume, back, {}, doubles), {1, 8, 12, 16, 16}));
  const Tensor sequence = bench.input({1, 4, 10}), row = bench.input({4, 6, 4});
  const ConvolutionOptions longer{.stride = 2, .padding = 1, .groups = 2, .transposed = true};
  EXPECT_TRUE(has_shape(convolution(sequence, row, {}, longer), {1, 12, 20}));
}

/// Images of 40 x 40 pixels, 3 x 3 windows.
ConvolutionShape window_of_nine(std::int64_t batch, std::int64_t in_channels, std::int64_t out_channels) {
  return {.batch = batch,
          .in_channels = in_channels,
          .height = 40,
          .width = 40,
          .out_channels = out_channels,
          .out_height = 40,
          .out_width = 40,
          .kernel_height = 3,
          .kernel_width = 3,
          .padding = 1};
}

// The head of torchvision's fcn_resnet50 at 320 pixels, batch 8, float32: measured on an H200, 2026-11-23.
TEST(Images, AFloat32GradientMayTakeAFourierTransform) {
  const ConvolutionShape head = window_of_nine(8, 2048, 512);
  EXPECT_EQ(convolution_workspace(head, ConvolutionPass::kInputGradient, kFloat, false), 4'741'660'672);
  EXPECT_EQ(convolution_workspace(head, ConvolutionPass::kWeightGradient, kFloat, false), 445'906'944);
  EXPECT_EQ(convolution_workspace(head, ConvolutionPass::kForward, kFloat, false), 0);
}

// One of the random convolutions, at an image size that no network's table holds: 23,121,936 and 23,122,067 bytes.
TEST(Images, AnImageOfAnotherSizeTakesItsLikelyEngine) {
  const ConvolutionShape shape = window_of_nine(32, 64, 160);
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kForward, kBfloat, true), 23'121'936);
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kInputGradient, kBfloat, true), 23'121'936);
}

// cuDNN's plan on an H200 asks for 7,668,375 bytes: 13 parts of nine tiles, of which three are a cluster.
TEST(Images, AWeightsGradientFillsTheCardWithPartsOfItsLastTiles) {
  ConvolutionShape shape = window_of_nine(72, 120, 120);
  shape.height = shape.width = shape.out_height = shape.out_width = 70;
  shape.channels_last = true;
  constexpr int kClusterOfThree = 8192 + 32 + 3;
  EXPECT_EQ(ConvolutionEngine(kClusterOfThree).workspace(shape, kBfloat, true), 117 * 128 * 128 * 4 + 616);
}

// wav2vec 2.0's first convolution and a causal one of Bamba: measured on an H100, 2026-11-28.
TEST(Images, CopiesOfSequencesHoldWholeVectors) {
  ConvolutionShape shape{.batch = 2,
                         .in_channels = 1,
                         .height = 1,
                         .width = 80'000,
                         .out_channels = 512,
                         .out_height = 1,
                         .out_width = 15'999,
                         .kernel_width = 10,
                         .stride = 5,
                         .spatial_rank = 1};
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kForward, kBfloat, true), 35'407'888);
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kInputGradient, kBfloat, true), 35'407'888);
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kForward, kFloat, false), 0);
  shape = {.in_channels = 2'304,
           .height = 1,
           .width = 777,
           .out_channels = 2'304,
           .out_height = 1,
           .out_width = 780,
           .groups = 2'304,
           .kernel_width = 4,
           .padding = 3,
           .spatial_rank = 1};
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kForward, DType::kFloat16, true), 0);
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kInputGradient, DType::kFloat16, true), 0);
}

TEST(Images, DepthwiseSequencesTakeNoWorkspace) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2, 64, 32}, kBfloat), weight = bench.input({64, 1, 4}, kBfloat);
  bench.start();
  const Tensor y = conv1d(x, weight, {}, 1, 3);
  EXPECT_EQ(bench.events(), "+8960 _conv_depthwise2d");  // 2 * 64 * 35 * 2
  bench.backward(y);
  EXPECT_EQ(bench.events(), "+512 convolution_backward; +8192 convolution_backward");
}

// Two of the random convolutions: of volumes, and of groups of 24 channels, which are computed as if there were 32.
TEST(Images, VolumesAndGroupsAskForWhatCudnnAskedFor) {
  ConvolutionShape shape{.batch = 2,
                         .in_channels = 96,
                         .height = 16,
                         .width = 16,
                         .out_channels = 512,
                         .out_height = 16,
                         .out_width = 16,
                         .kernel_height = 3,
                         .kernel_width = 3,
                         .padding = 1,
                         .depth = 16,
                         .out_depth = 16,
                         .kernel_depth = 3,
                         .spatial_rank = 3,
                         .same_everywhere = false};
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kInputGradient, kBfloat, true), 12'615'696);
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kForward, kFloat, false), 0);
  shape = {.batch = 32,
           .in_channels = 144,
           .height = 56,
           .width = 56,
           .out_channels = 144,
           .out_height = 56,
           .out_width = 56,
           .groups = 6,
           .kernel_height = 3,
           .kernel_width = 3,
           .padding = 1};
  constexpr Bytes kHead = 131;  // that some engines ask for beside it
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kForward, kBfloat, true), 77'181'075 - kHead);
  EXPECT_EQ(convolution_workspace(shape, ConvolutionPass::kInputGradient, kBfloat, true), 77'181'075 - kHead);
}

// timm's volo_d5_512 on an H200: what is folded lies in a storage of its columns' size.
TEST(Images, UnfoldedAndFoldedImagesBeginAsLargeAsTheirOperand) {
  TapeBench bench;
  const Tensor x = bench.input({2, 4, 8, 8});
  bench.start();
  const Tensor columns = unfold(x, 3, {.stride = 2, .padding = 1});
  EXPECT_TRUE(has_shape(columns, {2, 36, 16}));
  EXPECT_EQ(bench.events(), "+2048 im2col; +4608 im2col; -2048");
  bench.start();
  const Tensor images = fold(columns, {2, 4, 8, 8});
  EXPECT_TRUE(has_shape(images, {2, 4, 8, 8}));
  EXPECT_EQ(bench.events(), "+4608 col2im");
}

TEST(Images, InterpolationKeepsTheLayoutAndSavesNothing) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2, 4, 8, 8});  // 2048 bytes
  bench.start();
  const Tensor y = interpolate(x, {2, 4, 16, 16}, Interpolation::kLinear);
  EXPECT_EQ(bench.events(), "+8192 upsample_bilinear2d");
  bench.backward(y);
  EXPECT_EQ(bench.events(), "+2048 upsample_bilinear2d_backward");

  TapeBench last;
  last.warm_up();
  const Tensor image = channels_last_input(last, {2, 4, 8, 8});
  last.start();
  const Tensor larger = interpolate(image, {2, 4, 16, 16}, Interpolation::kNearest);
  EXPECT_TRUE(is_channels_last(larger));
  // Fewer than 16 channels: the row-major kernel, between two copies.
  EXPECT_EQ(last.events(), "+8192 upsample_nearest2d; +8192 upsample_nearest2d; +2048 contiguous; -2048; -8192");
}

TEST(Images, PoolsAndCatFollowChannelsLast) {
  TapeBench bench;
  const Tensor image = channels_last_input(bench, {2, 4, 8, 8}), rows = bench.input({2, 4, 8, 8});
  EXPECT_TRUE(is_channels_last(max_pool2d(image, 2, 2, 0)));
  EXPECT_FALSE(is_channels_last(max_pool2d(rows, 2, 2, 0)));
  EXPECT_TRUE(is_channels_last(cat(image, image, 1)));
  EXPECT_FALSE(is_channels_last(cat(image, rows, 1)));
}

TEST(Images, PoolsRoundUpWhereTheyAreToldTo) {
  TapeBench bench;
  const Tensor x = bench.input({1, 2, 7, 8});
  const PoolOptions down{.kernel = 2, .stride = 2}, up{.kernel = 2, .stride = 2, .ceil_mode = true};
  EXPECT_TRUE(has_shape(avg_pool(x, down), {1, 2, 3, 4}));
  EXPECT_TRUE(has_shape(avg_pool(x, up), {1, 2, 4, 4}));
  // A window that would begin in the padding behind is none.
  EXPECT_TRUE(has_shape(
      avg_pool(bench.input({1, 2, 5, 5}), {.kernel = 1, .stride = 3, .padding = 0, .ceil_mode = true}), {1, 2, 2, 2}));
  EXPECT_TRUE(has_shape(adaptive_avg_pool(x, {1, 2, 3, 5}), {1, 2, 3, 5}));
}

TEST(Images, NormsWithoutWeightsAndOverSeveralDimensions) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({4, 8, 16});  // 2048 bytes
  bench.start();
  const Tensor y = layer_norm(x, {}, {});
  EXPECT_EQ(bench.events(), "+2048 native_layer_norm; +128 native_layer_norm; +128 native_layer_norm");
  bench.backward(y);
  EXPECT_EQ(bench.events(), "+2048 native_layer_norm_backward; -128; -128");

  TapeBench two;
  two.warm_up();
  const Tensor image = two.input({4, 8, 16}), weight = two.input({8, 16}), bias = two.input({8, 16});
  two.start();
  (void)layer_norm(image, weight, bias, 2);
  EXPECT_EQ(two.events(),  // four rows
            "+2048 native_layer_norm; +16 native_layer_norm; +16 native_layer_norm; -16; -16; -2048");
}

TEST(Images, InstanceNormIsABatchNormOfOneSample) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2, 8, 4, 4}), weight = bench.input({8}), bias = bench.input({8});
  bench.start();
  const Tensor y = instance_norm(x, weight, bias);
  EXPECT_TRUE(has_shape(y, {2, 8, 4, 4}));
  EXPECT_EQ(bench.events(),  // the weights of 2 * 8 channels, the result, their statistics
            "+64 repeat; +64 repeat; +1024 cudnn_batch_norm; +64 cudnn_batch_norm; +64 cudnn_batch_norm; -64");
}

// torch 2.11, _select_batch_norm_backend, asked without a card: 2,674 images of 256 x 56 x 56 are cuDNN's, 2,675 are
// not.
TEST(Images, ABatchNormOfMoreThanTwoBillionValuesIsPytorchsOwn) {
  const auto events = [](std::int64_t images) {
    TapeBench bench;
    const Tensor x = bench.input({images, 256, 56, 56}, DType::kFloat16);
    const Tensor weight = bench.input({256}), bias = bench.input({256});
    const Tensor y = batch_norm(x, weight, bias);
    return bench.events();
  };
  EXPECT_NE(events(2674).find("cudnn_batch_norm"), std::string::npos);
  EXPECT_EQ(events(2675).find("cudnn_batch_norm"), std::string::npos);
}

// _batch_norm_impl_index makes an input row-major for cuDNN, whose node keeps the copy; derivatives.yaml the gradient,
// too (PatchTST, whose norm is over a transposed sequence).
TEST(Images, CudnnBatchNormKeepsTheCopyOfATransposedSequence) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2, 16, 8}), weight = bench.input({8}), bias = bench.input({8});
  bench.start();
  const Tensor y = transpose(batch_norm(transpose(x, 1, 2), weight, bias), 1, 2);
  EXPECT_EQ(bench.events(), "+1024 clone; +1024 cudnn_batch_norm; +32 cudnn_batch_norm; +32 cudnn_batch_norm");
  const Tensor gradient = bench.input({2, 16, 8}, DType::kFloat32, false);
  bench.start();
  bench.backward(y, gradient);
  EXPECT_EQ(bench.events(),
            "+1024 clone; +1024 cudnn_batch_norm_backward; +32 cudnn_batch_norm_backward; "
            "+32 cudnn_batch_norm_backward; -1024; -1024; -32; -32");
}

// group_norm copies what is not row-major before its node, which keeps the copy; torch 2.11's host code requests these.
TEST(Images, GroupNormKeepsTheCopyOfImagesWhoseChannelsAreLast) {
  TapeBench bench;
  bench.warm_up();
  constexpr DType kBfloat = DType::kBFloat16;
  const Tensor x = bench.input({4, 8, 8, 32}, kBfloat);
  const Tensor weight = bench.input({32}, kBfloat), bias = bench.input({32}, kBfloat);
  const Tensor gradient = bench.input({4, 32, 8, 8}, kBfloat, false);
  bench.start();
  const Tensor y = group_norm(permute(x, {0, 3, 1, 2}), weight, bias, 8);
  EXPECT_EQ(bench.requests(), (std::vector<Bytes>{16384, 16384, 64, 64, 512, 512, -512, -512}));
  bench.backward(y, gradient);
  EXPECT_EQ(bench.requests(), (std::vector<Bytes>{16384, 64, 64, 512, 512, 128, 128, 512, -128, -128, -512, -512, -512,
                                                  -16384, -64, -64}));
}

TEST(Images, GroupNormMakesNoGradientsOfFrozenWeights) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({4, 64, 8, 8});
  const Tensor weight = bench.input({64}, DType::kFloat32, false), bias = bench.input({64}, DType::kFloat32, false);
  const Tensor y = group_norm(x, weight, bias, 8);
  bench.start();
  bench.backward(y, bench.input({4, 64, 8, 8}, DType::kFloat32, false));
  const std::vector<Bytes> asked = bench.requests();
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 64 * 4), 0);
}

TEST(Images, EinsumPermutesOrMultiplies) {
  TapeBench bench;
  bench.warm_up();
  const Tensor patches = bench.input({2, 4, 4, 2, 2, 8});
  bench.start();
  const std::vector<Tensor> one{patches};
  EXPECT_TRUE(has_shape(einsum("nhwpqc->nchpwq", one), {2, 8, 4, 2, 4, 2}));
  EXPECT_EQ(bench.events(), "");
  const std::vector<Tensor> pair{bench.input({2, 4, 16}), bench.input({2, 8, 16})};
  bench.start();
  const Tensor product = einsum("bid, bjd -> bij", pair);
  EXPECT_TRUE(has_shape(product, {2, 4, 8}));
  EXPECT_EQ(bench.events(), "+256 bmm");
  EXPECT_TRUE(has_shape(einsum("...id,...jd->...ij", pair), {2, 4, 8}));
  EXPECT_TRUE(has_shape(einsum("bid,bjd", pair), {4, 8}));  // letters that appear once
  EXPECT_FALSE(einsum("bii,bjd->bj", pair).defined());
}

// Nothing is summed where the letters that the result lacks stand for one element: torch multiplies.
TEST(Images, EinsumOfOneElementMultiplies) {
  TapeBench bench;
  bench.warm_up();
  const std::vector<Tensor> pair{bench.input({4, 1, 16, 1}), bench.input({4, 1, 16, 1})};
  bench.start();
  const Tensor product = einsum("bcxd,bcyd->bcxy", pair);
  EXPECT_TRUE(has_shape(product, {4, 1, 16, 16}));
  EXPECT_EQ(bench.events(), "+4096 mul");
}

// Of recurrent_h100.jsonl.gz: workspaces in training, and inference; reserves.
TEST(Recurrent, AsksForWhatCudnnAskedFor) {
  using enum RecurrentCell;
  struct Measured {
    RecurrentShape shape;
    Bytes forward, backward, inference, reserve;
  };
  const Measured measured[] = {
      {{kLstm, DType::kFloat16, 200, 16, 32, 512, 1, false, false}, 27369856, 27369856, 27369856, 16384256},
      {{kGru, kBfloat, 16, 128, 128, 2048, 2, true, true}, 354419968, 354419968, 353895680, 220201216},
      {{kLstm, kBfloat, 200, 2, 200, 640, 2, true, true}, 69268000, 69268000, 69268000, 11392256},
      {{kLstm, kFloat, 32, 20, 226, 640, 2, false, true}, 50185632, 50185632, 48547232, 18073856},
      {{kGru, kBfloat, 100, 4, 200, 1500, 1, false, false}, 28868896, 28868896, 28708896, 7200256},
      {{kGru, DType::kFloat16, 50, 256, 100, 768, 3, false, true}, 150085888, 150085888, 130425088, 395673856},
      {{kPlain, kBfloat, 50, 48, 512, 1500, 1, false, false}, 48860448, 48860448, 31714848, 7200256},
      {{kGru, DType::kFloat16, 32, 256, 768, 64, 1, true, false}, 114346240, 114346240, 55494912, 12583168},
      {{kLstm, kFloat, 128, 64, 300, 128, 2, true, true}, 181453568, 181453568, 173720320, 92799232},
      {{kLstm, kBfloat, 128, 16, 512, 512, 1, true, false}, 57016704, 57016704, 57016704, 20971776},
      {{kPlain, kFloat, 128, 32, 300, 640, 1, true, false}, 137425408, 137425408, 111211008, 20971776},
      {{kLstm, kFloat, 32, 64, 300, 128, 1, false, false}, 34005760, 34005760, 34005760, 5243136},
  };
  for (const Measured& each : measured) {
    SCOPED_TRACE(each.forward);
    EXPECT_EQ(recurrent_workspace(each.shape, RecurrentPass::kForward), each.forward);
    EXPECT_EQ(recurrent_workspace(each.shape, RecurrentPass::kBackward), each.backward);
    EXPECT_EQ(recurrent_workspace(each.shape, RecurrentPass::kInference), each.inference);
    EXPECT_EQ(recurrent_reserve(each.shape), each.reserve);
  }
}

// torch.backends.cudnn.is_acceptable: weights in bfloat16 are not flattened, so each call gathers them.
TEST(Recurrent, GathersWeightsInBfloat16) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({8, 4, 16}, kBfloat);
  const std::vector<Tensor> states{bench.input({1, 4, 32}, kBfloat, false)};
  const std::vector<Tensor> weights{bench.input({32, 16}, kBfloat), bench.input({32, 32}, kBfloat)};
  std::vector<Tensor> flat = weights;
  flatten_parameters(bench.tape, RecurrentCell::kPlain, flat);
  bench.start();
  const auto results = recurrent(x, states, weights, {.cell = RecurrentCell::kPlain, .has_biases = false});
  // cuDNN's storage has 64 biases, though the network has none
  EXPECT_NE(bench.events().find("+3200 zeros"), std::string::npos) << bench.events();
}

// Matrices of a plain cell's second layer are as wide as an LSTM's that project, and have biases all the same: cuDNN's
// storage of nn.RNN(512, 512, num_layers=2, bias=False) is that of one with biases.
TEST(Recurrent, APlainCellOfTwoLayersProjectsNothing) {
  TapeBench bench;
  bench.warm_up();
  std::vector<Tensor> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(bench.input({512, 512}));
  bench.start();
  flatten_parameters(bench.tape, RecurrentCell::kPlain, weights);
  EXPECT_NE(bench.events().find("+4202496 zeros"), std::string::npos) << bench.events();
}

// Of each layer one product for all steps, and for each step one with the state and one that projects it.
TEST(Recurrent, ALayersInputIsMultipliedAtOnceBehindAProjectionToo) {
  constexpr std::int64_t kSteps = 5, kSamples = 3, kInputs = 16, kHidden = 32, kProjected = 8;
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({kSteps, kSamples, kInputs});
  const std::vector<Tensor> states{bench.input({2, kSamples, kProjected}, kFloat, false),
                                   bench.input({2, kSamples, kHidden}, kFloat, false)};
  std::vector<Tensor> weights;
  for (const std::int64_t width : {kInputs, kProjected}) {
    weights.push_back(bench.input({4 * kHidden, width}));
    weights.push_back(bench.input({4 * kHidden, kProjected}));
    weights.push_back(bench.input({kProjected, kHidden}));
  }
  bench.tape.kernels.recording = true;
  const std::size_t first = bench.tape.kernels.size();
  const auto results = recurrent(x, states, weights, {.has_biases = false, .layers = 2});
  std::map<std::int64_t, int> products;  // by how many rows
  for (std::size_t i = first; i < bench.tape.kernels.size(); ++i) {
    if (const auto* product = bench.tape.kernels.list()[i].as<work::Product>()) ++products[product->m];
  }
  EXPECT_EQ(products, (std::map<std::int64_t, int>{{kSamples, 2 * 2 * kSteps}, {kSteps * kSamples, 2}}));
}

// tests/measured/operator_streams_h200.jsonl.gz (lstm_projection_one, _deep, _both, lstm_projected_both) and a program
// of seed 13021
TEST(Recurrent, AProjectionHasStatesOfItsOwn) {
  struct Measured {
    RecurrentShape shape;
    Bytes workspace, reserve;
  };
  const Measured measured[] = {
      {{RecurrentCell::kLstm, kFloat, 128, 2, 48, 96, 1, false, false, 40}, 9127840, 631040},
      {{RecurrentCell::kLstm, kFloat, 64, 8, 64, 96, 2, false, false, 32}, 18280768, 2687232},
      {{RecurrentCell::kLstm, kFloat, 8, 50, 200, 64, 1, true, false, 24}, 20000928, 1305856},
      {{RecurrentCell::kLstm, kFloat, 197, 4, 96, 64, 2, true, false, 24}, 37344032, 5547776},
      {{RecurrentCell::kLstm, kFloat, 150, 40, 80, 512, 2, false, true, 128}, 101215808, 165984256},
      {{RecurrentCell::kLstm, DType::kFloat16, 250, 8, 64, 64, 1, false, false, 32}, 10115392, 1664256},
  };
  for (const Measured& each : measured) {
    SCOPED_TRACE(each.workspace);
    EXPECT_EQ(recurrent_workspace(each.shape, RecurrentPass::kForward), each.workspace);
    EXPECT_EQ(recurrent_workspace(each.shape, RecurrentPass::kBackward), each.workspace);
    EXPECT_EQ(recurrent_reserve(each.shape), each.reserve);
  }
}

TEST(Recurrent, GradientsOfWeightsShareOneStorage) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({8, 4, 16});
  const Tensor hidden = bench.input({1, 4, 32}, kFloat, false), cell = bench.input({1, 4, 32}, kFloat, false);
  const std::vector<Tensor> states{hidden, cell};
  const std::vector<Tensor> weights{bench.input({128, 16}), bench.input({128, 32}), bench.input({128}),
                                    bench.input({128}), bench.input({128, 8})};
  bench.start();
  const std::vector<Tensor> results = recurrent(x, states, std::span(weights).first(4), {});
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(has_shape(results[0], {8, 4, 32}));
  EXPECT_EQ(bench.events(),
            "+4096 _cudnn_rnn; +512 _cudnn_rnn; +512 _cudnn_rnn; +8505632 _cudnn_rnn; +20736 _cudnn_rnn; -8505632");
  bench.backward(results[0]);
  EXPECT_NE(bench.events().find("+25600 zeros"), std::string::npos) << bench.events();  // 128 * (16 + 32 + 2) * 4
  ASSERT_EQ(bench.gradients.size(), 6U);
  EXPECT_EQ(bench.gradients[1].block(), bench.gradients[4].block());
}

}  // namespace
}  // namespace memcalc
