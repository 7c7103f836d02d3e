// memcalc upgrade, memcalc profiles: what the frameworks' versions change.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "answer_arguments.h"
#include "arguments.h"
#include "combinations.h"
#include "command.h"
#include "run_arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr const char* kUpgradeExamples =
    "Examples:\n"
    "  memcalc upgrade --from p3 --to p4 --model llama-3.2-1b --bs 4 --bf16\n"
    "  memcalc upgrade --from p2 --to transformers=5.23 --model t5-base\n"
    "\n"
    "Exit status: 0 answered; 1 no longer fits; 2 wrong input; 3 a bug.\n";

struct UpgradeArguments {
  RunArguments run;
  AnswerArguments answer;
  std::string from = "p3", to = "p1";
};

struct ProfilesArguments {
  std::string specs;
  bool behaviors = false;
  AnswerArguments answer;
};

/// "p3", or "torch=2.10,transformers=4.57.6" on top of today's, or "p3,torch=2.8".
VersionOptions versions_of(const char* option, const std::string& text) {
  VersionOptions versions;
  for (const std::string& part : values_of(option, text)) {
    const std::size_t at = part.find('=');
    if (at == std::string::npos) {
      if (!part.empty() && part.front() >= '0' && part.front() <= '9') {
        throw UsageError(std::string(option) +
                         ": expected a profile (memcalc profiles) or versions by name, as torch=" + one_line(part) +
                         ", found '" + one_line(part) + "'");
      }
      if (versions.profile) throw UsageError(std::string(option) + ": a profile is given more than once");
      versions.profile = part;
      continue;
    }
    const std::string name = part.substr(0, at);
    const auto found = std::find(std::begin(kSoftwareNames), std::end(kSoftwareNames), name);
    if (found == std::end(kSoftwareNames)) {
      throw UsageError(std::string(option) +
                       ": expected a profile or one of torch, transformers, accelerate, peft, trl, "
                       "bitsandbytes, liger-kernel with its version, as torch=2.10, found '" +
                       one_line(part) + "'");
    }
    std::optional<std::string>& asked = versions.asked[static_cast<std::size_t>(found - std::begin(kSoftwareNames))];
    if (asked) throw UsageError(std::string(option) + ": " + name + " is given more than once");
    asked = part.substr(at + (part.compare(at, 2, "==") == 0 ? 2 : 1));  // pip writes two
    if (asked->empty())
      throw UsageError(std::string(option) + ": expected a version behind " + name + "=, found nothing");
  }
  return versions;
}

/// What is wrong with the versions of an option names that option, not --torch.
Profile chosen(const Profiles& profiles, const char* option, const std::string& text, std::vector<std::string>& notes) {
  const VersionOptions versions = versions_of(option, text);
  try {
    return profiles.choose(versions, "", notes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;  // of the specs, or a bug
    const std::string prefix = error.part() + ": ";
    const std::string_view said = error.what();
    throw UsageError(std::string(option) + ": " +
                     std::string(said.starts_with(prefix) ? said.substr(prefix.size()) : said));
  }
}

bool says_versions(std::string_view flag) {
  if (flag == "--profile" || flag == "--versions") return true;
  return std::any_of(std::begin(kSoftwareNames), std::end(kSoftwareNames),
                     [&](std::string_view name) { return flag == "--" + std::string(name); });
}

ExitStatus run_upgrade(const UpgradeArguments& arguments) {
  AnswerOutput output(arguments.answer);
  const SpecRegistry registry(find_specs(arguments.run.specs));
  const Profiles profiles = registry.profiles();
  std::vector<std::string> notes;
  const Profile from = chosen(profiles, "--from", arguments.from, notes);
  const Profile to = chosen(profiles, "--to", arguments.to, notes);
  for (const CLI::Option* each : arguments.run.options) {  // those of a file's record give way
    if (each->count() == 0 || !says_versions(each->get_name())) continue;
    throw UsageError(each->get_name() + ": upgrade compares versions: give them to --from and --to");
  }
  const RunRequest request = request_of(arguments.run.typed());
  const ModelSpec model = model_of(request, registry);
  const Upgrade upgrade = compare_versions(model, request, device_of(request, registry), from, to);
  Answer answer = answer_of(upgrade);
  answer.notes.insert(answer.notes.end(), notes.begin(), notes.end());
  output.write(answer);
  const bool broke = upgrade.before.report->fits() && !(upgrade.after.report && upgrade.after.report->fits());
  return broke ? kAnsweredNo : kAnswered;
}

ExitStatus run_profiles(const ProfilesArguments& arguments) {
  AnswerOutput output(arguments.answer);
  const Profiles profiles = SpecRegistry(find_specs(arguments.specs)).profiles();
  output.write(arguments.behaviors ? behaviors_answer(profiles) : answer_of(profiles));
  return kAnswered;
}

}  // namespace

Command add_upgrade(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("upgrade", "what other versions of the frameworks change for a run");
  auto arguments = std::make_shared<UpgradeArguments>();
  app->add_option("--from", arguments->from, "versions before: a profile, torch=2.10, … [p3]")
      ->type_name("V")
      ->group("Upgrade");
  app->add_option("--to", arguments->to, "versions after [p1, what memcalc assumes]")->type_name("V")->group("Upgrade");
  add_run_options(line, *app, arguments->run);
  add_answer_options(*app, arguments->answer);
  app->footer(kUpgradeExamples);
  return {app, [arguments] { return run_upgrade(*arguments); }, &arguments->run};
}

Command add_profiles(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("profiles", "the versions that --profile knows by name");
  auto arguments = std::make_shared<ProfilesArguments>();
  app->add_option("--specs", arguments->specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group("Answer");
  app->add_flag("--behaviors", arguments->behaviors, "what releases change, and what it was compared by")
      ->group("Answer");
  add_answer_options(*app, arguments->answer);
  app->footer("Examples:\n  memcalc profiles\n  memcalc profiles --behaviors --format json\n");
  return {app, [arguments] { return run_profiles(*arguments); }};
}

}  // namespace memcalc::cli
