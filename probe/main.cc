// memcalc-probe: what a card really does, for memcalc. No PyTorch; needs a CUDA card.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "measure.h"
#include "replay.h"

namespace {

constexpr const char* kUsage =
    "usage: memcalc-probe measure [--output FILE] [--rows FILE] [--specs DIR] [--budget SECONDS]\n"
    "       memcalc-probe run TRACE\n"
    "\n"
    "measure  reads card 0 in under a minute: context, products, bandwidth, launches,\n"
    "         transfers, collectives; writes a device file for memcalc --gpu FILE\n"
    "run      replays a file of memcalc trace --format replay on the card: memory and\n"
    "         time, predicted and measured\n";

int usage(const std::string& problem) {
  std::fprintf(stderr, "memcalc-probe: error: %s\n%s", problem.c_str(), kUsage);
  return 2;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return usage("expected a command, found nothing");
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (arguments[0] == "run") {
    if (arguments.size() != 2) return usage("run: expected one file");
    return memcalc::probe::run_replay(arguments[1]);
  }
  if (arguments[0] != "measure") return usage("unknown command '" + arguments[0] + "'; accepted: measure, run");
  memcalc::probe::MeasureOptions options;
  const char* path = std::getenv("MEMCALC_SPEC_PATH");
  options.specs = path != nullptr ? path : MEMCALC_SOURCE_SPECS;
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
    const std::string& value = arguments[i + 1];
    if (arguments[i] == "--output") {
      options.output_path = value;
    } else if (arguments[i] == "--rows") {
      options.rows_path = value;
    } else if (arguments[i] == "--specs") {
      options.specs = value;
    } else if (arguments[i] == "--budget") {
      options.budget_seconds = std::atof(value.c_str());
    } else {
      return usage("unknown option '" + arguments[i] + "'; accepted: --output, --rows, --specs, --budget");
    }
  }
  if (arguments.size() % 2 == 0) return usage("'" + arguments.back() + "': expected a value, found nothing");
  return memcalc::probe::measure(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memcalc-probe: error: %s\n", error.what());
    return 3;
  }
}
