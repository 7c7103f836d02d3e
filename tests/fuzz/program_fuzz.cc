// A recorded program as text, sound or not: it is read, and its step is simulated where it can be.
#include "memcalc/memcalc.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(program) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const memcalc::DeviceSpec card{.name = "card", .memory_bytes = memcalc::kGiB};
    const memcalc::ModelSpec model = memcalc::model_from_json(std::string(text), "program.json");
    const memcalc::RunSpec run = memcalc::resolve(model, memcalc::RunOptions{}).run;
    (void)memcalc::render(memcalc::estimate(model, run, card), memcalc::Format::kJson);
  });
}
