// config.json of transformers, of any family.
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(hf_config) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const auto document = memcalc::JsonDocument::parse(text, "config.json");
    (void)memcalc::model_from_hf_config(document.root(), "fuzzed");
  });
}
