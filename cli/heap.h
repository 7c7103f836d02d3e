// The process's heap, as one short question wants it.
#pragma once

namespace memcalc::cli {

/// Asks Linux to back the heap's first megabytes with huge pages. An estimate touches 4 MiB; page by page the kernel's
/// work for them takes a third of the process's time (docs/performance.md). Elsewhere it does nothing.
void use_huge_pages();

}  // namespace memcalc::cli
