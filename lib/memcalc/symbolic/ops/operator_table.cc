#include "memcalc/symbolic/ops/operator_table.h"

#include <array>
#include <unordered_map>

namespace memcalc {

const OperatorRow* find_operator(std::string_view name) {
  static const auto kTable = [] {
    std::unordered_map<std::string_view, const OperatorRow*> table;
    for (const std::span<const OperatorRow> rows :
         {pointwise_rows(), view_rows(), reduction_rows(), factory_rows(), layer_rows(), norm_rows(), image_rows(),
          recurrent_rows(), scatter_rows()}) {
      for (const OperatorRow& row : rows) table.emplace(row.name, &row);
    }
    return table;
  }();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace memcalc
