// Rows of an operator sweep (calibrate), and what a fit asks of them.
#include <cmath>
#include <cstdlib>

#include "memcalc/cost/calibrate.h"
#include "memcalc/cost/collective.h"
#include "memcalc/cost/kernel_time.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(operator_timings) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const memcalc::DeviceSpec device{.memory_bytes = memcalc::kGiB,
                                     .memory_bandwidth_bytes_per_second = 1e12,
                                     .bf16_flops_per_second = 1e14,
                                     .fp16_flops_per_second = 1e14,
                                     .tf32_flops_per_second = 1e14,
                                     .fp32_flops_per_second = 1e13};
    for (const memcalc::OperatorTiming& timing : memcalc::read_operator_timings(std::string(text), "rows.jsonl")) {
      double seconds = 0;
      for (const memcalc::Kernel& kernel : timing.kernels) {
        const auto* communication = kernel.as<memcalc::work::Communication>();
        seconds += communication != nullptr ? memcalc::collective_seconds(*communication, device, {})
                                            : memcalc::kernel_seconds(kernel, device, {});
      }
      if (!std::isfinite(std::log(seconds / timing.seconds))) std::abort();
    }
  });
}
