// Options of the command line, one a line: "--bs 4". What they ask of a small model is resolved, not simulated.
#include <algorithm>

#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_fields.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(run_options) {
  static const memcalc::ModelSpec model = memcalc::model_from_json(
      R"json({"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 4, "vocab_size": 100})json", "small");
  memcalc::RunRequest request;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t space = std::min(line.find(' '), line.size());
    memcalc::fuzz::expect_answer_or_one_line(
        [&] { memcalc::set_option(request, line.substr(0, space), line.substr(std::min(space + 1, line.size()))); });
  }
  memcalc::fuzz::expect_answer_or_one_line([&] { (void)memcalc::resolve_request(model, request); });
}
