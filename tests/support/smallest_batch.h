// Runs of any model with the smallest batch that it trains with.
#pragma once

#include "memcalc/base/error.h"
#include "memcalc/plan/smallest.h"
#include "memcalc/spec/run_options.h"

namespace memcalc::test {

/// What `ask` says of the options; with two samples where one leaves a batch norm a single value of each channel.
template <class Ask>
auto with_smallest_batch(RunOptions options, const Ask& ask) {
  try {
    return ask(options);
  } catch (const Error& error) {
    if (!wants_more_samples(error)) throw;
  }
  options.batch_size = 2;
  return ask(options);
}

}  // namespace memcalc::test
