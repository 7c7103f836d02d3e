// memcalc-probe: what a card and its host really do, for memcalc. Needs a CUDA card; PyTorch only for the host.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "arguments.h"
#include "host.h"
#include "input_error.h"
#include "replay.h"

namespace {

constexpr const char* kUsage =
    "usage: memcalc-probe measure [--output FILE] [--rows FILE] [--specs DIR] [--budget SECONDS]\n"
    "       memcalc-probe host FILE [--python PATH]\n"
    "       memcalc-probe run TRACE\n"
    "\n"
    "measure  reads card 0 in under a minute: context, products, bandwidth, launches,\n"
    "         transfers, collectives; writes a device file for memcalc --gpu FILE\n"
    "host     times how fast this machine issues PyTorch's operators, in half a minute, and\n"
    "         writes a host file for memcalc --host FILE. It runs python -m memcalc.measure\n"
    "         --host FILE: PATH is a Python [python3] with memcalc, torch and transformers\n"
    "run      replays a file of memcalc trace --format replay on the card: memory and\n"
    "         time, predicted and measured\n"
    "\n"
    "Exit status: 0 done, 2 wrong input or no card, 3 an error of CUDA.\n";

int run(const std::vector<std::string>& words) {
  const memcalc::probe::Arguments arguments = memcalc::probe::parse(words);
  switch (arguments.command) {
    case memcalc::probe::Command::kHelp: std::fputs(kUsage, stdout); return 0;
    case memcalc::probe::Command::kHost: memcalc::probe::measure_host(arguments.host);
    case memcalc::probe::Command::kMeasure: return memcalc::probe::measure(arguments.measure);
    case memcalc::probe::Command::kRun: return memcalc::probe::run_replay(arguments.replay_path);
  }
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const memcalc::probe::InputError& error) {
    std::fprintf(stderr, "memcalc-probe: error: %s (memcalc-probe --help)\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memcalc-probe: error: %s\n", error.what());
    return 3;
  }
}
