// The keywords of memcalc.estimate(): the rows of the library's table (spec/run_fields.h), read from Python's values.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "memcalc/memcalc.h"

namespace memcalc::python {

/// What a dict of keywords asks, under their own names or the command line's (batch_size or bs). A value of None is as
/// if the keyword were not given. Throws OptionError for an unknown keyword or a value that is not accepted.
[[nodiscard]] RunRequest read_options(const pybind11::dict& keywords);

/// What a message of the library is about: the name that it quotes first, or the path before its colon; empty where it
/// is about the whole.
[[nodiscard]] std::string part_of_message(const std::string& message);

/// The keyword of an option: "batch_size" of "--bs", "megatron" of "--megatron swiglu". Other texts as they are.
[[nodiscard]] std::string keyword_of(const std::string& part);

/// [(keyword, option of the command line, Python type, description), …], for signatures, documentation and the test
/// that compares them with the command line.
[[nodiscard]] pybind11::list option_table();

/// The keywords that change the model's sizes rather than its training.
[[nodiscard]] pybind11::list size_keywords();

}  // namespace memcalc::python
