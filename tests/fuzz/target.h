// A fuzz target is one function that is given any bytes. MEMCALC_FUZZ_TARGET(name) { … text … } is libFuzzer's entry in
// the executable that clang builds for it, and in fuzz_replay (replay.cc) a row of the table of all targets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace memcalc::fuzz {

using Target = void (*)(std::string_view text);

/// Every target that is linked into this executable, by name.
std::map<std::string, Target>& targets();

/// Runs a reader. An Error that tells of wrong input is an answer, if it is one line of UTF-8; any other exception, and
/// an error of memcalc's own, is a finding: the process aborts.
void expect_answer_or_one_line(const std::function<void()>& read);

struct Registration {
  Registration(const char* name, Target target) { targets().emplace(name, target); }
};

}  // namespace memcalc::fuzz

#define MEMCALC_FUZZ_TARGET(name)                                                        \
  static void fuzz_##name(std::string_view text);                                        \
  static const ::memcalc::fuzz::Registration registration_of_##name{#name, fuzz_##name}; \
  static void fuzz_##name(std::string_view text)
