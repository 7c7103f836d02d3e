// Which shape the gradient of one of a split's parts has.
#pragma once

#include <optional>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct Node;

/// Of the node's `output`-th output, where the node is a split's; else nothing.
[[nodiscard]] std::optional<Shape> split_part_shape(const Node& node, int output);

}  // namespace memcalc
