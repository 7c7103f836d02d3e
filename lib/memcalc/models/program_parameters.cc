// What a program's module holds: parameters in modules that fine-tuning knows, buffers, constants.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/recurrent.h"

namespace memcalc {
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

/// The storages of parameters and buffers in the order in which the module made them. A tied parameter had one, too,
/// before it became another's.
ProgramModel::Storages ProgramModel::make_storages(Tape& tape) const {
  Storages storages{std::vector<Tensor>(program_->parameters.size()), std::vector<Tensor>(program_->buffers.size())};
  std::vector<Tensor> replaced;
  for (const ConstructedTensor& made : program_->constructed) {
    const ProgramTensor& each = (made.is_buffer ? program_->buffers : program_->parameters)[made.place];
    Tensor storage =
        tape.empty(binding_.shape(each.shape, each.name), binding_.dtype(each.dtype), aten::kEmpty, Category::kWeights);
    if (made.is_replaced) {
      replaced.push_back(std::move(storage));
    } else {
      (made.is_buffer ? storages.buffers : storages.parameters)[made.place] = std::move(storage);
    }
  }
  return storages;
}

void ProgramModel::make_parameters(ModuleBuilder& b) {
  const std::vector<ProgramTensor>& all = program_->parameters;
  Storages storages = make_storages(b.tape);
  const bool was_constructed = program_->constructs_all;
  tensors_.reserve(all.size() + program_->buffers.size() + program_->constants.size() + program_->tied.size());
  b.parameters.reserve(all.size());
  std::optional<OnMetaDevice> on_meta;
  if (was_constructed) on_meta.emplace(b.tape.memory);
  std::map<std::string, std::vector<Tensor>> recurrent;  // weights of recurrent modules, by path
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i].name;
    const Shape shape = binding_.shape(all[i].shape, name);
    if (shape.elements() < 1) throw Error(ErrorCode::kInput, program_->name + ": " + name + " has no elements");
    const std::string path = module_of(name);
    const std::string& type = all[i].module_type;
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
  for (std::size_t i = 0; i < b.parameters.size(); ++i) b.parameters[i].decays = all[i].decays;
  on_meta.reset();
  if (was_constructed) {
    for (std::size_t i = 0; i < all.size(); ++i) b.tape.take_storage(tensors_[all[i].name], storages.parameters[i]);
  }
  for (auto& [path, weights] : recurrent) flatten_parameters(b.tape, weights);
  for (const auto& [name, target] : program_->tied) {
    const auto found = tensors_.find(target);
    if (found != tensors_.end()) tensors_[name] = found->second;
  }
  find_held_parameters();
  make_tied_heads();
  for (const std::vector<ProgramTensor>* made : {&program_->buffers, &program_->constants}) {
    for (std::size_t i = 0; i < made->size(); ++i) {
      const ProgramTensor& each = (*made)[i];
      const bool is_made = was_constructed && made == &program_->buffers && storages.buffers[i].defined();
      {
        std::optional<OnMetaDevice> without_storage;
        if (is_made) without_storage.emplace(b.tape.memory);
        tensors_[each.name] = b.buffer(binding_.shape(each.shape, each.name), binding_.dtype(each.dtype));
      }
      if (is_made) b.tape.take_storage(tensors_[each.name], storages.buffers[i]);
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
