// An estimate of all that a face asks: the run, and what it says of the data and of the whole training.
#include "memcalc/facade/question.h"

#include <memory>
#include <utility>

#include "memcalc/memcalc.h"
#include "memcalc/report/report_of.h"
#include "memcalc/report/stages.h"
#include "memcalc/spec/device_rates.h"

namespace memcalc {
namespace {

void add_input(const TimeOptions& asked, Report& report) {
  if (asked.storage_rate && !asked.sample_bytes) {
    throw Error(ErrorCode::kUsage, "--storage-rate: expected --sample-bytes beside it, found none", "--storage-rate",
                "storage-rate-needs-bytes");
  }
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

DeviceSpec with_named_host(const Question& question) {
  if (!question.time.host) return question.device;
  if (question.device.rates == nullptr) {
    throw Error(ErrorCode::kUsage, "--host: no step time is known of this GPU, so no host decides it", "--host",
                "host-needs-step-time");
  }
  DeviceSpec device = question.device;
  device.rates = std::make_shared<const DeviceRates>(with_host(*device.rates, *question.time.host));
  return device;
}

Report with_answers(Report report, const Question& question) {
  report = with_assumptions(std::move(report), question.run.assumptions);
  report.device_assumed = question.device_assumed;
  report.asked_time = question.time;
  report.host_fit = host_fit_of(report.host_memory, report.stages, report.run, question.time.host_size);
  if (!report.fits_host()) report.verdict = Verdict::kDoesNotFit;
  add_input(question.time, report);
  if (question.time.tokens) report.training = training_run_of(report, *question.time.tokens);
  return report;
}

Report estimate(const Question& question) {
  return with_answers(estimate(question.model, question.run.run, with_named_host(question)), question);
}

}  // namespace memcalc
