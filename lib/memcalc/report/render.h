// Renders the one Report as text, JSON, CSV or Markdown. Sizes are bytes in JSON and CSV, binary units in text and
// Markdown. Covered by tests/unit/render_test.cc (whole outputs in tests/golden).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "memcalc/report/report.h"

namespace memcalc {

enum class Format : std::uint8_t { kText, kJson, kCsv, kMarkdown };

/// How the text looks; the record formats ignore all but `explain`, and hold every rank and every detail.
struct RenderOptions {
  bool color = false;        // ANSI colours
  bool unicode = true;       // block characters for bars; ASCII otherwise
  bool details = false;      // all that the text can say; else one screen: the verdict, the peak, the time
  bool explain = false;      // details, every term with its rule, and the largest contributors to the peak
  bool per_rank = false;     // several GPUs: every distinct rank, not the largest alone
  std::size_t columns = 80;  // of the text
};

/// Rises with every change of the JSON that could break a reader (a key renamed, removed or with another meaning).
inline constexpr int kJsonSchemaVersion = 2;

/// Ends with a newline. Depends on its arguments only: not on the locale, the environment or the clock.
[[nodiscard]] std::string render(const Report& report, Format format, const RenderOptions& options = {});

}  // namespace memcalc
