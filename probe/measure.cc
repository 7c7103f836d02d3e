#include "measure.h"

#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <vector>

#include "collectives.h"
#include "device_file.h"
#include "kernels.h"
#include "memcalc/memcalc.h"
#include "products.h"
#include "timing.h"

namespace memcalc::probe {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  std::array<char, 512> line{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  return line.data();
}

/// The timings as lines of JSON, in the form of tests/measured/harness/opbench.py, which `memcalc calibrate` reads too.
class Sweep {
 public:
  explicit Sweep(double budget) : budget_(budget) { MEMCALC_CUDA(cudaStreamCreate(&stream_)); }
  ~Sweep() { cudaStreamDestroy(stream_); }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  [[nodiscard]] double left() const { return budget_ - since(begin_); }
  [[nodiscard]] const std::string& rows() const { return rows_; }

  void products(std::size_t workspace_bytes);
  void memory();
  void transfers();
  void launches();

 private:
  void add(const std::string& row) { rows_ += row + "\n"; }

  Clock::time_point begin_ = Clock::now();
  double budget_;
  cudaStream_t stream_ = nullptr;
  std::string rows_;
};

void Sweep::products(std::size_t workspace_bytes) {
  constexpr std::array<std::array<int, 2>, 9> kWeights = {{{768, 768},
                                                           {3072, 768},
                                                           {768, 3072},
                                                           {1024, 1024},
                                                           {4096, 1024},
                                                           {2048, 2048},
                                                           {8192, 2048},
                                                           {4096, 4096},
                                                           {11008, 4096}}};
  constexpr std::array<int, 6> kRows = {64, 512, 1024, 2048, 8192, 16384};
  constexpr std::size_t kLargest = 16384UL * 11008 * 4;
  const DeviceBuffer a(kLargest), b(kLargest), c(kLargest);
  launch_fill_random(a.get(), a.size(), stream_);
  launch_fill_random(b.get(), b.size(), stream_);
  Products products(workspace_bytes);
  Stopwatch watch(stream_);
  for (const ProductType type :
       {ProductType::kBFloat16, ProductType::kTf32, ProductType::kFloat32, ProductType::kFloat16}) {
    const bool few = type != ProductType::kBFloat16;
    for (const auto& [columns, inner] : kWeights) {
      for (const int rows : kRows) {
        if (few && rows != 512 && rows != 2048 && rows != 8192) continue;
        if (type == ProductType::kFloat32 && static_cast<double>(rows) * columns * inner > 3e11) continue;
        if (left() < 20) return;
        const Product forward{type, 1, rows, columns, inner, false, true};
        const Product input_gradient{type, 1, rows, inner, columns, false, false};
        const Product weight_gradient{type, 1, columns, inner, rows, true, false};
        for (const auto& [layout, product] :
             {std::pair{"fwd", forward}, std::pair{"dgrad", input_gradient}, std::pair{"wgrad", weight_gradient}}) {
          if (!products.launch(product, a.get(), b.get(), c.get(), stream_)) continue;
          const double seconds = watch.seconds([&] { products.launch(product, a.get(), b.get(), c.get(), stream_); });
          add(text(R"({"kind": "gemm", "layout": "%s", "dtype": "%s", "M": %d, "N": %d, "K": %d, "ms": %.6f})", layout,
                   name_of(type), rows, columns, inner, seconds * 1e3));
        }
      }
    }
  }
}

void Sweep::memory() {
  constexpr std::size_t kMost = std::size_t{1} << 27;
  const DeviceBuffer from(kMost * 4 * 2), to(kMost * 4);
  Stopwatch watch(stream_);
  for (int shift = 10; shift <= 27; ++shift) {
    const std::size_t n = std::size_t{1} << shift, bytes = n * 4;
    const double copy = watch.seconds([&] { launch_stream(from.get(), to.get(), bytes, bytes, stream_); });
    add(text(R"({"kind": "eltwise", "op": "copy", "dtype": "fp32", "n": %zu, "ms": %.6f})", n, copy * 1e3));
    const double sum = watch.seconds([&] { launch_stream(from.get(), to.get(), 2 * bytes, bytes, stream_); });
    add(text(R"({"kind": "eltwise", "op": "add", "dtype": "fp32", "n": %zu, "ms": %.6f})", n, sum * 1e3));
    const double fill = watch.seconds([&] { launch_stream(from.get(), to.get(), 0, bytes, stream_); });
    add(text(R"({"kind": "eltwise", "op": "fill", "dtype": "fp32", "n": %zu, "ms": %.6f})", n, fill * 1e3));
  }
}

void Sweep::transfers() {
  constexpr std::size_t kMost = std::size_t{1} << 28;
  const DeviceBuffer device(kMost);
  void* pinned = nullptr;
  MEMCALC_CUDA(cudaMallocHost(&pinned, kMost));
  std::vector<char> pageable(kMost, 1);
  Stopwatch watch(stream_);
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{1} << 24, kMost}) {
    const auto time = [&](const char* op, void* to, const void* from, cudaMemcpyKind kind) {
      const double seconds = watch.seconds([&] { MEMCALC_CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream_)); });
      add(text(R"({"kind": "transfer", "op": "%s", "bytes": %zu, "ms": %.6f})", op, bytes, seconds * 1e3));
    };
    time("h2d_pinned", device.get(), pinned, cudaMemcpyHostToDevice);
    time("d2h_pinned", pinned, device.get(), cudaMemcpyDeviceToHost);
    time("h2d_pageable", device.get(), pageable.data(), cudaMemcpyHostToDevice);
  }
  cudaFreeHost(pinned);
}

void Sweep::launches() {
  constexpr int kCalls = 2000;
  launch_empty(stream_);
  MEMCALC_CUDA(cudaStreamSynchronize(stream_));
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kCalls; ++i) launch_empty(stream_);
  const double issued = since(begin) / kCalls;
  MEMCALC_CUDA(cudaStreamSynchronize(stream_));
  add(text(R"({"kind": "launch", "us_issue": %.3f, "us_total": %.3f})", issued * 1e6, since(begin) / kCalls * 1e6));
  const Clock::time_point alone = Clock::now();
  for (int i = 0; i < 200; ++i) {
    launch_empty(stream_);
    MEMCALC_CUDA(cudaStreamSynchronize(stream_));
  }
  add(text(R"({"kind": "launch", "us_round_trip": %.3f})", since(alone) / 200 * 1e6));
}

}  // namespace

int measure(const MeasureOptions& options) {
  const DeviceUse use;
  const std::int64_t idle = use.used_bytes();  // cudaMemGetInfo itself makes a context: then this is no idle figure
  use_first_card();
  DeviceFile file = describe_device();
  if (use.from_nvml()) file.context_bytes = use.used_bytes() - idle;

  Sweep sweep(options.budget_seconds);
  sweep.launches();
  sweep.memory();
  sweep.transfers();
  DeviceSpec chip;
  chip.compute_capability_major = file.major;
  sweep.products(static_cast<std::size_t>(cublas_workspaces(chip, {}).cublas));
  const std::string rows = sweep.rows() + measure_collectives();
  if (!options.rows_path.empty()) std::ofstream(options.rows_path) << rows;
  std::fprintf(stderr, "measured %s, %.1f s left of the budget\n", file.description.c_str(), sweep.left());
  return write_device_file(file, rows, options.specs, options.output_path);
}

}  // namespace memcalc::probe
