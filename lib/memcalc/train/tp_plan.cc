#include "memcalc/train/tp_plan.h"

#include <algorithm>

#include "memcalc/spec/family.h"

namespace memcalc {

namespace {

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

bool is_in_tp_plan(std::string_view model_type, std::string_view parameter) {
  const Family* const family = find_family(model_type);
  if (family == nullptr) return false;
  std::string_view module = parameter;  // of fused experts the parameter itself is named
  for (const std::string_view leaf : {".weight", ".bias"}) {
    if (module.ends_with(leaf)) module.remove_suffix(leaf.size());
  }
  return std::find(family->tp_plan.begin(), family->tp_plan.end(), last_part(module)) != family->tp_plan.end();
}

}  // namespace memcalc
