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
    PlacedFunction main = placed(function, "");
    found_.main = std::move(main);
    return std::move(found_);
  }

 private:
  PlacedFunction placed(std::int32_t number, const std::string& path) {
    if (++count_ > kMostFunctions) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: more than {} layers are not modelled", program_.name, kMostFunctions));
    }
    const auto i = static_cast<std::size_t>(number);
    if (!met_[i]) {
      met_[i] = true;
      found_.functions.push_back(number);
    }
    const ProgramFunction& function = program_.functions[i];
    PlacedFunction made;
    made.function = number;
    made.tensors.reserve(function.parameters.size());
    for (const std::string& name : function.parameters) made.tensors.push_back(tensor(path, name));
    for_each_instruction(function.body, [&](const ProgramInstruction& each) { add(each, path, made); });
    return made;
  }

  void add(const ProgramInstruction& each, const std::string& path, PlacedFunction& made) {
    if (const auto* layers = std::get_if<ProgramLayers>(&each)) {
      std::vector<PlacedFunction> called;
      for (std::int64_t i = 0; i < layers->count; ++i) {
        const std::string layer = full_name(path, path_of_layer(layers->path, layers->first + i));
        found_.layers.push_back(layer);
        called.push_back(placed(layers->function, layer));
      }
      made.layers.push_back(std::move(called));
    } else if (const auto* module = std::get_if<ProgramModule>(&each)) {
      if (!module->path.empty()) made.modules.push_back(module_of_call(*module, path));
    } else if (const auto* custom = std::get_if<ProgramCustom>(&each)) {
      made.customs.push_back(placed(custom->function, path));
      PlacedFunction none;
      none.function = -1;
      made.backwards.push_back(custom->backward >= 0 ? placed(custom->backward, path) : std::move(none));
    } else if (const auto* region = std::get_if<ProgramCheckpoint>(&each)) {
      found_.has_regions = true;
      made.regions.push_back(placed(region->function, path));
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
    if (module.type != "Embedding") return place;
    const auto same = [&](const auto& names) { return names.first == whole + ".weight"; };
    const auto tied = std::find_if(program_.tied.begin(), program_.tied.end(), same);
    if (tied == program_.tied.end()) return place;
    const auto found = modules_.find(memcalc::module_of(tied->second));  // another name of a shared one
    if (found != modules_.end()) place.called = found->second;
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
  if (!found) found = std::make_shared<const PlacedForward>(Placing(program).forward(function));
  return *found;
}

}  // namespace memcalc
