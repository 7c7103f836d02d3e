// The keywords of memcalc.estimate(): one line each in options.cc, in the order of the command line's options.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "memcalc/memcalc.h"

namespace memcalc::python {

/// What is asked about time, beside the step's own (docs/cli.md, "Time").
struct TimeOptions {
  std::optional<double> tokens;  // of the whole training
  std::optional<double> sample_seconds, sample_bytes, storage_rate;
};

/// What a dict of keywords says.
struct Options {
  RunOptions run;
  ArchitectureChanges sizes;
  TimeOptions time;
};

/// Throws OptionError for an unknown keyword, a value that is not accepted, or two that contradict each other. A value
/// of None is as if the keyword were not given.
[[nodiscard]] Options read_options(const pybind11::dict& keywords);

/// What a message of the library is about: the keyword that it begins with, the name that it quotes first, or the path
/// before its colon; empty where it is about the whole.
[[nodiscard]] std::string part_of_message(const std::string& message);

/// [(keyword, option of the command line, Python type, description), …], for signatures, documentation and the test
/// that compares them with the command line.
[[nodiscard]] pybind11::list option_table();

/// The keywords that change the model's sizes rather than its training.
[[nodiscard]] pybind11::list size_keywords();

}  // namespace memcalc::python
