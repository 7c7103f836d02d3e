#include "memcalc/train/fine_tuning.h"

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/freeze_patterns.h"
#include "memcalc/spec/names.h"

namespace memcalc {

void apply_fine_tuning(Tape& tape, Model& model, const RunSpec& run) {
  const FineTuning& tuning = run.fine_tuning;
  const bool is_on_host = packs_on_host(run) || (run.trains() && reads_on_host(run.training().loading));
  const OnMetaDevice on_host(tape.memory, is_on_host);
  if (tuning.prepares_for_kbit) prepare_for_kbit_training(tape, model);
  if (!tuning.frozen.empty()) freeze_parameters(tape, model, tuning.frozen);
  if (tuning.lora) add_adapters(tape, model, run);
}

namespace {

/// Python's re.match(): from the beginning of a name. The text model of a model of images and text has other names
/// there.
bool begins_with(const std::regex& pattern, std::string_view name) {
  const auto matches = [&pattern](std::string_view text) {
    return std::regex_search(text.begin(), text.end(), pattern, std::regex_constants::match_continuous);
  };
  if (matches(name)) return true;
  constexpr std::string_view kModel = "model.";
  if (!name.starts_with(kModel)) return false;
  return matches("model.language_model." + std::string(name.substr(kModel.size())));
}

/// axolotl's utils/freeze.py, freeze_layers_except: whatever matches none of the patterns.
void freeze_all_but(Tape& tape, Model& model, const std::vector<std::string>& fragments) {
  std::vector<std::string> patterns = fragments;
  patterns.front().erase(0, kFreezeExcept.size());
  if (patterns.front().empty()) throw refusal(rules::kFreezePattern, {""});
  std::vector<bool> trains(model.parameters.size());
  for (const std::string& text : patterns) {
    std::regex pattern;
    try {
      pattern = std::regex(text);
    } catch (const std::regex_error&) {
      throw refusal(rules::kFreezePattern, {one_line(text)});
    }
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      trains[i] = trains[i] || begins_with(pattern, model.parameters[i].name);
    }
  }
  if (std::find(trains.begin(), trains.end(), true) == trains.end())
    throw refusal(rules::kFreezeUnmatched, {one_line(join(fragments, ",")), model.parameters.front().name});
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (!trains[i]) tape.autograd.set_trainable(model.parameters[i].tensor, false);
  }
}

void freeze_named(Tape& tape, Model& model, const std::vector<std::string>& fragments) {
  for (const std::string& fragment : fragments) {
    bool found = false;
    for (const Parameter& parameter : model.parameters) {
      if (parameter.name.find(fragment) == std::string::npos) continue;
      found = true;
      tape.autograd.set_trainable(parameter.tensor, false);
    }
    if (!found) throw refusal(rules::kFreezeName, {one_line(fragment), model.parameters.front().name});
  }
}

}  // namespace

void freeze_parameters(Tape& tape, Model& model, const std::vector<std::string>& fragments) {
  (fragments.front().starts_with(kFreezeExcept) ? freeze_all_but : freeze_named)(tape, model, fragments);
  const auto trains = [](const Parameter& parameter) { return parameter.tensor.requires_grad(); };
  if (std::none_of(model.parameters.begin(), model.parameters.end(), trains)) {
    throw refusal(rules::kFreezeNotAll);
  }
}

}  // namespace memcalc
