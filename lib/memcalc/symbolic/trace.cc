#include "memcalc/symbolic/trace.h"

namespace memcalc {

std::string_view name_of(Category category) {
  constexpr std::string_view names[kCategoryCount] = {
      "weights",     "autocast_copies", "gradients",  "optimizer_states", "activations",
      "temporaries", "inputs",          "workspaces", "gathered_weights", "communication"};
  return names[static_cast<std::size_t>(category)];
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[kPhaseCount] = {"build", "zero", "forward", "backward", "del", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

std::string_view name_of(OperatorClass operator_class) {
  constexpr std::string_view names[kOperatorClassCount] = {"contraction", "normalization", "elementwise",
                                                           "movement",    "optimizer",     "communication"};
  return names[static_cast<std::size_t>(operator_class)];
}

}  // namespace memcalc
