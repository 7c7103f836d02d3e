#include "memcalc/cost/product_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "memcalc/cost/kernel_time.h"
#include "memcalc/spec/registry.h"
#include "memcalc/symbolic/aten.h"
#include "support/paths.h"

namespace memcalc {
namespace {

DeviceSpec card(const std::string& name) { return SpecRegistry(test::specs_dir().string()).device(name); }

Kernel product_of(DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, Transposed how,
                  bool tf32 = false) {
  Kernel kernel;
  kernel.op = batch > 1 ? &aten::kBmm : &aten::kMm;
  kernel.kind = KernelKind::kMatrixProduct;
  kernel.dtype = dtype;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  kernel.flops = 2 * real(batch) * real(m) * real(n) * real(k);
  kernel.bytes =
      static_cast<double>(size_of(dtype)) * real(batch) * (real(m) * real(k) + real(n) * real(k) + real(m) * real(n));
  kernel.work = work::Product{.batch = batch, .m = m, .n = n, .k = k, .transposed = how, .tf32 = tf32};
  return kernel;
}

double microseconds(const Kernel& kernel, const DeviceSpec& device) {
  return 1e6 * kernel_seconds(kernel, device, *device.rates);
}

// Rows of specs/measured/h200-sxm/product_times.txt.
TEST(ProductTimes, AProductThatWasTimedTakesWhatItTook) {
  const DeviceSpec h200 = card("h200-sxm");
  EXPECT_NEAR(microseconds(product_of(DType::kFloat32, 1, 1152, 8192, 2048, Transposed::kSecond), h200), 989,
              0.04 * 989)
      << "1,024 rows take 684: 576 tiles of 128 x 128 fill 0.36 of their fifth wave";
  EXPECT_NEAR(microseconds(product_of(DType::kFloat32, 1, 8192, 960, 960, Transposed::kNone), h200), 338, 0.04 * 338);
  EXPECT_NEAR(microseconds(product_of(DType::kBFloat16, 1, 1280, 5120, 18432, Transposed::kFirst), h200), 353,
              0.04 * 353);
}

// tests/measured/decode_kernels_h200.jsonl.gz: a block for each 32 columns of the result goes over the whole depth.
TEST(ProductTimes, FewRowsOfFloat32WaitForTheDepthOfABlock) {
  const DeviceSpec h200 = card("h200-sxm");
  const auto of = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return microseconds(product_of(DType::kFloat32, 1, m, n, k, Transposed::kSecond), h200);
  };
  EXPECT_NEAR(of(8, 2048, 8192), 81.0, 0.05 * 81.0) << "64 blocks for 132 multiprocessors";
  EXPECT_NEAR(of(8, 4096, 14336), 146.3, 0.05 * 146.3);
  EXPECT_NEAR(of(8, 50304, 2048), 193.6, 0.05 * 193.6);
  EXPECT_NEAR(of(4, 2048, 8192), 43.3, 0.07 * 43.3);
  EXPECT_NEAR(of(16, 2048, 8192), 73.2, 0.06 * 73.2);
}

// A vocabulary of 51,865: kernels that load an element at a time, in TF32 as in 16 bits.
TEST(ProductTimes, RowsThatAreNotAlignedAreSlowInTf32) {
  const DeviceSpec h200 = card("h200-sxm");
  const double odd = microseconds(product_of(DType::kFloat32, 1, 2048, 51865, 1024, Transposed::kSecond, true), h200);
  const double even = microseconds(product_of(DType::kFloat32, 1, 2048, 51864, 1024, Transposed::kSecond, true), h200);
  EXPECT_GT(odd, 1.5 * even);
}

TEST(ProductTimes, TheFormulaStandsWhereNothingNearWasTimed) {
  const DeviceSpec h200 = card("h200-sxm"), h100 = card("h100-sxm"), a100 = card("a100-sxm4-80gb");
  const auto ratio = [](const Kernel& kernel, const DeviceSpec& device) {
    return measured_product_ratio(kernel, *kernel.as<work::Product>(), device, *device.rates);
  };
  const Kernel token = product_of(DType::kBFloat16, 1, 1, 4096, 4096, Transposed::kSecond);
  EXPECT_EQ(ratio(token, h200), 1);
  const Kernel batch = product_of(DType::kFloat32, 640, 360, 64, 360, Transposed::kNone, true);
  EXPECT_LT(ratio(batch, h200), 0.85);
  EXPECT_EQ(ratio(batch, h100), ratio(batch, h200)) << "batches were not fitted on an H100 either";
  EXPECT_EQ(ratio(batch, a100), 1) << "cuBLAS has other kernels there";
  EXPECT_EQ(ratio(product_of(DType::kFloat32, 1, 1152, 8192, 2048, Transposed::kSecond), h100), 1);
}

// What the table's ratios are over is the formula as it was fitted.
TEST(ProductTimes, OneIsTheMiddleOfWhatTheFormulaSays) {
  const DeviceSpec h200 = card("h200-sxm");
  const Kernel kernel = product_of(DType::kBFloat16, 1, 16384, 4096, 4096, Transposed::kSecond);
  EXPECT_NEAR(measured_product_ratio(kernel, *kernel.as<work::Product>(), h200, *h200.rates), 1, 0.06);
}

}  // namespace
}  // namespace memcalc
