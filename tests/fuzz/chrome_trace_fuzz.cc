// A trace of torch.profiler (utilization --trace): its sums, and the shares that the answer shows.
#include <cmath>
#include <cstdlib>
#include <variant>

#include "memcalc/plan/utilization.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(chrome_trace) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const memcalc::TraceSummary trace = memcalc::read_chrome_trace(std::string(text), "trace.json");
    for (const memcalc::Fact& fact : memcalc::answer_of({}, trace, nullptr).facts) {
      const double* number = std::get_if<double>(&fact.value);
      if (number != nullptr && !std::isfinite(*number)) std::abort();
    }
  });
}
