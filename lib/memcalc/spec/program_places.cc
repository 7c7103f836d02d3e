#include "memcalc/spec/program_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr int kMostFunctions = 20'000;

void add_once(std::vector<std::int32_t>& places, std::int32_t place) {
  if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
}

/// Calls `visit` with the places in ProgramFunction::parameters that arguments name.
template <typename Visit>
void for_each_parameter(const std::vector<ProgramArgument>& arguments, const Visit& visit) {
  for (const ProgramArgument& each : arguments) {
    if (each.kind == ProgramArgument::Kind::kParameter) visit(static_cast<std::size_t>(each.integer));
    for_each_parameter(each.items, visit);
  }
}
template <typename Visit>
void for_each_parameter(const ProgramKeywords& keywords, const Visit& visit) {
  for (const auto& [keyword, argument] : keywords) {
    if (argument.kind == ProgramArgument::Kind::kParameter) visit(static_cast<std::size_t>(argument.integer));
    for_each_parameter(argument.items, visit);
  }
}

/// Finds what the functions of one forward pass name.
class Placing {
 public:
  explicit Placing(const Program& program) : program_(program), met_(program.functions.size()) {
    std::int32_t place = 0;
    for (const ProgramTensor& each : program.parameters) tensors_.insert_or_assign(each.name, place++);
    for (const auto& [name, target] : program.tied) {
      const auto found = tensors_.find(target);
      if (found != tensors_.end()) tensors_.insert_or_assign(name, found->second);
    }
    for (const auto* made : {&program.buffers, &program.constants}) {
      for (const ProgramTensor& each : *made) tensors_.insert_or_assign(each.name, place++);
    }
    for (std::size_t i = 0; i < program.module_count(); ++i) {
      const auto module = static_cast<std::int32_t>(i);
      modules_.emplace(program.module_path(module), module);
    }
  }

  [[nodiscard]] PlacedForward forward(std::int32_t function) {
    PlacedFunction main = placed(function, "", true);
    found_.main = std::move(main);
    return std::move(found_);
  }

 private:
  PlacedFunction placed(std::int32_t number, const std::string& path, bool is_module = false) {
    if (++count_ > kMostFunctions) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: more than {} layers are not modelled", program_.name, kMostFunctions));
    }
    const auto i = static_cast<std::size_t>(number);
    if (!met_[i]) {
      met_[i] = true;
      found_.functions.push_back(number);
    }
    const ProgramFunction& function = program_.functions.at(number);
    PlacedFunction made;
    made.function = number;
    if (const auto found = modules_.find(path); is_module && found != modules_.end()) made.module = found->second;
    made.tensors.reserve(function.parameters.size());
    for (const std::string& name : function.parameters) made.tensors.push_back(tensor(path, name));
    std::vector<std::size_t> open;  // of made.modules
    for_each_instruction(function.body, [&](const ProgramInstruction& each) { add(each, path, made, open); });
    return made;
  }

  /// The innermost module of `made` that has begun uses the parameter.
  void note_use(std::int32_t parameter, PlacedFunction& made, const std::vector<std::size_t>& open) const {
    if (parameter >= std::ssize(program_.parameters)) return;  // a buffer
    const std::int32_t module = open.empty() ? made.module : made.modules[open.back()].module;
    const auto has_it = [&](const TiedTensor& each) { return each.module == module && each.parameter == parameter; };
    const bool is_own = program_.parameters[static_cast<std::size_t>(parameter)].module == module ||
                        std::any_of(program_.tied_tensors.begin(), program_.tied_tensors.end(), has_it);
    if (!is_own) add_once(open.empty() ? made.used : made.modules[open.back()].used, parameter);
  }

  void note_uses(const ProgramInstruction& each, PlacedFunction& made, const std::vector<std::size_t>& open) const {
    const auto note = [&](std::size_t parameter) { note_use(made.tensors[parameter], made, open); };
    if (const auto* call = std::get_if<ProgramCall>(&each)) {
      for_each_parameter(call->positional, note);
      for_each_parameter(call->keywords, note);
    } else if (const auto* layers = std::get_if<ProgramLayers>(&each)) {
      for_each_parameter(layers->positional, note);
      for_each_parameter(layers->keywords, note);
    } else if (const auto* custom = std::get_if<ProgramCustom>(&each)) {
      for_each_parameter(custom->arguments, note);
    } else if (const auto* region = std::get_if<ProgramCheckpoint>(&each)) {
      for_each_parameter(region->positional, note);
      for_each_parameter(region->keywords, note);
    }
  }

  void add(const ProgramInstruction& each, const std::string& path, PlacedFunction& made,
           std::vector<std::size_t>& open) {
    note_uses(each, made, open);
    const auto note_inner = [&](const PlacedFunction& inner) {
      for (const std::int32_t parameter : inner.used) note_use(parameter, made, open);
    };
    if (const auto* layers = std::get_if<ProgramLayers>(&each)) {
      std::vector<PlacedFunction> called;
      for (std::int64_t i = 0; i < layers->count; ++i) {
        const std::string layer = full_name(path, path_of_layer(layers->path, layers->first + i));
        found_.layers.push_back(layer);
        called.push_back(placed(layers->function, layer, true));
      }
      made.layers.push_back(std::move(called));
    } else if (const auto* module = std::get_if<ProgramModule>(&each)) {
      if (!module->path.empty()) {
        open.push_back(made.modules.size());
        made.modules.push_back(module_of_call(*module, path));
      } else if (!open.empty()) {
        open.pop_back();
      }
    } else if (const auto* custom = std::get_if<ProgramCustom>(&each)) {
      made.customs.push_back(placed(custom->function, path));
      note_inner(made.customs.back());
      PlacedFunction none;
      none.function = -1;
      made.backwards.push_back(custom->backward >= 0 ? placed(custom->backward, path) : std::move(none));
    } else if (const auto* region = std::get_if<ProgramCheckpoint>(&each)) {
      found_.has_regions = true;
      made.regions.push_back(placed(region->function, path));
      note_inner(made.regions.back());
    }
  }

  [[nodiscard]] std::int32_t tensor(const std::string& path, const std::string& name) const {
    const std::string full = full_name(path, name);
    const auto found = tensors_.find(full);
    if (found != tensors_.end()) return found->second;
    throw Error(ErrorCode::kInput,
                fmt::format("{}: the program names {}, which it does not have", program_.name, full));
  }

  [[nodiscard]] PlacedModule module_of_call(const ProgramModule& module, const std::string& path) const {
    const std::string whole = full_name(path, module.path);
    PlacedModule place;
    if (const auto found = modules_.find(whole); found != modules_.end()) place.module = found->second;
    place.called = place.module;
    if (!module.type.ends_with("Embedding")) return place;  // BartScaledWordEmbedding is one, too
    const auto same = [&](const auto& names) { return names.first == whole + ".weight"; };
    const auto tied = std::find_if(program_.tied.begin(), program_.tied.end(), same);
    if (tied == program_.tied.end()) return place;
    const auto found = modules_.find(memcalc::module_of(tied->second));  // another name of a shared one
    if (found == modules_.end()) return place;
    const auto i = static_cast<std::size_t>(found->second);
    const bool is_head = i < program_.modules.size() && program_.modules[i].second == "Linear";
    if (!is_head) place.called = found->second;
    return place;
  }

  const Program& program_;
  std::unordered_map<std::string_view, std::int32_t> tensors_, modules_;
  std::vector<bool> met_;
  PlacedForward found_;
  int count_ = 0;
};

}  // namespace

ProgramPlaces& ProgramPlaces::operator=(const ProgramPlaces& other) {
  if (this != &other) found_.clear();
  return *this;
}

const PlacedForward& ProgramPlaces::of(const Program& program, std::int32_t function) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const PlacedForward>& found = found_[function];
  if (!found) {
    check_forward(program, function);
    found = std::make_shared<const PlacedForward>(Placing(program).forward(function));
  }
  return *found;
}

}  // namespace memcalc
