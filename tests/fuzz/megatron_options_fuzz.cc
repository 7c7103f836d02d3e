// The list of --megatron.
#include "memcalc/spec/run_fields.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(megatron_options) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    memcalc::RunRequest request;
    memcalc::set_list(request, memcalc::FieldGroup::kMegatron, text);
  });
}
