// Tables of cells in the formats that people and programs read. Covered by tests/unit/render_lists_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/report/render.h"

namespace memcalc {

using Cells = std::vector<std::string>;

/// The first row holds the headings. kText: columns as wide as their widest cell, `numeric` ones flushed right, the
/// last never padded. kMarkdown, kCsv. Throws Error(kInternal) for kJson.
[[nodiscard]] std::string render_table(const std::vector<Cells>& rows, const std::vector<bool>& numeric, Format format);

}  // namespace memcalc
