// A model file of ours that lists layers: the file, and whether the shapes fit.
#include "memcalc/spec/custom_reader.h"
#include "memcalc/spec/json_reader.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(custom_model) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const auto document = memcalc::JsonDocument::parse(text, "layers.json");
    (void)memcalc::custom::read_layers_file(document.root());
  });
}
