// The rates of a card, as calibrate writes them.
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/spec_file.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(rates_file) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const auto document = memcalc::JsonDocument::parse(text, "rates.json");
    (void)memcalc::read_device_rates(document.root());
  });
}
