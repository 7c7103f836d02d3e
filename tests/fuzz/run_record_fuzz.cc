// The record of a run: the `run` object of a report and of a measured row.
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/run_record.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(run_record) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const auto document = memcalc::JsonDocument::parse(text, "run.json");
    (void)memcalc::request_from(document.root());
  });
}
