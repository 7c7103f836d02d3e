// What follows from the parts of a program together.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>

#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

/// The path of the module in the name of its tensor.
std::string_view path_in(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

/// Trainer.get_decay_parameter_names: neither in nn.LayerNorm nor of such a name.
bool has_decay(std::string_view name, std::string_view type) {
  thread_local std::string dotted;  // asked of each parameter as a program is read: one buffer for all of them
  dotted.assign(1, '.').append(name).append(1, '.');
  for (char& c : dotted) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const char* part : {"bias", "layernorm", "rmsnorm", ".norm.", "_norm."}) {
    if (dotted.find(part) != std::string::npos) return false;
  }
  return type != "LayerNorm";
}

ProgramTensor::Leaf leaf_of(const ProgramTensor& weight, bool has_bias) {
  using Leaf = ProgramTensor::Leaf;
  if (weight.shape.size() != 2 || !weight.name.ends_with(".weight") || weight.frozen) return Leaf::kNone;
  if (weight.module_type == "Linear") return Leaf::kLinear;
  if (weight.module_type == "Embedding") return Leaf::kEmbedding;
  return weight.module_type == "Conv1D" && has_bias ? Leaf::kConv1D : Leaf::kNone;
}

using NamedPlaces = std::unordered_map<std::string_view, ConstructedTensor>;

/// Modules by their paths: those of `modules`, then others that hold parameters.
class Modules {
 public:
  explicit Modules(Program& program) : program_(program) {
    for (std::size_t i = 0; i < program.modules.size(); ++i) {
      places_.emplace(program.modules[i].first, static_cast<std::int32_t>(i));
    }
  }

  std::int32_t place_of(std::string path) {
    const auto found = places_.find(path);
    if (found != places_.end()) return found->second;
    const auto place = static_cast<std::int32_t>(program_.module_count());
    places_.emplace(path, place);
    program_.other_modules.push_back(std::move(path));
    return place;
  }

 private:
  Program& program_;
  std::unordered_map<std::string, std::int32_t> places_;
};

/// Of each parameter that an nn.Embedding shares with the module that has it first: the embedding.
std::unordered_map<std::string_view, std::int32_t> sharing_embeddings(const Program& program, Modules& modules) {
  std::unordered_map<std::string_view, std::int32_t> found;
  for (const auto& [name, target] : program.tied) {
    const std::int32_t module = modules.place_of(module_of(name));
    const auto i = static_cast<std::size_t>(module);
    if (i < program.modules.size() && program.modules[i].second == "Embedding") found.emplace(target, module);
  }
  return found;
}

void relate_parameters(Program& program, Modules& modules) {
  std::vector<ProgramTensor>& all = program.parameters;
  const std::unordered_map<std::string_view, std::int32_t> embeddings = sharing_embeddings(program, modules);
  const auto type_of = [&program](std::int32_t module) {
    const auto i = static_cast<std::size_t>(module);
    return i < program.modules.size() ? program.modules[i].second : std::string();
  };
  std::string_view path;  // of `module`, which the parameters after the first of a module have as well
  std::int32_t module = -1;
  for (ProgramTensor& each : all) {
    const std::string_view own = path_in(each.name);
    if (module < 0 || own != path) module = modules.place_of(std::string(own));
    path = own;
    each.module = module;
    each.module_type = type_of(module);
    // A head that is made before the embeddings whose weight it shares (XLM-RoBERTa): it is a head all the same.
    if (const auto shared = embeddings.find(each.name); shared != embeddings.end() && each.module_type == "Linear") {
      each.module = shared->second;
      each.module_type = type_of(each.module);
    }
    each.decays = has_decay(each.name, each.module_type);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ProgramTensor* next = i + 1 < all.size() && all[i + 1].module == all[i].module ? &all[i + 1] : nullptr;
    const bool has_bias = next != nullptr && next->name.ends_with(".bias");
    all[i].leaf = leaf_of(all[i], has_bias);
    all[i].has_bias = has_bias && !next->frozen;
  }
}

struct NamedTensor {
  std::string_view name;  // seen from the module around
  ConstructedTensor tensor;
};

/// nn.Module._apply (nn/modules/module.py, torch 2.11): the modules inside, each as they do, then its own parameters
/// and buffers.
// MIRRORS(torch, "nn/modules/module.py", "2.11.0")
void put_in_order(const std::vector<NamedTensor>& tensors, std::vector<ConstructedTensor>& order, int depth = 0) {
  constexpr int kMostDepth = 64;
  std::vector<std::pair<std::string_view, std::vector<NamedTensor>>> modules;
  std::vector<ConstructedTensor> own;
  for (const NamedTensor& each : tensors) {
    const std::size_t dot = each.name.find('.');
    if (dot == std::string_view::npos || depth == kMostDepth) {
      own.push_back(each.tensor);
      continue;
    }
    const std::string_view name = each.name.substr(0, dot);
    // From the end: those of one module follow one another.
    auto found = std::find_if(modules.rbegin(), modules.rend(), [&](const auto& each) { return each.first == name; });
    if (found == modules.rend()) found = std::make_reverse_iterator(modules.insert(modules.end(), {name, {}}) + 1);
    found->second.push_back({each.name.substr(dot + 1), each.tensor});
  }
  for (const auto& [name, inside] : modules) put_in_order(inside, order, depth + 1);
  order.insert(order.end(), own.begin(), own.end());
}

void find_conversion(Program& program) {
  std::vector<NamedTensor> tensors;
  for (const auto* made : {&program.parameters, &program.buffers}) {
    for (std::size_t i = 0; i < made->size(); ++i) {
      const ProgramTensor& each = (*made)[i];
      if (each.dtype == "weights") tensors.push_back({each.name, {made == &program.buffers, i}});
    }
  }
  put_in_order(tensors, program.conversion);
}

/// nn.Linear that is no leaf.
void find_tied_heads(Program& program, const NamedPlaces& places) {
  std::vector<bool> is_leaf(program.module_count());
  for (const ProgramTensor& each : program.parameters) {
    if (each.leaf != ProgramTensor::Leaf::kNone) is_leaf[static_cast<std::size_t>(each.module)] = true;
  }
  const auto parameter = [&](const std::string& name) {
    const auto found = places.find(name);
    return found == places.end() || found->second.is_buffer ? -1 : static_cast<std::int32_t>(found->second.place);
  };
  for (std::size_t i = 0; i < program.modules.size(); ++i) {
    const auto& [path, type] = program.modules[i];
    if (type != "Linear" || is_leaf[i]) continue;
    const std::int32_t weight = parameter(path + ".weight");
    if (weight < 0 || program.parameters[static_cast<std::size_t>(weight)].shape.size() != 2) continue;
    program.tied_heads.push_back({static_cast<std::int32_t>(i), weight, parameter(path + ".bias")});
  }
}

}  // namespace

std::string full_name(const std::string& path, const std::string& name) {
  return name.starts_with('/') ? name.substr(1) : path.empty() ? name : path + "." + name;
}

std::string module_of(const std::string& name) { return std::string(path_in(name)); }

void relate_parts(Program& program) {
  Modules modules(program);
  relate_parameters(program, modules);
  NamedPlaces places;
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
    if (replaced.is_buffer) continue;
    std::int32_t module = modules.place_of(module_of(name));
    if (module == program.parameters[replaced.place].module) module = modules.place_of(module_of(target));
    program.tied_tensors.push_back({module, static_cast<std::int32_t>(replaced.place)});
  }
  find_tied_heads(program, places);
  std::vector<bool> has_storage(program.parameters.size());
  for (std::size_t i = 0; i < program.construction.size(); ++i) {
    const std::string& name = program.construction[i].name;
    if (name.empty()) program.constructed.push_back({.other = static_cast<std::int32_t>(i)});
    const auto found = places.find(name);
    if (found == places.end()) continue;
    program.constructed.push_back(found->second);
    if (!found->second.is_buffer && !found->second.is_replaced) has_storage[found->second.place] = true;
  }
  if (program.converted || program.task == kDenoisingTask) find_conversion(program);
  program.constructs_all =
      !has_storage.empty() && std::find(has_storage.begin(), has_storage.end(), false) == has_storage.end();
}

}  // namespace memcalc
