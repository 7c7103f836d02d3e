// cost/missing_rates.h: what is not known of a card gives no time, and the report says what it is.
#include "memcalc/cost/missing_rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "memcalc/cost/kernel_time.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/spec_file.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using Names = std::vector<std::string>;

constexpr Operator kOp{"aten::mm"};

using test::registry;

DeviceSpec card(int major, int minor) {
  DeviceSpec device;
  device.name = "card";
  device.compute_capability_major = major;
  device.compute_capability_minor = minor;
  device.multiprocessors = 100;
  device.memory_bandwidth_bytes_per_second = 1e12;
  device.bf16_flops_per_second = device.fp16_flops_per_second = 1e14;
  device.tf32_flops_per_second = 5e13;
  device.fp32_flops_per_second = 1e13;
  device.pcie_bytes_per_second = 1e10;
  return device;
}

Kernel product(DType dtype, bool tf32 = false, KernelKind kind = KernelKind::kMatrixProduct) {
  Kernel kernel;
  kernel.op = &kOp;
  kernel.kind = kind;
  kernel.dtype = dtype;
  kernel.work = work::Product{.tf32 = tf32};
  return kernel;
}

Names missing(const Kernel& kernel, const DeviceSpec& device) {
  KernelList kernels;
  kernels.push_back(kernel);
  return missing_rates(kernels, device);
}

Report report_of(const char* gpu, Precision precision, const char* model = "gpt2") {
  RunOptions options;
  options.precision = precision;
  options.batch_size = 1;
  const ModelSpec spec = registry().model(model);
  return estimate(spec, resolve(spec, options), registry().device(gpu));
}

std::string line_with(const std::vector<std::string>& lines, const std::string& part) {
  for (const std::string& line : lines) {
    if (line.find(part) != std::string::npos) return line;
  }
  return {};
}

TEST(MissingRates, EachIsNamedOnce) {
  DeviceSpec device = card(8, 0);
  KernelList kernels;
  for (int i = 0; i < 2; ++i) {
    kernels.push_back(product(DType::kBFloat16));
    kernels.push_back(product(DType::kFloat32, false, KernelKind::kVectorized));
  }
  EXPECT_EQ(missing_rates(kernels, device), Names{});
  device.bf16_flops_per_second = device.fp32_flops_per_second = 0;
  device.multiprocessors = 0;
  EXPECT_EQ(missing_rates(kernels, device),
            (Names{"bfloat16 FLOP/s", "the number of multiprocessors", "float32 FLOP/s"}));
}

TEST(MissingRates, OfTypesThatTheCardHasNoUnitsFor) {
  const struct {
    DeviceSpec device;
    Kernel kernel;
    Names names;
  } cases[] = {
      {card(8, 0), product(DType::kBFloat16), {}},
      {card(7, 5), product(DType::kBFloat16), {"FLOP/s of bfloat16 that is emulated"}},
      {card(0, 0), product(DType::kBFloat16), {}},  // no CUDA device: what its spec says
      {card(7, 0), product(DType::kFloat16), {}},
      {card(6, 0), product(DType::kFloat16), {"FLOP/s of float16 summed in float32 without tensor cores"}},
      {card(6, 0), product(DType::kFloat32), {}},
      {card(7, 5), product(DType::kFloat32, true), {}},  // in float32
      {card(7, 5), product(DType::kUInt8), {}},
      {card(7, 0), product(DType::kUInt8), {"8-bit FLOP/s"}},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(missing(each.kernel, each.device), each.names)
        << each.device.compute_capability_major << "." << each.device.compute_capability_minor << " "
        << name_of(each.kernel.dtype);
  }
}

TEST(MissingRates, OfTheWayBetweenCards) {
  DeviceSpec device = card(9, 0);
  Kernel all_reduce = product(DType::kFloat32);
  all_reduce.work = work::Communication{.kind = Collective::kAllReduce, .ranks = 2};
  EXPECT_EQ(missing(all_reduce, device), Names{});
  device.pcie_bytes_per_second = 0;
  EXPECT_EQ(missing(all_reduce, device), Names{"bytes/s between cards (NVLink or PCIe)"});
  all_reduce.work = work::Communication{.kind = Collective::kAllReduce, .ranks = 1};
  EXPECT_EQ(missing(all_reduce, device), Names{});
}

TEST(TensorCores, AreThoseThatTheCardHas) {
  const Kernel bf16 = product(DType::kBFloat16), fp16 = product(DType::kFloat16);
  const Kernel tf32 = product(DType::kFloat32, true), fp32 = product(DType::kFloat32);
  const Kernel sum = product(DType::kFloat16, false, KernelKind::kRowSum);
  const auto used = [](const DeviceSpec& device, const std::vector<Kernel>& kernels) {
    std::string shown;
    for (const Kernel& kernel : kernels) shown += uses_tensor_cores(kernel, device) ? 'y' : 'n';
    return shown;
  };
  EXPECT_EQ(used(card(9, 0), {bf16, fp16, tf32, fp32, sum}), "yyynn");
  EXPECT_EQ(used(card(7, 5), {bf16, fp16, tf32, fp32, sum}), "nynnn");
  EXPECT_EQ(used(card(6, 0), {bf16, fp16, tf32, fp32, sum}), "nnnnn");
}

TEST(Tf32, RunsAsFloat32WhereTheCardHasNone) {
  DeviceRates rates;
  rates.tf32.plain = 0.1;
  const DeviceSpec turing = card(7, 5);
  Kernel tf32 = product(DType::kFloat32, true), fp32 = product(DType::kFloat32, false);
  tf32.work = work::Product{.m = 4096, .n = 4096, .k = 4096, .tf32 = true};
  fp32.work = work::Product{.m = 4096, .n = 4096, .k = 4096, .tf32 = false};
  EXPECT_EQ(kernel_seconds(tf32, turing, rates), kernel_seconds(fp32, turing, rates));
  EXPECT_EQ(peak_flops(tf32, turing), turing.fp32_flops_per_second);
  EXPECT_EQ(peak_flops(tf32, card(8, 0)), 5e13);
}

TEST(MissingRates, ReportsHaveNoTimeAndSayWhy) {
  const struct {
    const char* gpu;
    Precision precision;
    const char* why;
  } cases[] = {
      {"gaudi2", Precision::kAmpBf16, "gaudi2-96gb: float32 FLOP/s"},
      {"tpu-v4", Precision::kAmpBf16, "tpu-v4: float32 FLOP/s"},
  };
  for (const auto& each : cases) {
    const Report report = report_of(each.gpu, each.precision);
    EXPECT_FALSE(report.time) << each.gpu;
    const std::string line = line_with(report.not_modelled, "the time of a step");
    EXPECT_NE(line.find(each.why), std::string::npos) << each.gpu << ": " << line;
  }
}

TEST(MissingRates, EmulatedTypesAreAssumptions) {
  const Report t4 = report_of("t4", Precision::kAmpBf16);
  EXPECT_NE(line_with(t4.assumptions, "bfloat16 on t4: emulated"), "");
  EXPECT_EQ(line_with(report_of("t4", Precision::kAmpFp16).assumptions, "emulated"), "");
  EXPECT_EQ(line_with(report_of("a100", Precision::kAmpBf16).assumptions, "emulated"), "");
  const Report tf32 = report_of("t4", Precision::kTf32);
  EXPECT_NE(line_with(tf32.assumptions, "TF32 on t4: computed in float32"), "");
  const Report fp32 = report_of("t4", Precision::kFp32);
  EXPECT_EQ(tf32.time.value().step.step_seconds, fp32.time.value().step.step_seconds);
  EXPECT_EQ(tf32.time.value().step.tensor_core_share(), 0);
  EXPECT_EQ(line_with(fp32.assumptions, "TF32"), "");
}

TEST(MissingRates, ACardOfTheRequiredKeysHasNoTime) {
  const char* text = R"({"name": "own", "description": "own", "memory_bytes": 25757220864,
    "memory_bandwidth_bytes_per_second": 1e12, "source": "test", "date": "2026-11"})";
  DeviceSpec device = read_device_file(JsonDocument::parse(text, "own").root()).device;
  device.rates = registry().device("h100-sxm").rates;
  const ModelSpec model = registry().model("gpt2");
  RunOptions options;
  const Report report = estimate(model, resolve(model, options), device);
  EXPECT_FALSE(report.time);
  EXPECT_NE(line_with(report.not_modelled, "the time of a step: not known of own: "), "");
}

TEST(MissingRates, ARateBelowOneIsRefused) {
  const std::string text = R"({"name": "own", "description": "own", "memory_bytes": 1,
    "memory_bandwidth_bytes_per_second": 1e12, "source": "s", "date": "2026-11",
    "fp32_flops_per_second": )";
  const auto read = [&](const char* rate) {
    return read_device_file(JsonDocument::parse(text + rate + "}", "own").root()).device.fp32_flops_per_second;
  };
  EXPECT_EQ(read("0"), 0);  // the datasheet has none
  EXPECT_EQ(read("1e13"), 1e13);
  EXPECT_THROW((void)read("1e-300"), Error);
}

// Every card with every precision: a time, finite and positive, with shares of at most 1; or none, with the reason.
TEST(MissingRates, EveryTimeIsOneThatCanBe) {
  for (const DeviceListing& listing : registry().devices()) {
    for (const Precision precision :
         {Precision::kFp32, Precision::kTf32, Precision::kAmpFp16, Precision::kAmpBf16, Precision::kBf16}) {
      const Report report = report_of(listing.name.c_str(), precision);
      if (!report.time) {
        EXPECT_NE(line_with(report.not_modelled, "the time of a step: not known of " + listing.name), "");
        continue;
      }
      const Throughput& time = *report.time;
      EXPECT_TRUE(std::isfinite(time.step.step_seconds)) << listing.name;
      EXPECT_GT(time.step.step_seconds, 0) << listing.name;
      EXPECT_LT(time.step.step_seconds, 600) << listing.name;
      EXPECT_GT(time.mfu, 0) << listing.name;
      EXPECT_LE(time.mfu, time.hfu) << listing.name;
      EXPECT_LE(time.hfu, 1) << listing.name;
      EXPECT_LE(time.step.tensor_core_share(), 1) << listing.name;
    }
  }
}

}  // namespace
}  // namespace memcalc
