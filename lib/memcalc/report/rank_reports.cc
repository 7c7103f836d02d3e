#include "memcalc/report/rank_reports.h"

#include <tuple>
#include <utility>

namespace memcalc {
namespace {

// What a card must have: what it reserves decides, then what is allocated.
auto size_of(const RankRow& row) { return std::tie(row.peak_reserved, row.peak_allocated); }

}  // namespace

void RankReports::add(const RankGroup& group, Report report) {
  rows_.push_back({.first = group.first,
                   .count = group.count,
                   .name = group.name,
                   .holds = group.holds,
                   .peak_allocated = report.memory.peak_allocated,
                   .peak_reserved = report.memory.peak_reserved,
                   .device_used_bytes = report.device_used_bytes,
                   .peak_phase = report.peak_phase,
                   .peak_operator = report.peak_operator});
  if (rows_.size() > 1 && !(size_of(rows_[largest_]) < size_of(rows_.back()))) return;
  largest_ = rows_.size() - 1;
  report_ = std::move(report);
}

Report RankReports::of_largest() && {
  report_.ranks = std::move(rows_);
  report_.largest_rank = largest_;
  return std::move(report_);
}

}  // namespace memcalc
