// spec/published_rates.h: what others measured of cards, and what is assumed of cards that nobody did.
#include "memcalc/spec/published_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/cost/convolution_times.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/spec/carried_rates.h"
#include "memcalc/spec/registry.h"
#include "memcalc/symbolic/aten.h"
#include "support/paths.h"
#include "support/recorded_file.h"

namespace memcalc {
namespace {

DeviceSpec card(const std::string& name) { return SpecRegistry(test::specs_dir().string()).device(name); }

Kernel product_of(DType dtype) {
  Kernel kernel;
  kernel.dtype = dtype;
  kernel.work = work::Product{.m = 4096, .n = 4096, .k = 4096};
  return kernel;
}

TEST(PublishedRates, OfTheMeasuredCardsNothingIsReplaced) {
  for (const char* name : {"h100-sxm", "h200-sxm"}) {
    const DeviceSpec device = card(name);
    EXPECT_EQ(device.product_shares.half, 1) << name;
    EXPECT_EQ(device.product_shares.float32, 1) << name;
    EXPECT_EQ(device.rates->published_source, "") << name;
  }
}

// An H100's rates are of its limit, above which it draws what an H200 does; of a card that they are carried over to,
// its own published ones are.
TEST(PublishedRates, PowerIsOfTheMeasuredCard) {
  const PowerRates own = card("h100-sxm").rates->power, twin = card("h200-sxm").rates->power;
  EXPECT_EQ(own.products, twin.products);
  EXPECT_GT(own.full_clock, 1);
  EXPECT_EQ(twin.full_clock, 1) << "its rates are of short sweeps";
  EXPECT_EQ(card("a100-sxm4-80gb").rates->power.products, 0);
  EXPECT_EQ(card("h800-sxm5-80gb").rates->power.products, own.products) << "the same die at the same limit";
}

// memcalc-probe of 0.2.0 wrote it on two H200s: softmax's rates are younger.
TEST(PublishedRates, StandInForWhatAFileDoesNotSay) {
  const DeviceSpec device = card((test::measured_dir() / "probe/h200_x2_device.json").string());
  EXPECT_FALSE(device.rates->predicted);
  EXPECT_DOUBLE_EQ(device.rates->vectorized.bandwidth, 0.9357);
  EXPECT_THAT(device.rates->unsaid, testing::IsSupersetOf({"depthwise", "blocks", "softmax", "memory_efficient"}));
  EXPECT_THAT(device.rates->unsaid, testing::Not(testing::Contains("vectorized")));
  EXPECT_EQ(device.rates->softmax.launch_us, card("h100-sxm").rates->softmax.launch_us);
  EXPECT_EQ(device.rates->convolution_times, "");
}

// 164.8 of 165.2 TFLOP/s over the H100's 79.9 %: a GeForce reaches its datasheet in 16 bits and two thirds in float32.
TEST(PublishedRates, ACardThatWasTimed) {
  const DeviceSpec device = card("rtx-4090");
  EXPECT_TRUE(device.product_shares.of_card);
  EXPECT_NEAR(device.product_shares.half, 164.81 / 165.2 / 0.799, 5e-3);
  EXPECT_NEAR(device.product_shares.float32, 0.662 / 0.776, 5e-3);
  EXPECT_NEAR(sustained_flops(product_of(DType::kBFloat16), device),
              device.product_shares.half * device.bf16_flops_per_second, 1);
}

// bfloat16 is not compared with float16: the H100 itself is 4 % slower in float16.
TEST(PublishedRates, ACardWithoutBfloat16IsComparedInFloat16) {
  EXPECT_NEAR(card("t4").product_shares.half, 41.93 / 65.0 / 0.767, 5e-3);
}

// Products that the card has no units for are a part of float32's, whatever the datasheet says of the type.
TEST(PublishedRates, TypesWithoutUnitsAreTimedByTheirProducts) {
  const auto over_float32 = [](const char* name, DType dtype) {
    const DeviceSpec device = card(name);
    const double half = sustained_flops(product_of(dtype), device);
    return half / sustained_flops(product_of(DType::kFloat32), device);
  };
  EXPECT_NEAR(over_float32("t4", DType::kBFloat16), 2.27 / 4.35, 1e-9);
  EXPECT_NEAR(over_float32("v100-sxm2-16gb", DType::kBFloat16), 10.34 / 14.06, 1e-9);
  EXPECT_NEAR(over_float32("v100-sxm2-32gb", DType::kBFloat16), 0.731, 1e-9) << "as others of 7.0";
  EXPECT_NEAR(over_float32("p100-pcie-16gb", DType::kFloat16), 8.39 / 8.63, 1e-9);
  EXPECT_EQ(peak_flops(product_of(DType::kFloat16), card("p100-pcie-16gb")),
            card("p100-pcie-16gb").fp32_flops_per_second);
  EXPECT_GT(over_float32("t4", DType::kFloat16), 5) << "its tensor cores";
  const Kernel bfloat16 = product_of(DType::kBFloat16), float32 = product_of(DType::kFloat32);
  const DeviceSpec t4 = card("t4");
  EXPECT_GT(kernel_seconds(bfloat16, t4, *t4.rates), 1.7 * kernel_seconds(float32, t4, *t4.rates));
}

TEST(PublishedRates, ACardThatNobodyTimedIsLikeOthersOfItsKind) {
  const DeviceSpec geforce = card("rtx-3060-12gb"), workstation = card("rtx-a5000");
  EXPECT_FALSE(geforce.product_shares.of_card);
  EXPECT_GT(geforce.product_shares.half, 1.2) << "GeForce of compute capability 8.6";
  EXPECT_LT(workstation.product_shares.half, 1.1) << "the same chips with tensor cores that sum at the full rate";
  EXPECT_EQ(card("tpu-v4").product_shares.half, 1) << "of its kind nothing was published";
}

TEST(PublishedRates, FlashAttentionOfAmpereReachesWhatItsPaperSays) {
  const DeviceSpec device = card("a100-sxm4-80gb");
  Kernel kernel = product_of(DType::kBFloat16);
  kernel.kind = KernelKind::kFlashAttention;
  const work::Attention attention{.heads = 64, .queries = 16384, .keys = 16384, .width = 128};
  const double flops = 4.0 * 64 * 16384 * 16384 * 128;
  const double seconds = attention_seconds(kernel, attention, device, device.rates->flash);
  EXPECT_NEAR(flops / seconds / device.bf16_flops_per_second, 0.69, 0.02);  // 73 % forward by the paper
}

TEST(PublishedRates, OfBlackwellOnesTheProductsWereTimedByShape) {
  for (const char* name : {"b200-sxm-180gb", "gb200-186gb"}) {
    const DeviceSpec device = card(name);
    EXPECT_EQ(device.product_shares.half, 1) << name;
    EXPECT_LT(device.rates->half.plain, 0.6) << name;
    EXPECT_NE(device.rates->published_source, "") << name;
  }
}

// Between an H100 of 700 W and one of 350; a die whose power at 700 W is known slows down in each step instead.
TEST(PublishedRates, ACardOfAnotherPowerLimitReachesWhatItsPowerAllows) {
  const auto half = [](const char* name) { return sustained_flops(product_of(DType::kBFloat16), card(name)); };
  const double h100 = 0.799;
  EXPECT_NEAR(half("h100-sxm-96gb"), half("h100-sxm"), 1);
  EXPECT_EQ(card("h100-sxm-96gb").rates->power.watts, 700);
  EXPECT_EQ(card("h100-nvl-94gb").rates->power.watts, 0);
  EXPECT_NEAR(half("h100-nvl-94gb") * h100, 541e12, 3e12);
  EXPECT_NEAR(half("h800-sxm5-80gb"), half("h100-sxm"), 1) << "of 700 W, too";
  EXPECT_NEAR(half("h100-pcie-80gb") * h100, 496e12, 1e12) << "was timed";
  // Of 150 W between an RTX A2000 of 70 and an RTX A6000 of 300; its kind's median share would be 102.
  EXPECT_NEAR(half("a10") * h100, 69.7e12, 0.5e12);
  EXPECT_NEAR(half("rtx-a5000") * h100, 91e12, 0.5e12) << "of 230 W: no more than its kind's share";
  // An A100's products were timed by shape at 300 W.
  EXPECT_NEAR(half("a100-sxm4-80gb") * h100, 253e12, 0.5e12);
  EXPECT_NEAR(half("a100-pcie-80gb") * h100, 229.7e12, 0.5e12);
  EXPECT_NEAR(half("a30") * h100, 0.811 * 165e12, 0.5e12) << "no more than its kind's share";
  // float32 has less in the same way.
  EXPECT_NEAR(card("a10").product_shares.float32 / card("rtx-a5000").product_shares.float32, 69.7 / 102.4, 0.01);
}

// What a Hopper card computes of misaligned rows are kernels of Turing and Ampere, which go with cycles. The numbers
// are the rule's own: of these cards no misaligned product was measured (tests/cli/answers_test.py has a published
// step).
TEST(PublishedRates, MisalignedProductsOfCardsBeforeHopperLoseLess) {
  const auto loss = [](const char* name, std::int64_t columns) {
    const DeviceSpec device = card(name);
    Kernel kernel = product_of(DType::kFloat16);
    const auto seconds = [&](std::int64_t n) {
      const work::Product product{.batch = 1, .m = 16384, .n = n, .k = 4096};
      return product_seconds(kernel, product, device, device.rates->half);
    };
    return seconds(columns) / seconds(16384);
  };
  EXPECT_GT(loss("h100-sxm", 16383), 5.5);
  EXPECT_NEAR(loss("a100-sxm4-80gb", 16383), 3.3, 0.2);
  EXPECT_NEAR(loss("a100-sxm4-80gb", 16382), 1.7, 0.1);
  EXPECT_NEAR(loss("rtx-3090", 16383), 2.2, 0.2) << "half as many units that load";
  EXPECT_LT(loss("rtx-3090", 16382), 1.3);
  EXPECT_NEAR(loss("v100-sxm2-16gb", 16383), loss("h100-sxm", 16383), 0.5) << "has none of these kernels";
}

// Rows of tests/measured/published/NAME after its comments, each line given to `read`.
void for_each_line(const std::string& name, const std::function<void(std::istringstream&)>& read) {
  std::istringstream text = measured::open_recorded(test::measured_dir() / "published" / name);
  ASSERT_TRUE(text) << name;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    read(words);
  }
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? std::nan("") : values[values.size() / 2];
}

// 240 convolutions of DeepBench of each card: forward, of the input, of the weights. Single ones are far off (nine in
// ten within 55 to 95 %: cuDNN's algorithms for windows of 3 x 3 are not told apart), so that medians are compared.
TEST(PublishedRates, Float32ConvolutionsOfCardsWithFewLanesAreRightInTheMedian) {
  std::map<std::string, std::array<std::vector<double>, 3>> errors;  // by card and pass
  std::map<std::string, DeviceSpec> cards;
  for_each_line("deepbench_convolutions.txt", [&](std::istringstream& line) {
    std::string name;
    std::array<double, 12> of{};  // width height channels images filters window padding strides output pixels
    line >> name;
    for (double& value : of) line >> value;
    const auto [width, height, channels, images, filters] = std::array{of[0], of[1], of[2], of[3], of[4]};
    const double window = of[5] * of[6], entering = width * height * images, pixels = of[11] * images;
    constexpr double kFew = 8, kItem = 4;  // channels of a first layer, which other kernels compute; bytes of a value
    if (channels < kFew) return;
    if (!cards.contains(name)) cards.emplace(name, card(name));
    const DeviceSpec& device = cards.at(name);
    for (std::size_t pass = 0; pass < 3; ++pass) {
      double published = 0;
      line >> published;
      Kernel kernel;
      kernel.dtype = DType::kFloat32;
      kernel.kind = KernelKind::kConvolution;
      kernel.bytes = kItem * (entering * channels + pixels * filters + window * channels * filters);
      const work::Convolution convolution{.groups = 1,
                                          .pixels = static_cast<std::int64_t>(pixels),
                                          .channels = static_cast<std::int64_t>(filters),
                                          .depth = static_cast<std::int64_t>(channels * window),
                                          .group_channels = channels,
                                          .backward = pass > 0,
                                          .weight_gradient = pass == 2,
                                          .images = static_cast<std::int64_t>(images)};
      kernel.work = convolution;
      errors[name].at(pass).push_back(
          1e3 * measured_convolution_seconds(kernel, convolution, device, *device.rates) / published - 1);
    }
  });
  const auto expect = [&](const std::string& name, const std::array<double, 3>& medians) {
    for (std::size_t pass = 0; pass < 3; ++pass) {
      EXPECT_EQ(errors[name].at(pass).size(), 80U) << name;
      EXPECT_NEAR(median_of(errors[name].at(pass)), medians.at(pass), 0.03) << name << " " << pass;
    }
  };
  expect("v100-sxm2-16gb", {0.09, 0.04, 0.01});
  expect("t4", {0.30, 0.18, 0.06});
  expect("p100-pcie-16gb", {-0.10, -0.10, -0.08});
}

// 183 products and 24 causal attentions that SimuMax's authors timed on an A100 PCIe of 80 GB.
TEST(PublishedRates, AnA100OfLessPowerMultipliesAsOthersTimedIt) {
  const DeviceSpec device = card("a100-pcie-80gb"), sxm = card("a100-sxm4-80gb");
  std::vector<double> products, of_sxm, forward, backward;
  for_each_line("simumax_a100_pcie.txt", [&](std::istringstream& line) {
    std::string kind;
    std::array<std::int64_t, 6> of{};
    double microseconds = 0;
    line >> kind;
    for (std::int64_t& value : of) line >> value;
    line >> microseconds;
    Kernel kernel = product_of(DType::kBFloat16);
    if (kind == "product") {
      const auto [layout, sums, m, n, k, batch] = of;
      constexpr std::array kLayouts = {Transposed::kNone, Transposed::kFirst, Transposed::kSecond};
      work::Product product{
          .batch = batch, .m = m, .n = n, .k = k, .transposed = kLayouts.at(static_cast<std::size_t>(layout))};
      if (sums != 0) product.accumulated_bytes = 8.0 * static_cast<double>(m * n);
      kernel.bytes = 2.0 * static_cast<double>(n * k + k * m) + (sums != 0 ? 8.0 : 2.0) * static_cast<double>(m * n);
      kernel.work = product;
      products.push_back(1e6 * product_seconds(kernel, product, device, device.rates->half) / microseconds - 1);
      of_sxm.push_back(1e6 * product_seconds(kernel, product, sxm, sxm.rates->half) / microseconds - 1);
      return;
    }
    const work::Attention attention{
        .heads = of[2], .queries = of[1], .keys = of[1], .width = of[3], .causal = true, .backward = of[0] != 0};
    kernel.kind = KernelKind::kFlashAttention;
    kernel.work = attention;
    (attention.backward ? backward : forward)
        .push_back(1e6 * attention_seconds(kernel, attention, device, attention_rates(kernel, *device.rates)) /
                       microseconds -
                   1);
  });
  EXPECT_EQ(products.size(), 183U);
  EXPECT_NEAR(median_of(products), -0.01, 0.02);
  EXPECT_NEAR(median_of(of_sxm), -0.09, 0.02) << "a card of 400 W is as much quicker";
  EXPECT_NEAR(median_of(forward), 0.06, 0.03);
  EXPECT_NEAR(median_of(backward), 0.04, 0.03);
}

// Backward of 16 volumes of 64 x 64 x 64 in float16, cuDNN 8.2 (xwang233/code-snippet): 6.899 and 8.515 ms of 16 and 64
// channels on an A100, 10.732 of 64 on a V100. Hopper's rule says 6.2, 6.4 and 7.1.
TEST(PublishedRates, BatchNormThatReadsAgainHidesNothingBeforeHopper) {
  const auto milliseconds = [](const DeviceSpec& device, std::int64_t channels) {
    constexpr std::int64_t kValues = 16 * 64 * 64 * 64;
    Kernel kernel;
    kernel.dtype = DType::kFloat16;
    kernel.op = &aten::kCudnnBatchNormBackward;
    const work::Rows rows{.count = channels, .width = kValues, .backward = true};
    return 1e3 * batch_norm_seconds(kernel, rows, device, *device.rates);
  };
  EXPECT_NEAR(milliseconds(card("a100-sxm4-40gb"), 16), 6.899, 0.1);
  EXPECT_NEAR(milliseconds(card("a100-sxm4-40gb"), 64), 8.515, 0.6);
  EXPECT_NEAR(milliseconds(card("v100-sxm2-32gb"), 64), 10.732, 0.6);
  EXPECT_NEAR(milliseconds(card("h100-sxm"), 64), 1.48e-6 * 16 * 64 * 64 * 64, 0.05);
}

TEST(PublishedRates, ProductsInFloat8AreFasterWhereTheCardHasUnitsForThem) {
  const auto seconds = [](const char* name, const Operator& op) {
    const DeviceSpec device = card(name);
    Kernel kernel = product_of(DType::kBFloat16);
    kernel.op = &op;
    return kernel_seconds(kernel, device, *device.rates);
  };
  EXPECT_NEAR(seconds("h100-sxm", aten::kMm) / seconds("h100-sxm", aten::kScaledMm), 1.7, 0.1);
  EXPECT_EQ(seconds("a100-sxm4-80gb", aten::kMm), seconds("a100-sxm4-80gb", aten::kScaledMm));
}

// Of a card whose copies were published; by those of an H100 and an H200 a GH200 would reach as much as it does.
TEST(PublishedRates, MemoryBoundKernelsGoWithTheCardsCopies) {
  const auto bandwidth = [](const char* name) { return card(name).rates->vectorized.bandwidth; };
  const double h100 = bandwidth("h100-sxm");
  EXPECT_NEAR(bandwidth("a100-sxm4-80gb"), h100 * 0.866 / 0.9015, 1e-9);
  EXPECT_NEAR(bandwidth("t4"), h100, 1e-9) << "nobody published it";
  EXPECT_LT(bandwidth("mi300x-192gb"), 0.85 * bandwidth("h100-sxm"));
  const MemoryScaling scaling = card("gh200-96gb").rates->scaling;
  EXPECT_NEAR(carried_bandwidth(scaling, 0.9015, 4e12, 132), 0.870, 2e-3);
  EXPECT_NEAR(card("a100-sxm4-80gb").rates->multi_tensor.bandwidth, card("h100-sxm").rates->multi_tensor.bandwidth,
              1e-9)
      << "lists of optimizers";
}

// Rows of specs/measured/b200-sxm-180gb/operator_times.txt.
TEST(PublishedRates, AnOperatorThatWasTimedTakesThatTime) {
  const DeviceSpec device = card("b200-sxm-180gb");
  const auto microseconds = [&](const work::Product& product) {
    Kernel kernel = product_of(DType::kBFloat16);
    kernel.work = product;
    return 1e6 * kernel_seconds(kernel, device, *device.rates);
  };
  using enum Transposed;
  EXPECT_NEAR(microseconds({.batch = 1, .m = 32768, .n = 53248, .k = 16384, .transposed = kSecond}), 53504.8, 535);
  work::Product gradient{.batch = 1, .m = 26624, .n = 16384, .k = 4096, .transposed = kFirst};
  gradient.accumulated_bytes = 8.0 * 26624 * 16384;
  EXPECT_NEAR(microseconds(gradient), 3519.0, 35) << "into a buffer in float32";
  EXPECT_NEAR(microseconds({.batch = 1, .m = 26624, .n = 26624, .k = 26624}), 26624.0 * 26624 * 26624 * 2 / 1.05e9, 1e3)
      << "between those that were timed";
  // What was timed for less than 1.6 s, which no step sustains
  EXPECT_NEAR(microseconds({.batch = 1, .m = 4096, .n = 10240, .k = 8192, .transposed = kSecond}),
              2.0 * 4096 * 10240 * 8192 / 1.076e9, 12)
      << "for 47 ms at 1,452 TFLOP/s";
  EXPECT_NEAR(microseconds({.batch = 1, .m = 4096, .n = 26624, .k = 16384, .transposed = kNone}),
              2.0 * 4096 * 26624 * 16384 / 1.046e9, 34)
      << "for 0.3 s at 1,120";

  Kernel attention = product_of(DType::kBFloat16);
  attention.kind = KernelKind::kCudnnAttention;
  work::Attention of{.heads = 8, .queries = 131072, .keys = 131072, .width = 128, .causal = true};
  const auto timed = [&] {
    attention.work = of;
    return 1e3 * kernel_seconds(attention, device, *device.rates);
  };
  EXPECT_NEAR(timed(), 31.188, 0.3);
  of.backward = true;
  EXPECT_NEAR(timed(), 94.610, 0.9);
  of.causal = false;
  EXPECT_NEAR(timed(), 1e3 * attention_seconds(attention, of, device, device.rates->cudnn), 1e-6) << "none were timed";
}

TEST(PublishedRates, OtherCardsHaveTheirFormulas) {
  for (const char* name : {"h100-sxm", "a100-sxm4-80gb", "rtx-5090"}) {
    const DeviceSpec device = card(name);
    Kernel kernel = product_of(DType::kBFloat16);
    const double formula = product_seconds(kernel, *kernel.as<work::Product>(), device, device.rates->half);
    EXPECT_EQ(kernel_seconds(kernel, device, *device.rates), formula) << name;
  }
}

TEST(PublishedRates, AWrongFileIsRefused) {
  const std::string path = testing::TempDir() + "published_rates.json";
  for (const char* text : {"{}", R"({"products": {"reference": {"half_share": 0}}, "flash_attention": {}})"}) {
    std::ofstream(path) << text;
    DeviceSpec device = card("rtx-4090");
    DeviceRates rates = *device.rates;
    EXPECT_THROW(add_published_rates(path, device, rates), Error) << text;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace memcalc
