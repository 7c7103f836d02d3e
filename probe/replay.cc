#include "replay.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "device_memory.h"
#include "kernels.h"
#include "memcalc/alloc/caching_allocator.h"
#include "products.h"
#include "timing.h"

namespace memcalc::probe {

namespace {

/// PyTorch's allocator (alloc/caching_allocator.h) with every segment it opens taken from the driver.
class DriverAllocator {
 public:
  void allocate(std::int64_t block, std::int64_t bytes) {
    const Bytes reserved = allocator_.reserved();
    const CachingAllocator::Handle handle = allocator_.allocate(bytes);
    if (const Bytes grown = allocator_.reserved() - reserved; grown > 0) {
      Segment& segment = segments_[allocator_.address_of(handle)];
      segment.memory = DeviceBuffer(static_cast<std::size_t>(grown));
      segment.end = allocator_.address_of(handle) + grown;
    }
    blocks_[block] = handle;
    if (bytes > 0) ++segment_of(handle).live;
    peak_allocated_ = std::max(peak_allocated_, allocator_.allocated());
    peak_reserved_ = std::max(peak_reserved_, allocator_.reserved());
  }

  void free(std::int64_t block) {
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return;
    if (allocator_.size_of(found->second) > 0) --segment_of(found->second).live;
    allocator_.free(found->second);
    blocks_.erase(found);
  }

  void empty_cache() {
    allocator_.empty_cache();
    for (auto it = segments_.begin(); it != segments_.end();) it = it->second.live == 0 ? segments_.erase(it) : ++it;
  }

  [[nodiscard]] Bytes peak_allocated() const { return peak_allocated_; }
  [[nodiscard]] Bytes peak_reserved() const { return peak_reserved_; }
  [[nodiscard]] std::size_t segments() const { return segments_.size(); }

 private:
  struct Segment {
    DeviceBuffer memory;
    Bytes end = 0;
    std::int64_t live = 0;
  };

  Segment& segment_of(CachingAllocator::Handle handle) {
    return std::prev(segments_.upper_bound(allocator_.address_of(handle)))->second;
  }

  CachingAllocator allocator_;
  std::map<Bytes, Segment> segments_;  // by the address that the model gave them
  std::map<std::int64_t, CachingAllocator::Handle> blocks_;
  Bytes peak_allocated_ = 0, peak_reserved_ = 0;
};

/// A line "k …" of the file.
struct ReplayKernel {
  std::string kind, dtype, op;
  std::int64_t m = 0, n = 0, k = 0, batch = 0, repeats = 1;
  std::string transposed;
  double elements = 0, bytes = 0, predicted_us = 0;
};

struct ReplayFile {
  std::map<std::string, double> predicted;
  std::vector<std::string> events;
  std::vector<ReplayKernel> kernels;
};

ReplayFile read_replay(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line) || line.rfind("memcalc-replay 1", 0) != 0) {
    throw InputError(path + ": found no 'memcalc-replay 1' line; accepted: a file of memcalc trace --format replay");
  }
  ReplayFile file;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    char tag = 0;
    words >> tag;
    if (tag == 'p') {
      std::string key;
      double value = 0;
      words >> key >> value;
      file.predicted[key] = value;
    } else if (tag == 'k') {
      ReplayKernel kernel;
      words >> kernel.kind >> kernel.dtype >> kernel.transposed >> kernel.m >> kernel.n >> kernel.k >> kernel.batch >>
          kernel.elements >> kernel.bytes >> kernel.repeats >> kernel.predicted_us >> kernel.op;
      if (words.fail()) throw InputError(path + ": a line is cut off: " + line);
      file.kernels.push_back(std::move(kernel));
    } else if (tag == 'a' || tag == 'f' || tag == 'e') {
      file.events.push_back(line);
    }
  }
  return file;
}

double value_of(const ReplayFile& file, const char* key) {
  const auto found = file.predicted.find(key);
  return found == file.predicted.end() ? 0 : found->second;
}

void compare(const char* name, double predicted, double measured, const char* unit, double scale) {
  std::printf("%-28s %14.3f %14.3f %s  %+.2f %%\n", name, predicted * scale, measured * scale, unit,
              measured > 0 ? 100 * (predicted / measured - 1) : 0.0);
}

void replay_memory(const ReplayFile& file) {
  const DeviceUse use;
  const std::int64_t before = use.used_bytes();
  std::int64_t most_used = before;
  DriverAllocator allocator;
  std::size_t segments = 0;
  for (const std::string& line : file.events) {
    std::istringstream words(line);
    char tag = 0;
    std::int64_t block = 0, bytes = 0;
    words >> tag >> block >> bytes;
    if (tag == 'a') allocator.allocate(block, bytes);
    if (tag == 'f') allocator.free(block);
    if (tag == 'e') allocator.empty_cache();
    if (allocator.segments() != segments) {
      segments = allocator.segments();
      most_used = std::max(most_used, use.used_bytes());
    }
  }
  constexpr double kMiB = 1.0 / (1 << 20);
  compare("peak allocated", value_of(file, "peak_allocated_bytes"), static_cast<double>(allocator.peak_allocated()),
          "MiB", kMiB);
  compare("peak reserved", value_of(file, "peak_reserved_bytes"), static_cast<double>(allocator.peak_reserved()), "MiB",
          kMiB);
  compare("taken from the driver", value_of(file, "peak_reserved_bytes"), static_cast<double>(most_used - before),
          "MiB", kMiB);
}

/// Runs the kernels of one kind and adds up their time.
class KernelRunner {
 public:
  KernelRunner() : a_(kMost), b_(kMost), c_(kMost), products_(std::size_t{32} << 20), watch_(nullptr) {
    for (const DeviceBuffer* each : {&a_, &b_, &c_}) launch_fill_random(each->get(), each->size(), nullptr);
  }

  /// Seconds, or less than 0 where the probe has no kernel that stands for it.
  double seconds(const ReplayKernel& kernel) {
    const int size = kernel.dtype == "bf16" || kernel.dtype == "fp16" ? 2 : 4;
    const auto bytes = static_cast<std::size_t>(kernel.bytes);
    if (kernel.kind == "product") return product(kernel);
    if (bytes < 16 || bytes > 2 * kMost) return -1;
    const auto read = bytes / 2, write = bytes - read;
    if (kernel.kind == "vectorized" || kernel.kind == "converting" || kernel.kind == "random" ||
        kernel.kind == "indexed" || kernel.kind == "multi_tensor") {
      return watch_.seconds([&] { launch_stream(a_.get(), c_.get(), read, write, nullptr); });
    }
    if (kernel.kind == "strided") {
      const auto elements = std::min(static_cast<std::size_t>(kernel.elements), kMost / static_cast<std::size_t>(size));
      return watch_.seconds([&] { launch_strided(a_.get(), c_.get(), elements, size, nullptr); });
    }
    if (kernel.kind == "rowwise" || kernel.kind == "column_sum" || kernel.kind == "row_sum") {
      const auto columns = static_cast<std::size_t>(std::max<std::int64_t>(kernel.n, 1024));
      const std::size_t rows = std::max<std::size_t>(1, static_cast<std::size_t>(kernel.elements) / columns);
      if (rows * columns * static_cast<std::size_t>(size) > kMost) return -1;
      if (kernel.kind == "column_sum") {
        return watch_.seconds([&] { launch_column_sum(a_.get(), c_.get(), rows, columns, size, nullptr); });
      }
      return watch_.seconds([&] { launch_rowwise(a_.get(), c_.get(), rows, columns, size, nullptr); });
    }
    return -1;
  }

 private:
  static constexpr std::size_t kMost = std::size_t{6} << 30;

  double product(const ReplayKernel& kernel) {
    Product product;
    product.type = kernel.dtype == "bf16"   ? ProductType::kBFloat16
                   : kernel.dtype == "fp16" ? ProductType::kFloat16
                   : kernel.dtype == "tf32" ? ProductType::kTf32
                                            : ProductType::kFloat32;
    product.batch = std::max<std::int64_t>(1, kernel.batch);
    product.m = kernel.m;
    product.n = kernel.n;
    product.k = kernel.k;
    product.first_transposed = kernel.transposed == "first" || kernel.transposed == "both";
    product.second_transposed = kernel.transposed == "second" || kernel.transposed == "both";
    const double largest = static_cast<double>(product.batch) * bytes_of(product.type) *
                           std::max({static_cast<double>(product.m) * static_cast<double>(product.k),
                                     static_cast<double>(product.k) * static_cast<double>(product.n),
                                     static_cast<double>(product.m) * static_cast<double>(product.n)});
    if (largest > static_cast<double>(kMost)) return -1;
    if (!products_.launch(product, a_.get(), b_.get(), c_.get(), nullptr)) return -1;
    return watch_.seconds([&] { products_.launch(product, a_.get(), b_.get(), c_.get(), nullptr); });
  }

  DeviceBuffer a_, b_, c_;
  Products products_;
  Stopwatch watch_;
};

void replay_time(const ReplayFile& file) {
  struct Sum {
    double predicted = 0, measured = 0;
    std::int64_t kernels = 0, skipped = 0;
    double skipped_seconds = 0;
  };
  KernelRunner runner;
  std::map<std::string, Sum> by_kind;
  std::map<std::string, double> known;  // equal kernels are timed once
  for (const ReplayKernel& kernel : file.kernels) {
    std::ostringstream key;
    key << kernel.kind << ' ' << kernel.dtype << ' ' << kernel.transposed << ' ' << kernel.m << ' ' << kernel.n << ' '
        << kernel.k << ' ' << kernel.batch << ' ' << kernel.elements << ' ' << kernel.bytes;
    const auto [found, is_new] = known.try_emplace(key.str(), 0);
    if (is_new) found->second = runner.seconds(kernel);
    Sum& sum = by_kind[kernel.kind];
    const auto repeats = static_cast<double>(kernel.repeats);
    if (found->second < 0) {
      sum.skipped += kernel.repeats;
      sum.skipped_seconds += repeats * kernel.predicted_us * 1e-6;
      continue;
    }
    sum.kernels += kernel.repeats;
    sum.predicted += repeats * kernel.predicted_us * 1e-6;
    sum.measured += repeats * found->second;
  }
  Sum all;
  for (const auto& [kind, sum] : by_kind) {
    if (sum.kernels > 0)
      compare((kind + " x " + std::to_string(sum.kernels)).c_str(), sum.predicted, sum.measured, "ms", 1e3);
    all.predicted += sum.predicted;
    all.measured += sum.measured;
    all.skipped += sum.skipped;
    all.skipped_seconds += sum.skipped_seconds;
  }
  compare("all that ran", all.predicted, all.measured, "ms", 1e3);
  std::printf("%-28s %14.3f ms predicted, %lld kernels (fused attention, convolutions, …)\n", "not run here",
              all.skipped_seconds * 1e3, static_cast<long long>(all.skipped));
  std::printf("%-28s %14.3f ms\n", "step, predicted", value_of(file, "step_seconds") * 1e3);
}

}  // namespace

int run_replay(const std::string& path) {
  const ReplayFile file = read_replay(path);
  use_first_card();
  std::printf("%-28s %14s %14s\n", path.c_str(), "predicted", "measured");
  replay_memory(file);
  replay_time(file);
  return 0;
}

}  // namespace memcalc::probe
