// A model file of ours that names a config, and whatever else a path given to --model may hold.
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/spec_file.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(model_file) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const auto document = memcalc::JsonDocument::parse(text, "model.json");
    if (memcalc::is_model_file(document.root())) (void)memcalc::read_model_file(document.root());
    (void)memcalc::model_from_json(std::string(text), "model.json");
  });
}
