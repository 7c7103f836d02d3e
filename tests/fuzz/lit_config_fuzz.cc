// lit_config.json of LitGPT.
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/lit_config.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(lit_config) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const auto document = memcalc::JsonDocument::parse(text, "lit_config.json");
    if (memcalc::is_lit_config(document.root())) (void)memcalc::model_from_lit_config(document.root(), "fuzzed");
  });
}
