// Two streams of one step, event by event: as texts, and the first that differs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/symbolic/trace.h"

namespace memcalc::test {

/// What a step leaves, but for the names of operators: kind, phase, step, bytes.
inline std::vector<std::string> events_of(const Trace& trace) {
  std::vector<std::string> events;
  for (const Event& event : trace.events) {
    if (event.phase == Phase::kBuild) continue;  // a program does not say how its module was built
    const Bytes bytes = event.block == kNoBlock ? 0 : trace.blocks[static_cast<std::size_t>(event.block)].requested;
    events.push_back(std::string(name_of(event.phase)) + " " + std::to_string(event.step) + " " +
                     std::to_string(static_cast<int>(event.kind)) + " " + std::to_string(bytes));
  }
  return events;
}

/// Reports the first event that differs.
inline void expect_same(const std::vector<std::string>& recorded, const std::vector<std::string>& written) {
  const auto [mine, other] = std::mismatch(recorded.begin(), recorded.end(), written.begin(), written.end());
  const auto shown = [](auto at, auto end) { return at == end ? std::string("its end") : *at; };
  EXPECT_TRUE(mine == recorded.end() && other == written.end())
      << "at event " << mine - recorded.begin() << ": recorded " << shown(mine, recorded.end()) << ", written "
      << shown(other, written.end());
}

}  // namespace memcalc::test
