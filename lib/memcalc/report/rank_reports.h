// Of the reports of several ranks the one of the largest, which then tells of all. Covered by
// tests/measured/parallel_rows_test.cc and tests/measured/nccl_memory_test.cc.
#pragma once

#include <vector>

#include "memcalc/report/report.h"
#include "memcalc/train/ranks.h"

namespace memcalc {

/// What a stage of a pipeline waits for the others, over what it computes: of stages that are alike.
[[nodiscard]] double waiting_share(const Parallel& parallel);

class RankReports {
 public:
  void add(const RankGroup& group, Report report);
  /// The report of the rank that needs most of its card; among equals the first. Pre: one was added.
  [[nodiscard]] Report of_largest() &&;

 private:
  [[nodiscard]] StepTime time_of_all() const;
  void tell_network();

  std::vector<RankRow> rows_;
  std::vector<StepTime> times_;  // of each row; empty where none is known
  std::size_t largest_ = 0;
  Report report_;  // of the largest so far
};

}  // namespace memcalc
