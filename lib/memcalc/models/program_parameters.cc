// What a program's module holds: parameters in modules that fine-tuning knows, buffers, constants.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/recurrent.h"

namespace memcalc {
namespace {

/// Trainer.get_decay_parameter_names: neither in nn.LayerNorm nor of such a name.
bool decays(std::string name, std::string_view type) {
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

std::string full_name(const std::string& path, const std::string& name) {
  return name.starts_with('/') ? name.substr(1) : path.empty() ? name : path + "." + name;
}

bool is_recurrent(std::string_view type) { return type == "LSTM" || type == "GRU" || type == "RNN"; }

/// nn.Linear, nn.Embedding, transformers' Conv1D: `i` is the place of its weight among the parameters, then of its
/// last.
void ProgramModel::make_leaf(ModuleBuilder& b, const std::string& path, std::string_view type, std::size_t& i) {
  const std::vector<ProgramTensor>& all = program_->parameters;
  const std::string& name = all[i].name;
  const Shape shape = binding_.shape(all[i].shape, name);
  const bool has_bias = i + 1 < all.size() && all[i + 1].name == path + ".bias" && !all[i + 1].frozen;
  if (type == "Embedding") {
    Embedding made(b, path, shape[0], shape[1]);
    tensors_[name] = made.weight;
    leaves_.emplace(path, std::move(made));
    return;
  }
  const auto remember = [&](auto made) {
    tensors_[name] = made.weight;
    if (has_bias) tensors_[all[++i].name] = made.bias;
    leaves_.emplace(path, std::move(made));
  };
  if (type == "Conv1D") {
    remember(Conv1D(b, path, shape[0], shape[1]));
  } else {
    remember(Linear(b, path, shape[1], shape[0], has_bias));
  }
}

/// The storages of parameters and buffers in the order in which the module made them, by name. A tied parameter had
/// one, too, before it became another's.
std::unordered_map<std::string, Tensor> ProgramModel::make_storages(Tape& tape) const {
  std::unordered_map<std::string_view, const ProgramTensor*> described;
  for (const auto* made : {&program_->parameters, &program_->buffers}) {
    for (const ProgramTensor& each : *made) described.emplace(each.name, &each);
  }
  for (const auto& [name, target] : program_->tied) {
    const auto found = described.find(target);
    if (found != described.end()) described.emplace(name, found->second);
  }
  std::unordered_map<std::string, Tensor> storages;
  for (const std::string& name : program_->construction) {
    const auto found = described.find(name);
    if (found == described.end()) continue;
    const ProgramTensor& each = *found->second;
    storages[name] =
        tape.empty(binding_.shape(each.shape, name), binding_.dtype(each.dtype), aten::kEmpty, Category::kWeights);
  }
  for (const auto& [name, target] : program_->tied) storages.erase(name);
  return storages;
}

void ProgramModel::make_parameters(ModuleBuilder& b) {
  std::unordered_map<std::string_view, std::string_view> types;
  for (const auto& [path, type] : program_->modules) types.emplace(path, type);
  const std::vector<ProgramTensor>& all = program_->parameters;
  std::unordered_map<std::string, Tensor> storages = make_storages(b.tape);
  const auto has_storage = [&](const ProgramTensor& each) { return storages.contains(each.name); };
  const bool was_constructed = !all.empty() && std::all_of(all.begin(), all.end(), has_storage);
  std::optional<OnMetaDevice> on_meta;
  if (was_constructed) on_meta.emplace(b.tape.memory);
  std::map<std::string, std::vector<Tensor>> recurrent;  // weights of recurrent modules, by path
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i].name;
    const Shape shape = binding_.shape(all[i].shape, name);
    if (shape.elements() < 1) throw Error(ErrorCode::kInput, program_->name + ": " + name + " has no elements");
    const std::string path = module_of(name);
    const auto found = types.find(path);
    const std::string_view type = found == types.end() ? std::string_view() : found->second;
    const DType dtype = std::exchange(b.dtype, binding_.dtype(all[i].dtype));
    const bool has_bias = i + 1 < all.size() && all[i + 1].name == path + ".bias";
    const bool is_leaf = (type == "Linear" || type == "Embedding" || (type == "Conv1D" && has_bias)) &&
                         shape.rank == 2 && name.ends_with(".weight") && !all[i].frozen;
    if (is_leaf) {
      make_leaf(b, path, type, i);
    } else {
      tensors_[name] = all[i].frozen ? b.frozen_parameter(name, shape) : b.parameter(name, shape);
      // A program has names of classes alone: one that ends so and holds a matrix is derived from nn.Embedding.
      if (type.ends_with("Embedding") && shape.rank == 2 && name.ends_with(".weight")) {
        b.parameters.back().is_embedding = true;
        if (std::exchange(b.first_embedding_requires_grad, false)) requires_grad_of_ = path;
      }
      if (is_recurrent(type)) recurrent[path].push_back(tensors_[name]);
    }
    b.dtype = dtype;
  }
  for (Parameter& parameter : b.parameters) {
    const auto of_class = types.find(module_of(parameter.name));
    parameter.decays = decays(parameter.name, of_class == types.end() ? std::string_view() : of_class->second);
  }
  on_meta.reset();
  if (was_constructed) {
    for (const ProgramTensor& each : all) b.tape.take_storage(tensors_[each.name], storages[each.name]);
  }
  for (auto& [path, weights] : recurrent) flatten_parameters(b.tape, weights);
  for (const auto& [name, target] : program_->tied) {
    const auto found = tensors_.find(target);
    if (found != tensors_.end()) tensors_[name] = found->second;
  }
  find_held_parameters();
  make_tied_heads();
  for (const std::vector<ProgramTensor>* made : {&program_->buffers, &program_->constants}) {
    for (const ProgramTensor& each : *made) {
      const auto storage = storages.find(each.name);
      const bool is_made = was_constructed && storage != storages.end() && storage->second.defined();
      {
        std::optional<OnMetaDevice> without_storage;
        if (is_made) without_storage.emplace(b.tape.memory);
        tensors_[each.name] = b.buffer(binding_.shape(each.shape, each.name), binding_.dtype(each.dtype));
      }
      if (is_made) b.tape.take_storage(tensors_[each.name], storage->second);
    }
  }
}

void ProgramModel::find_held_parameters() {
  for (const ProgramTensor& each : program_->parameters) {
    held_[module_of(each.name)].tensors.push_back(&tensors_.at(each.name));
  }
  for (const auto& [name, target] : program_->tied) {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) held_[module_of(name)].tensors.push_back(&found->second);
  }
}

/// Heads whose weight is another module's, too: nn.Linear, which fine-tuning leaves as they are.
void ProgramModel::make_tied_heads() {
  const auto tensor = [&](const std::string& name) {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? Tensor() : found->second;
  };
  for (const auto& [path, type] : program_->modules) {
    if (type != "Linear" || leaves_.contains(path)) continue;
    Linear head;
    head.weight = tensor(path + ".weight");
    head.bias = tensor(path + ".bias");
    if (head.weight.defined() && head.weight.shape().rank == 2) leaves_.emplace(path, std::move(head));
  }
}

Tensor ProgramModel::find_tensor(const std::string& path, const std::string& name) const {
  const std::string full = full_name(path, name);
  const auto found = tensors_.find(full);
  if (found != tensors_.end()) return found->second;
  throw Error(ErrorCode::kInput, fmt::format("{}: the program names {}, which it does not have", program_->name, full));
}

}  // namespace memcalc
