// How long one estimate of each model of the registry takes, with the options of `memcalc --model NAME` and again under
// --bf16; prints the slowest, and those beyond what docs/performance.md allows: 3 ms up to 10 billion parameters, 10 ms
// above. The time is that of the processor, which an estimate needs all the while: other work on the machine does not
// count, but for what it does to the caches.
//
//   build/bench/bin/registry_speed [ROUNDS]        times each estimate so often, the least counts [15]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/paths.h"

namespace memcalc {
namespace {

constexpr std::size_t kShown = 10;
constexpr std::int64_t kLarge = 10'000'000'000;

struct Timed {
  std::string name;
  std::string precision;
  std::int64_t parameters = 0;
  std::size_t events = 0;
  double least_ms = 0;
  double median_ms = 0;

  [[nodiscard]] double bound_ms() const { return parameters <= kLarge ? 3 : 10; }
};

double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double milliseconds_of(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  const double start = processor_ms();
  const Report report = estimate(model, run, device);
  const double end = processor_ms();
  if (report.parameters_total == 0) std::abort();  // keeps the estimate
  return end - start;
}

Timed timed(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, int rounds) {
  const SymbolicRun symbolic = run_symbolically(model, run, device);
  Timed result{.name = model.name,
               .precision = std::string(name_of(run.precision)),
               .parameters = 0,
               .events = symbolic.trace.events.size()};
  for (const ParameterInfo& each : symbolic.parameters) result.parameters += each.elements;
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(milliseconds_of(model, run, device));
  std::sort(times.begin(), times.end());
  result.least_ms = times.front();
  result.median_ms = times[times.size() / 2];
  return result;
}

std::vector<Timed> time_registry(int rounds) {
  const SpecRegistry registry(test::specs_dir().string());
  const DeviceSpec device = registry.device("h100-sxm");
  std::vector<Timed> all;
  for (const ModelListing& listing : registry.models()) {
    const ModelSpec model = registry.model(listing.name);
    for (const Precision precision : {Precision::kFp32, Precision::kAmpBf16}) {
      RunOptions options{.precision = precision};
      if (model.architecture.dimensions().default_length)
        options.sequence_length = 8;  // each token is a run of its own
      all.push_back(timed(model, resolve(model, options).run, device, rounds));
    }
  }
  return all;
}

void print(const Timed& each) {
  std::printf("%-24s %-8s %6.2f ms  median %6.2f  of %2.0f ms  %7zu events  %8.2f billion parameters\n",
              each.name.c_str(), each.precision.c_str(), each.least_ms, each.median_ms, each.bound_ms(), each.events,
              static_cast<double>(each.parameters) / 1e9);
}

int run(int rounds) {
  std::vector<Timed> all = time_registry(rounds);
  std::sort(all.begin(), all.end(), [](const Timed& a, const Timed& b) { return a.least_ms > b.least_ms; });
  for (const bool large : {false, true}) {
    std::printf("the slowest %s 10 billion parameters:\n", large ? "beyond" : "up to");
    std::size_t shown = 0;
    for (const Timed& each : all) {
      if ((each.parameters > kLarge) == large && shown++ < kShown) print(each);
    }
  }
  int missed = 0;
  for (const Timed& each : all) missed += each.least_ms > each.bound_ms() ? 1 : 0;
  std::printf("%zu estimates, %d beyond their bound\n", all.size(), missed);
  for (const Timed& each : all) {
    if (each.least_ms > each.bound_ms()) print(each);
  }
  return missed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace
}  // namespace memcalc

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  return memcalc::run(std::max(rounds, 1));
}
