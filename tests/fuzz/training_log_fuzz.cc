// A training log (utilization --log): what it states must be figures to compute with.
#include <cmath>
#include <cstdlib>

#include "memcalc/plan/utilization.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(training_log) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    memcalc::JobFigures job;
    memcalc::read_log(std::string(text), job);
    for (const auto& figure : {job.tokens_per_second, job.samples_per_second}) {
      if (figure && !(std::isfinite(*figure) && *figure > 0)) std::abort();
    }
  });
}
