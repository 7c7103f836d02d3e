// What a program's module holds: parameters in modules that fine-tuning knows, buffers, constants.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/recurrent.h"

namespace memcalc {

namespace {

std::optional<RecurrentCell> cell_of(std::string_view type) {
  if (type == "LSTM") return RecurrentCell::kLstm;
  if (type == "GRU") return RecurrentCell::kGru;
  if (type == "RNN") return RecurrentCell::kPlain;
  return std::nullopt;
}

}  // namespace

bool is_recurrent(std::string_view type) { return cell_of(type).has_value(); }

/// nn.Linear, nn.Embedding, transformers' Conv1D: `i` is the place of its weight among the parameters, then of its
/// last.
void ProgramModel::make_leaf(ModuleBuilder& b, std::size_t& i) {
  using Leaf = ProgramTensor::Leaf;
  const ProgramTensor& weight = program_->parameters[i];
  const Shape shape = binding_.shape(weight.shape, weight.name);
  const std::string& path = program_->module_path(weight.module);
  std::optional<LeafModule>& leaf = leaves_[static_cast<std::size_t>(weight.module)];
  const auto remember = [&](auto made) {
    tensors_[i] = made.weight;
    if constexpr (!std::is_same_v<decltype(made), Embedding>) {
      if (weight.has_bias) tensors_[++i] = made.bias;
    }
    if (!leaf) leaf = std::move(made);
  };
  switch (weight.leaf) {
    case Leaf::kNone: break;
    case Leaf::kEmbedding:
      remember(Embedding(b, path, shape[0], shape[1]));
      b.parameters.back().name = weight.name;  // by that of a head that was made before it
      return;
    case Leaf::kConv1D: return remember(Conv1D(b, path, shape[0], shape[1]));
    case Leaf::kLinear: return remember(Linear(b, path, shape[1], shape[0], weight.has_bias));
  }
}

/// module.to(dtype), where the module is made on the card as a whole.
bool ProgramModel::converts() const {
  return program_->converted && binding_.weights != DType::kFloat32 && !run_.parallel.is_parallel() &&
         run_.fine_tuning.quantization == Quantization::kNone;
}

/// The storages of parameters and buffers in the order in which the module made them. A tied parameter had one, too,
/// before it became another's; so had what the module does not keep, whose places are then free for others. A
/// conversion makes each anew before the old one is gone, so that they come to lie in one another's places.
ProgramModel::Storages ProgramModel::make_storages(Tape& tape) const {
  Storages storages{std::vector<Tensor>(program_->parameters.size()), std::vector<Tensor>(program_->buffers.size())};
  std::vector<Tensor> replaced, others;
  const auto dtype_of = [&](const auto& each) {
    return converts() && each.dtype == "weights" ? DType::kFloat32 : binding_.dtype(each.dtype);
  };
  std::vector<ConstructedTensor> in_order;  // where the program says nothing of it
  if (converts() && !program_->constructs_all) {
    for (std::size_t i = 0; i < program_->parameters.size(); ++i) in_order.push_back({false, i});
    for (std::size_t i = 0; i < program_->buffers.size(); ++i) in_order.push_back({true, i});
  }
  for (const ConstructedTensor& made : in_order.empty() ? program_->constructed : in_order) {
    if (made.other >= 0) {
      const ProgramConstruction& other = program_->construction[static_cast<std::size_t>(made.other)];
      for (const std::int32_t freed : other.freed) others[static_cast<std::size_t>(freed)].reset();
      if (!other.freed.empty()) continue;
      others.push_back(
          tape.empty(binding_.shape(other.shape, program_->name), dtype_of(other), aten::kEmpty, Category::kWeights));
      continue;
    }
    const ProgramTensor& each = (made.is_buffer ? program_->buffers : program_->parameters)[made.place];
    Tensor storage =
        tape.empty(binding_.shape(each.shape, each.name), dtype_of(each), aten::kEmpty, Category::kWeights);
    if (made.is_replaced) {
      replaced.push_back(std::move(storage));
    } else {
      (made.is_buffer ? storages.buffers : storages.parameters)[made.place] = std::move(storage);
    }
  }
  if (!converts()) return storages;
  replaced.clear();
  for (const ConstructedTensor& made : program_->conversion) {
    const ProgramTensor& each = (made.is_buffer ? program_->buffers : program_->parameters)[made.place];
    Tensor& storage = (made.is_buffer ? storages.buffers : storages.parameters)[made.place];
    if (!storage.defined()) continue;
    storage = tape.empty(storage.shape(), binding_.dtype(each.dtype), aten::kToCopy, Category::kWeights);
  }
  return storages;
}

void ProgramModel::make_parameters(ModuleBuilder& b) {
  const std::vector<ProgramTensor>& all = program_->parameters;
  Storages storages = make_storages(b.tape);
  const bool was_constructed = program_->constructs_all || converts();
  tensors_.resize(all.size() + program_->buffers.size() + program_->constants.size());
  leaves_.resize(program_->module_count());
  b.parameters.reserve(all.size());
  std::optional<OnMetaDevice> on_meta;
  if (was_constructed) on_meta.emplace(b.tape.memory);
  struct Recurrent {
    RecurrentCell cell = RecurrentCell::kLstm;
    std::vector<Tensor> weights;
  };
  std::map<std::string, Recurrent> recurrent;  // by path
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i].name;
    const Shape shape = binding_.shape(all[i].shape, name);
    if (shape.elements() < 1) throw Error(ErrorCode::kInput, program_->name + ": " + name + " has no elements");
    const std::string& type = all[i].module_type;
    const DType dtype = std::exchange(b.dtype, binding_.dtype(all[i].dtype));
    if (all[i].leaf != ProgramTensor::Leaf::kNone) {
      make_leaf(b, i);
    } else {
      tensors_[i] = all[i].frozen ? b.frozen_parameter(name, shape) : b.parameter(name, shape);
      // A program has names of classes alone: one that ends so and holds a matrix is derived from nn.Embedding.
      if (type.ends_with("Embedding") && shape.rank == 2 && name.ends_with(".weight")) {
        b.parameters.back().is_embedding = true;
        if (std::exchange(b.first_embedding_requires_grad, false)) requires_grad_of_ = all[i].module;
      }
      if (const auto cell = cell_of(type)) {
        Recurrent& module = recurrent[module_of(name)];
        module.cell = *cell;
        module.weights.push_back(tensors_[i]);
      }
    }
    b.dtype = dtype;
  }
  for (std::size_t i = 0; i < b.parameters.size(); ++i) b.parameters[i].decays = all[i].decays;
  on_meta.reset();
  if (was_constructed) {
    for (std::size_t i = 0; i < all.size(); ++i) b.tape.take_storage(tensors_[i], storages.parameters[i]);
  }
  for (auto& [path, module] : recurrent) flatten_parameters(b.tape, module.cell, module.weights);
  make_tied_heads();
  if (b.fine_tuning.lora) {
    wrapped_ = wrappable_modules(*program_);
    std::copy_if(wrapped_.begin(), wrapped_.end(), std::back_inserter(b.experts),
                 [](const auto& module) { return module != nullptr; });
  }
  std::size_t place = all.size();
  for (const std::vector<ProgramTensor>* made : {&program_->buffers, &program_->constants}) {
    for (std::size_t i = 0; i < made->size(); ++i) {
      const ProgramTensor& each = (*made)[i];
      const bool is_made = was_constructed && made == &program_->buffers && storages.buffers[i].defined();
      Tensor& tensor = tensors_[place++];
      {
        std::optional<OnMetaDevice> without_storage;
        if (is_made || each.on_host) without_storage.emplace(b.tape.memory);
        tensor = b.buffer(binding_.shape(each.shape, each.name), binding_.dtype(each.dtype));
      }
      if (is_made) b.tape.take_storage(tensor, storages.buffers[i]);
    }
  }
}

const Tensor* ProgramModel::moved_before(std::size_t buffer) const {
  const Tensor* before = nullptr;
  for (const ConstructedTensor& each : program_->conversion) {
    if (!each.is_buffer) before = &tensors_[each.place];
    if (each.is_buffer && each.place == buffer) return before;
  }
  return nullptr;
}

/// Heads whose weight is another module's, too: nn.Linear, which fine-tuning leaves as they are.
void ProgramModel::make_tied_heads() {
  for (const TiedHead& each : program_->tied_heads) {
    Linear head;
    head.weight = tensors_[static_cast<std::size_t>(each.weight)];
    if (each.bias >= 0) head.bias = tensors_[static_cast<std::size_t>(each.bias)];
    std::optional<LeafModule>& leaf = leaves_[static_cast<std::size_t>(each.module)];
    if (!leaf) leaf = std::move(head);
  }
}

}  // namespace memcalc
