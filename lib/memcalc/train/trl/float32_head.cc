// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
#include "memcalc/train/trl/float32_head.h"

#include <algorithm>

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"

namespace memcalc {
namespace {

const Parameter* parameter_called(const Model& model, std::string_view name) {
  const auto found = std::find_if(model.parameters.begin(), model.parameters.end(),
                                  [&](const Parameter& each) { return each.name == name; });
  return found == model.parameters.end() ? nullptr : &*found;
}

}  // namespace

void cast_head_to_float32(Tape& tape, const Model& model, const RunSpec& run) {
  const Parameter* head = parameter_called(model, "lm_head.weight");
  const bool is_tied = head == nullptr;
  if (is_tied) head = parameter_called(model, "model.embed_tokens.weight");
  if (head == nullptr) throw refusal(rules::kFloat32Head, {"neither"});
  if (is_tied) tape.modes.embedding_dtype = head->tensor.dtype();
  tape.modes.head_in_float32 = true;
  const OnMetaDevice on_host(tape.memory, reads_on_host(run.training().loading));
  for (const Parameter* each : {head, parameter_called(model, "lm_head.bias")}) {
    if (each == nullptr || each->tensor.dtype() == DType::kFloat32) continue;
    tape.convert(each->tensor, DType::kFloat32, aten::kToCopy);
  }
}

}  // namespace memcalc
