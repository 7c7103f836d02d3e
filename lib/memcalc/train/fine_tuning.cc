#include "memcalc/train/fine_tuning.h"

#include <algorithm>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/names.h"

namespace memcalc {

void apply_fine_tuning(Tape& tape, Model& model, const RunSpec& run) {
  const FineTuning& tuning = run.fine_tuning;
  const bool is_on_host = packs_on_host(run) || (run.trains() && reads_on_host(run.training().loading));
  const OnMetaDevice on_host(tape.memory, is_on_host);
  if (tuning.prepares_for_kbit) prepare_for_kbit_training(tape, model);
  if (!tuning.frozen.empty()) freeze_parameters(tape, model, tuning.frozen);
  if (tuning.lora) add_adapters(tape, model, run);
}

void freeze_parameters(Tape& tape, Model& model, const std::vector<std::string>& fragments) {
  for (const std::string& fragment : fragments) {
    bool found = false;
    for (const Parameter& parameter : model.parameters) {
      if (parameter.name.find(fragment) == std::string::npos) continue;
      found = true;
      tape.autograd.set_trainable(parameter.tensor, false);
    }
    if (!found) throw refusal(rules::kFreezeName, {one_line(fragment), model.parameters.front().name});
  }
  const auto trains = [](const Parameter& parameter) { return parameter.tensor.requires_grad(); };
  if (std::none_of(model.parameters.begin(), model.parameters.end(), trains)) {
    throw refusal(rules::kFreezeNotAll);
  }
}

}  // namespace memcalc
