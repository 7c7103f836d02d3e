// Measured rows (check). The registry is empty, so that a run ends where its card is looked up: a row is read and
// resolved, but not simulated.
#include "memcalc/plan/check.h"
#include "target.h"

namespace {

constexpr const char* kModels = R"json({"models": {
  "g": {"task": "causal", "config": {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 100}},
  "b": {"task": "seqcls", "config": {"model_type": "bert", "num_hidden_layers": 2}},
  "v": {"task": "image", "config": {"model_type": "vit", "num_hidden_layers": 2}}}})json";

}  // namespace

MEMCALC_FUZZ_TARGET(measured_rows) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const memcalc::SpecRegistry nothing("/nonexistent");
    const auto rows = memcalc::check_rows(nothing, std::string(text), "rows.jsonl", kModels);
    (void)memcalc::answer_of(rows, memcalc::CheckTolerance{});
  });
}
