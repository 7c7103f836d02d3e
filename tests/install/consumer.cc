// The smallest program that uses the library.
#include <cstdio>

#include "memcalc/memcalc.h"

int main() {
  try {
    const memcalc::SpecRegistry registry(SPECS_DIR);
    const memcalc::ModelSpec model = registry.model("bert-large");
    const memcalc::DeviceSpec device = registry.device("h100-sxm");
    memcalc::RunSpec run;
    run.task = memcalc::Task::kSequenceClassification;
    run.batch_size = 4;
    run.sequence_length = 512;
    run.precision = memcalc::Precision::kAmpFp16;
    const memcalc::Report report = memcalc::estimate(model, run, device);
    std::puts(memcalc::render(report, memcalc::Format::kText).c_str());
    return report.parameters_total > 300'000'000 ? 0 : 1;
  } catch (const memcalc::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
