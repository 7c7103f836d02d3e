// What other versions of the frameworks change for a run: each behaviour alone, and all together.
// Covered by tests/unit/upgrade_test.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "memcalc/report/answer.h"
#include "memcalc/report/report.h"
#include "memcalc/spec/profiles.h"
#include "memcalc/spec/run_request.h"

namespace memcalc {

/// A run's figures under a profile, or why there are none.
struct VersionFigures {
  std::shared_ptr<const Report> report;  // shared by versions that are alike in all that the run reads
  std::string refusal;
};

/// A behaviour that differs between both profiles, alone on top of the first.
struct BehaviorEffect {
  const Behavior* behavior = nullptr;
  std::string before, after;                // its values
  Evidence evidence = Evidence::kMeasured;  // the weaker one of both
  VersionFigures figures;
};

struct Upgrade {
  Profile from, to;
  VersionFigures before, after;
  std::vector<BehaviorEffect> effects;  // in the table's order

  /// Whether a behaviour moves memory, time or what is answered for this run.
  [[nodiscard]] bool matters(const BehaviorEffect& effect) const;
};

/// `request`: the run, without versions of its own. Throws Error where the run is not answered under `from`.
[[nodiscard]] Upgrade compare_versions(const ModelSpec& model, RunRequest request, const DeviceSpec& device,
                                       const Profile& from, const Profile& to);

/// The command upgrade: a row a behaviour that matters, largest first, then all together.
[[nodiscard]] Answer answer_of(const Upgrade& upgrade);

/// The command profiles: named ones with their versions and what was validated.
[[nodiscard]] Answer answer_of(const Profiles& profiles);

/// profiles --behaviors: a row for each release that changes a behaviour, with what it was compared by.
[[nodiscard]] Answer behaviors_answer(const Profiles& profiles);

}  // namespace memcalc
