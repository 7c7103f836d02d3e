// Which parameters transformers' classes name in their tp_plan (configuration_*.py, base_model_tp_plan; modeling_*.py,
// _tp_plan; 5.17). Nothing is split by it unless a script asks for that, but where there is a process group
// from_pretrained warms its cache up as if it were. Covered by tests/unit/tp_plan_test.cc.
#pragma once

#include <string_view>

namespace memcalc {

/// `parameter`: by its name in the model, weight or bias.
[[nodiscard]] bool is_in_tp_plan(std::string_view model_type, std::string_view parameter);

}  // namespace memcalc
