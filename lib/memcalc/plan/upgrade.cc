#include "memcalc/plan/upgrade.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/memcalc.h"
#include "memcalc/plan/search_control.h"

namespace memcalc {
namespace {

VersionFigures figures_under(const ModelSpec& model, RunRequest request, const DeviceSpec& device,
                             const Profile& profile) {
  request.run.profile = profile;
  VersionFigures figures;
  try {
    figures.report = std::make_shared<const Report>(estimate(model, resolve_request(model, request), device));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    figures.refusal = error.what();
  }
  return figures;
}

Bytes allocated(const Report& report) { return report.memory.peak_allocated; }
Bytes reserved(const Report& report) { return report.memory.peak_reserved; }
std::optional<double> seconds(const Report& report) {
  if (!report.time) return std::nullopt;
  return report.time->step.step_seconds;
}

/// "+1.25 GiB", "-512 B", "0 B"
std::string signed_bytes(Bytes bytes) {
  const std::string size = shown(std::abs(bytes), Unit::kBytes);
  return bytes == 0 ? size : (bytes > 0 ? "+" : "-") + size;
}

/// "+1.5 %", "-0.1 %"; what rounds to nothing has no sign.
std::string signed_share(double share) {
  const std::string text = fmt::format("{:+.1f} %", 100 * share);
  return text == "+0.0 %" || text == "-0.0 %" ? "0.0 %" : text;
}

/// Columns: what, before, after, allocated, reserved, time, what it was compared by, and the changes in numbers.
std::vector<Value> row_of(const std::string& name, const std::string& before, const std::string& after,
                          const std::string& compared_by, const VersionFigures& figures, const Report& base) {
  std::vector<Value> row = {name, before, after};
  if (!figures.report) {
    row.insert(row.end(), {std::string("refused"), std::string(), std::string(), compared_by});
    return row;
  }
  const Report& now = *figures.report;
  row.emplace_back(signed_bytes(allocated(now) - allocated(base)));
  row.emplace_back(signed_bytes(reserved(now) - reserved(base)));
  const auto time = seconds(now), first = seconds(base);
  row.emplace_back(time && first && *first > 0 ? signed_share(*time / *first - 1) : std::string("-"));
  row.emplace_back(compared_by);
  row.insert(row.end(), {Value(allocated(now) - allocated(base)), Value(reserved(now) - reserved(base))});
  if (time && first) {
    row.emplace_back(*time - *first);
  } else {
    row.emplace_back(std::monostate{});
  }
  return row;
}

std::string versions_of(const Profile& profile) {
  std::string text;
  for (std::size_t i = 0; i < kSoftwareCount; ++i) {
    const auto of = static_cast<Software>(i);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(of), wheel_of(profile, of));
  }
  return text;
}

std::string verdict_words(const Report& report) {
  return fmt::format("{} reserved, {}", shown(reserved(report), Unit::kBytes),
                     report.fits() ? "fits" : "does not fit on " + report.device.name);
}

Bytes size_of_effect(const BehaviorEffect& effect, const Report& base) {
  if (!effect.figures.report) return INT64_MAX;
  const Report& now = *effect.figures.report;
  return std::max(std::abs(allocated(now) - allocated(base)), std::abs(reserved(now) - reserved(base)));
}

}  // namespace

bool Upgrade::matters(const BehaviorEffect& effect) const {
  if (!effect.figures.report) return true;
  const Report &now = *effect.figures.report, &base = *before.report;
  return allocated(now) != allocated(base) || reserved(now) != reserved(base) || seconds(now) != seconds(base);
}

Upgrade compare_versions(const ModelSpec& model, RunRequest request, const DeviceSpec& device, const Profile& from,
                         const Profile& to) {
  Upgrade upgrade{.from = from, .to = to};
  request.versions = {};
  const BehaviorReads reads;
  upgrade.before = figures_under(model, request, device, from);
  if (!upgrade.before.report) {
    // What both refuse alike is not the versions' fault: a file that is missing, a sequence that is too long.
    const std::string& refusal = upgrade.before.refusal;
    if (figures_under(model, request, device, to).refusal == refusal) throw Error(ErrorCode::kUnsupported, refusal);
    throw Error(ErrorCode::kUnsupported, "--from: " + refusal, "--from");
  }
  std::vector<BehaviorEffect*> executed;  // the others differ in what the run does not read
  const std::vector<std::size_t> rows = differences(from, to);
  upgrade.effects.reserve(rows.size());
  for (const std::size_t i : rows) {
    const Behavior& row = behavior_table()[i];
    upgrade.effects.push_back({.behavior = &row,
                               .before = std::string(row.values[row.get(from.behaviors)]),
                               .after = std::string(row.values[row.get(to.behaviors)]),
                               .evidence = std::max(evidence_of(row, from.behaviors), evidence_of(row, to.behaviors)),
                               .figures = upgrade.before});
    if (reads.rows().test(i)) executed.push_back(&upgrade.effects.back());
  }
  upgrade.after = upgrade.before;
  if (executed.empty()) return upgrade;
  // One estimate each, and one of all together: with --lengths each executes many steps.
  (void)for_each_index(executed.size() + 1, {}, [&](std::size_t i) {
    if (i == executed.size()) {
      upgrade.after = figures_under(model, request, device, to);
      return;
    }
    const Behavior& row = *executed[i]->behavior;
    Profile alone = from;
    row.set(alone.behaviors, row.get(to.behaviors));
    executed[i]->figures = figures_under(model, request, device, alone);
  });
  return upgrade;
}

Answer answer_of(const Upgrade& upgrade) {
  Answer answer;
  answer.command = "upgrade";
  const Report& base = *upgrade.before.report;
  answer.positive = upgrade.after.report && (upgrade.after.report->fits() || !base.fits());
  if (upgrade.after.report) {
    const Bytes change = reserved(*upgrade.after.report) - reserved(base);
    answer.headline = fmt::format("Before: {}. After: {} ({}).", verdict_words(base),
                                  verdict_words(*upgrade.after.report), signed_bytes(change));
  } else {
    answer.headline = "After: not answered.";
    answer.notes.push_back("after the upgrade: " + upgrade.after.refusal);
  }
  answer.facts = {{"from", "From", Unit::kText, versions_of(upgrade.from)},
                  {"to", "To", Unit::kText, versions_of(upgrade.to)},
                  {"allocated_bytes", "", Unit::kBytes, allocated(base)},
                  {"reserved_bytes", "", Unit::kBytes, reserved(base)}};
  answer.columns = {{"behavior", "behaviour", Unit::kText},
                    {"before", "before", Unit::kText, true},
                    {"after", "after", Unit::kText},
                    {"allocated", "allocated", Unit::kText},
                    {"reserved", "reserved", Unit::kText},
                    {"time", "time", Unit::kText},
                    {"compared_by", "compared by", Unit::kText, true},
                    {"allocated_change_bytes", "allocated, bytes", Unit::kCount, true},
                    {"reserved_change_bytes", "reserved, bytes", Unit::kCount, true},
                    {"step_change_seconds", "step", Unit::kSeconds, true}};
  std::vector<const BehaviorEffect*> rows;
  std::string without;
  std::size_t without_count = 0;
  for (const BehaviorEffect& effect : upgrade.effects) {
    if (upgrade.matters(effect)) {
      rows.push_back(&effect);
    } else {
      ++without_count;
      without += (without.empty() ? "" : ", ") + std::string(effect.behavior->name);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto* a, const auto* b) { return size_of_effect(*a, base) > size_of_effect(*b, base); });
  for (const BehaviorEffect* each : rows) {
    const std::string compared_by(kEvidenceNames[static_cast<std::size_t>(each->evidence)]);
    answer.rows.push_back(
        row_of(std::string(each->behavior->name), each->before, each->after, compared_by, each->figures, base));
    answer.notes.push_back(fmt::format(
        "{}: {} ({} before){}{}", each->behavior->name, each->behavior->meaning, each->before,
        each->evidence == Evidence::kMeasured ? std::string()
                                              : fmt::format(" (by {} alone: {})", compared_by, each->behavior->source),
        each->figures.refusal.empty() ? "" : " (alone: " + each->figures.refusal + ")"));
  }
  if (upgrade.after.report) answer.rows.push_back(row_of("all together", "", "", "", upgrade.after, base));
  for (std::vector<Value>& row : answer.rows) row.resize(answer.columns.size());
  if (without_count > 0) {
    answer.notes.push_back(fmt::format("{} other {} without effect on this run (--explain names {})", without_count,
                                       without_count == 1 ? "change is" : "changes are",
                                       without_count == 1 ? "it" : "them"));
    answer.assumptions.push_back("without effect on this run: " + without);
  }
  answer.notes.emplace_back(
      "each behaviour alone on top of the first versions; together they may add up to another sum");
  if (upgrade.from.version(Software::kTorch) != upgrade.to.version(Software::kTorch)) {
    answer.notes.emplace_back(
        "what differs between releases of torch rests on its sources: not validated on a card. The sizes of its "
        "kernels' "
        "workspaces, of CUDA's context and of NCCL's buffers are those of torch 2.11");
  }
  return answer;
}

Answer answer_of(const Profiles& profiles) {
  Answer answer;
  answer.command = "profiles";
  answer.headline =
      fmt::format("{} profiles; --torch, --transformers and others choose single versions.", profiles.named().size());
  answer.columns = {{"name", "name", Unit::kText}};
  for (std::size_t i = 0; i < kSoftwareCount; ++i) {
    const auto software = static_cast<Software>(i);
    const bool dispensable =
        software == Software::kPeft || software == Software::kBitsandbytes || software == Software::kLigerKernel;
    answer.columns.push_back(
        {std::string(kSoftwareNames[i]), std::string(kSoftwareNames[i]), Unit::kText, dispensable});
  }
  answer.columns.push_back({"validated", "validated", Unit::kText});
  for (const NamedProfile& each : profiles.named()) {
    std::vector<Value> row = {each.name};
    for (std::size_t i = 0; i < kSoftwareCount; ++i) row.emplace_back(wheel_of(each.profile, static_cast<Software>(i)));
    row.emplace_back(each.validated.empty() ? std::string("by sources") : each.validated);
    answer.rows.push_back(std::move(row));
  }
  for (std::size_t i = 0; i < kSoftwareCount; ++i) {
    std::string known;
    for (const Release& each : profiles.releases(static_cast<Software>(i))) {
      known += (known.empty() ? "" : ", ") + text_of(each.version) + (each.validated.empty() ? "" : "*");
    }
    answer.notes.push_back(fmt::format("{}: {}", kSoftwareNames[i], known));
  }
  answer.notes.emplace_back(
      "*: measured runs were compared under it; a release between two takes the older one's "
      "behaviours");
  answer.notes.emplace_back(
      "no card ran another torch than 2.11: of profiles 'transformers alone', runs on a card were compared under their "
      "transformers and torch 2.11. memcalc profiles --behaviors: what each behaviour was compared by");
  return answer;
}

Answer behaviors_answer(const Profiles& profiles) {
  Answer answer;
  answer.command = "profiles";
  const std::span<const Behavior> table = behavior_table();
  answer.headline = fmt::format("{} behaviours differ between releases.", table.size());
  answer.columns = {{"behavior", "behaviour", Unit::kText},
                    {"software", "of", Unit::kText},
                    {"release", "from release", Unit::kText},
                    {"value", "is", Unit::kText},
                    {"compared_by", "compared by", Unit::kText, true},
                    {"source", "source", Unit::kText, true}};
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Behavior& row = table[i];
    for (const Release& release : profiles.releases(row.software)) {
      for (const auto& [at, value] : release.changes) {
        if (at != i) continue;
        const Version& first = release.from.known() ? release.from : release.version;
        answer.rows.push_back(
            {std::string(row.name), std::string(name_of(row.software)), text_of(first), std::string(row.values[value]),
             std::string(kEvidenceNames[static_cast<std::size_t>(row.evidence[value])]), std::string(row.source)});
      }
    }
  }
  answer.notes.emplace_back(
      "measured: runs on a card under a release that has it; recorded streams: storages operator by operator, without "
      "a "
      "card; sources: read alone");
  return answer;
}

}  // namespace memcalc
