// What follows from the parts of a program together.
#include <algorithm>
#include <cctype>
#include <string_view>
#include <unordered_map>

#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

/// Trainer.get_decay_parameter_names: neither in nn.LayerNorm nor of such a name.
bool has_decay(std::string name, std::string_view type) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* part : {"bias", "layernorm", "rmsnorm"}) {
    if (name.find(part) != std::string::npos) return false;
  }
  const std::string dotted = "." + name + ".";
  return type != "LayerNorm" && dotted.find(".norm.") == std::string::npos &&
         dotted.find("_norm.") == std::string::npos;
}

}  // namespace

std::string module_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

void relate_parts(Program& program) {
  std::unordered_map<std::string_view, std::string_view> types;
  for (const auto& [path, type] : program.modules) types.emplace(path, type);
  for (ProgramTensor& each : program.parameters) {
    const auto found = types.find(module_of(each.name));
    if (found != types.end()) each.module_type = found->second;
    each.decays = has_decay(each.name, each.module_type);
  }
  std::unordered_map<std::string_view, ConstructedTensor> places;
  for (const auto* made : {&program.parameters, &program.buffers}) {
    for (std::size_t i = 0; i < made->size(); ++i) {
      places.emplace((*made)[i].name, ConstructedTensor{made == &program.buffers, i});
    }
  }
  for (const auto& [name, target] : program.tied) {
    const auto found = places.find(target);
    if (found == places.end()) continue;
    ConstructedTensor replaced = found->second;
    replaced.is_replaced = true;
    places.emplace(name, replaced);
  }
  std::vector<bool> has_storage(program.parameters.size());
  for (const std::string& name : program.construction) {
    const auto found = places.find(name);
    if (found == places.end()) continue;
    program.constructed.push_back(found->second);
    if (!found->second.is_buffer && !found->second.is_replaced) has_storage[found->second.place] = true;
  }
  program.constructs_all =
      !has_storage.empty() && std::find(has_storage.begin(), has_storage.end(), false) == has_storage.end();
}

}  // namespace memcalc
