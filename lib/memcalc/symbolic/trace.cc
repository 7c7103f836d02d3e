#include "memcalc/symbolic/trace.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

std::string_view name_of(Category category) {
  constexpr std::string_view names[kCategoryCount] = {
      "weights", "autocast_copies", "gradients",        "optimizer_states", "activations", "temporaries",
      "inputs",  "workspaces",      "gathered_weights", "communication",    "kv_cache"};
  return names[static_cast<std::size_t>(category)];
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[kPhaseCount] = {"build",  "zero",       "forward", "backward", "del", "optimizer",
                                                   "decode", "evaluation", "prepare", "merge",    "save"};
  return names[static_cast<std::size_t>(phase)];
}

std::string_view name_of(OperatorClass operator_class) {
  constexpr std::string_view names[kOperatorClassCount] = {"contraction", "normalization", "elementwise",
                                                           "movement",    "optimizer",     "communication"};
  return names[static_cast<std::size_t>(operator_class)];
}

std::string_view name_of(KernelKind kind) {
  constexpr std::string_view names[] = {"vectorized",
                                        "converting",
                                        "strided",
                                        "turned",
                                        "random",
                                        "rowwise",
                                        "row_sum",
                                        "column_sum",
                                        "image",
                                        "indexed",
                                        "embedding_backward",
                                        "multi_tensor",
                                        "product",
                                        "grouped_product",
                                        "cudnn_attention",
                                        "flash_attention",
                                        "efficient_attention",
                                        "convolution",
                                        "depthwise_convolution",
                                        "part_of_previous",
                                        "copy_to_device",
                                        "copy_to_host",
                                        "synchronize"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace memcalc
