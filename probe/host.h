// memcalc-probe host: how fast this machine issues PyTorch's operators.
#pragma once

#include <string>

namespace memcalc::probe {

struct HostOptions {
  std::string output_path;         // the host file, for memcalc --host FILE
  std::string python = "python3";  // which has memcalc, torch and transformers
};

/// A host file times Python, PyTorch and transformers, which this program has none of: `python -m memcalc.measure
/// --host` is run in its place. Throws InputError where that Python is not there or lacks a package; else does not
/// return.
[[noreturn]] void measure_host(const HostOptions& options);

}  // namespace memcalc::probe
