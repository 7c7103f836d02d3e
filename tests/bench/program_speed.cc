// What an estimate of a recorded program costs against that of the family that it was recorded from: processor's time
// of each, both in turn, and their ratio, which docs/performance.md bounds at 1.3.
//
//   python -m memcalc.record --hf config.json -o program.json.gz
//   build/bench/bin/program_speed MODEL program.json.gz [ROUNDS]      MODEL: of the registry; the least of ROUNDS [31]
//   build/bench/bin/program_speed --load [ROUNDS [NAME]]   what decompressing and reading each shipped program takes,
//   with
//                                                          the functions of its first forward pass
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <string_view>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/spec_file.h"
#include "support/paths.h"

namespace memcalc {
namespace {

double processor_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double milliseconds_of(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  const double start = processor_milliseconds();
  const Report report = estimate(model, run, device);
  const double end = processor_milliseconds();
  if (report.parameters_total == 0) std::abort();  // keeps the estimate
  return end - start;
}

int load(int rounds, std::string_view name) {
  double slowest = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::specs_dir() / "programs")) {
    if (file.path().extension() != ".gz" || !file.path().filename().string().starts_with(name)) continue;
    double least = 1e9;
    for (int i = 0; i < rounds; ++i) {
      const double start = processor_milliseconds();
      const ModelSpec model = read_program_model(file.path().string());
      const Program& program = *model.architecture.as<ProgramSpec>().program;
      check_forward(program, program.forwards.front().function);
      least = std::min(least, processor_milliseconds() - start);
      if (model.name.empty()) std::abort();  // keeps the reading
    }
    std::printf("%7.2f ms %s\n", least, file.path().filename().c_str());
    slowest = std::max(slowest, least);
  }
  std::printf("%7.2f ms the slowest\n", slowest);
  return EXIT_SUCCESS;
}

int compare(const char* name, const char* path, int rounds) {
  const SpecRegistry registry(test::specs_dir().string());
  const DeviceSpec device = registry.device("h100-sxm");
  const ModelSpec models[] = {registry.model(name), read_program_model(path)};
  for (const Loop loop : {Loop::kTrainer, Loop::kBare}) {
    for (const Precision precision : {Precision::kBf16, Precision::kAmpBf16}) {
      double least[] = {1e9, 1e9};
      Bytes allocated[2]{};
      for (int i = 0; i < 2 * rounds; ++i) {
        const ModelSpec& model = models[i % 2];
        RunOptions options{.batch_size = 2, .precision = precision, .loop = loop};
        options.weights_dtype = precision == Precision::kBf16 ? DType::kBFloat16 : DType::kFloat32;
        options.sequence_length = 128;
        const RunSpec run = resolve(model, options).run;
        least[i % 2] = std::min(least[i % 2], milliseconds_of(model, run, device));
        if (i < 2) allocated[i] = estimate(model, run, device).memory.peak_allocated;
      }
      std::printf("%s %s %s: family %.3f ms, program %.3f ms, %.2f times; allocated %lld and %lld\n", name,
                  loop == Loop::kTrainer ? "trainer" : "bare", precision == Precision::kBf16 ? "bf16" : "amp-bf16",
                  least[0], least[1], least[1] / least[0], static_cast<long long>(allocated[0]),
                  static_cast<long long>(allocated[1]));
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace memcalc

int main(int argc, char** argv) {
  const bool loads = argc > 1 && std::string_view(argv[1]) == "--load";
  if (argc < 3 && !loads) {
    std::fprintf(stderr, "usage: program_speed MODEL PROGRAM [ROUNDS], or --load [ROUNDS [NAME]]\n");
    return 2;
  }
  try {
    if (loads) return memcalc::load(argc > 2 ? std::max(1, std::atoi(argv[2])) : 31, argc > 3 ? argv[3] : "");
    return memcalc::compare(argv[1], argv[2], argc > 3 ? std::max(1, std::atoi(argv[3])) : 31);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
