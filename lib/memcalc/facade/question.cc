// An estimate of all that a face asks: the run, and what it says of the data and of the whole training.
#include "memcalc/memcalc.h"

namespace memcalc {
namespace {

void add_input(const TimeOptions& asked, Report& report) {
  if (!asked.sample_seconds && !asked.sample_bytes) return;
  if (!report.time) {
    throw Error(ErrorCode::kUsage, "--sample-seconds: no step time is known of this GPU, so nothing to compare with",
                "--sample-seconds", "sample-needs-step-time");
  }
  const InputPipeline input{.sample_seconds = asked.sample_seconds.value_or(0),
                            .sample_bytes = asked.sample_bytes.value_or(0),
                            .storage_bytes_per_second = asked.storage_rate.value_or(0)};
  if (input.sample_bytes > 0 && input.storage_bytes_per_second <= 0) {
    throw Error(ErrorCode::kUsage, "--sample-bytes: expected --storage-rate beside it, found none", "--sample-bytes",
                "sample-bytes-need-rate");
  }
  feed(report, input);
}

}  // namespace

Report estimate(const Question& question) {
  Report report = estimate(question.model, question.run, question.device);
  report.device_assumed = question.device_assumed;
  report.asked_time = question.time;
  add_input(question.time, report);
  if (question.time.tokens) report.training = training_run_of(report, *question.time.tokens);
  return report;
}

}  // namespace memcalc
