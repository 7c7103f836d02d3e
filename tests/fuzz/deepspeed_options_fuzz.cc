// The list of --deepspeed.
#include "memcalc/spec/run_fields.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(deepspeed_options) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    memcalc::RunRequest request;
    memcalc::set_list(request, memcalc::FieldGroup::kDeepSpeed, text);
  });
}
