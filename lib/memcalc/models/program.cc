// A recorded program (spec/program.h, docs/programs.md) as a model: its calls are made on the operator table, its
// variables die where Python's did, its layers are those that checkpointing, FSDP and others wrap, its linear layers
// and embeddings the modules that fine-tuning changes.
#include "memcalc/spec/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/model.h"
#include "memcalc/models/program_binding.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/recurrent.h"

namespace memcalc {
namespace {

constexpr Operator kParameter{"aten::empty"};

using Kind = BoundArgument::Kind;

/// Modules that are called as a whole: fine-tuning and hooks may change what they do.
using LeafModule = std::variant<Linear, Conv1D, Embedding>;

struct BoundFunction {
  const ProgramFunction* function = nullptr;
  std::vector<BoundInstruction> body;
};

/// A module that holds parameters itself, for the hooks around it.
struct HeldParameters {
  std::vector<const Tensor*> tensors;
};

struct ModulePlace {
  const LeafModule* leaf = nullptr;
  const HeldParameters* held = nullptr;  // null: it holds none
  bool output_requires_grad = false;
};

/// A function as the function of one module: with the module's parameters, and the functions that it calls.
struct Instance {
  const BoundFunction* bound = nullptr;
  std::vector<Tensor> parameters;
  std::vector<std::vector<Instance>> layers;  // of each BoundLayers, by its number
  std::vector<ModulePlace> modules;           // of each BoundModule, by its number
  std::vector<Instance> customs;              // of each BoundCustom, by its number
};

/// The variables of one call of a function. A recomputation that stops in its middle leaves them to die from the last
/// one made: Python's traceback lets go of the innermost frame first (CPython 3.11, Python/traceback.c, tb_dealloc).
class Variables {
 public:
  explicit Variables(const ProgramFunction& function) : values_(static_cast<std::size_t>(function.values)) {}
  ~Variables() {
    for (auto value = values_.rbegin(); value != values_.rend(); ++value) value->reset();
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  [[nodiscard]] std::vector<Tensor>& values() { return values_; }
  [[nodiscard]] Tensor take(std::int32_t value) { return std::move(values_[static_cast<std::size_t>(value)]); }

 private:
  std::vector<Tensor> values_;
};

/// Restores what a region has set, also where a recomputation leaves it in the middle.
class Regions {
 public:
  explicit Regions(Tape& tape) : tape_(tape) {}
  ~Regions() {
    while (!open_.empty()) close(open_.back().kind);
  }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  void run(const ProgramRegion& region, const Binding& binding) {
    if (!region.begins) return close(region.kind);
    open_.push_back({region.kind, tape_.modes.autocast.dtype, tape_.modes.grad_enabled});
    if (region.kind == ProgramRegion::Kind::kGradients) {
      tape_.modes.grad_enabled = region.enabled && (tape_.modes.grad_enabled || tape_.modes.training);
    } else if (!region.enabled) {
      tape_.modes.autocast.dtype.reset();
    } else if (!region.dtype.empty() && tape_.modes.autocast.dtype) {
      tape_.modes.autocast.dtype = binding.dtype(region.dtype);
    }
  }

 private:
  struct Open {
    ProgramRegion::Kind kind;
    std::optional<DType> autocast;
    bool gradients;
  };

  void close(ProgramRegion::Kind kind) {
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& each) { return each.kind == kind; });
    if (found == open_.rend()) return;  // that of the loop around the module
    if (kind == ProgramRegion::Kind::kGradients) {
      tape_.modes.grad_enabled = found->gradients;
    } else {
      tape_.modes.autocast.dtype = found->autocast;
    }
    open_.erase(std::next(found).base());
  }

  Tape& tape_;
  std::vector<Open> open_;
};

/// A module that has begun and not ended, where something hooks modules.
struct OpenModule {
  const BoundModule* module = nullptr;
  const HeldParameters* held = nullptr;
  Tensor input;  // as its caller has it
};

/// nn.LSTM and its like, whose weights lie in one storage (RNNBase.flatten_parameters).
bool is_recurrent(std::string_view type) { return type == "LSTM" || type == "GRU" || type == "RNN"; }

void begin_module(const BoundModule& module, const ModulePlace& place, ModuleHooks& hooks, std::vector<Tensor>& values,
                  std::vector<OpenModule>& open) {
  OpenModule& begun = open.emplace_back(OpenModule{&module, nullptr, {}});
  if (place.held == nullptr || module.input < 0 || module.output < 0) return;
  Tensor& input = values[static_cast<std::size_t>(module.input)];
  if (!input.defined()) return;
  if (is_recurrent(module.module->type)) {
    throw Error(ErrorCode::kUnsupported, "gathering the flattened weights of nn." + module.module->type +
                                             " module by module is not modelled; accepted: --parallel ddp, ds-zero2");
  }
  begun.held = place.held;
  begun.input = input;
  input = hooks.before_module(place.held, place.held->tensors, begun.input);
}

void end_module(std::vector<Tensor>& values, std::vector<OpenModule>& open) {
  OpenModule ended = std::move(open.back());
  open.pop_back();
  if (ended.held == nullptr) return;
  const Tensor& output = values[static_cast<std::size_t>(ended.module->output)];
  if (output.defined()) output.tape().modes.module_hooks->after_module(ended.held, output);
  const std::vector<std::int32_t>& dead = ended.module->also_dead;
  const bool died = std::find(dead.begin(), dead.end(), ended.module->input) != dead.end();
  if (!died) values[static_cast<std::size_t>(ended.module->input)] = std::move(ended.input);
}

/// The forward hook of enable_input_require_grads.
void require_grad(const Tensor& output) {
  if (!output.defined() || output.requires_grad() || !output.tape().modes.grad_enabled) return;
  output.tape().autograd.require_gradient(output);
}

struct KnownInput {
  std::string_view name;
  Tensor Batch::*member;
};

/// Inputs that every loop knows.
constexpr KnownInput kKnownInputs[] = {{"input_ids", &Batch::input_ids},
                                       {"labels", &Batch::labels},
                                       {"attention_mask", &Batch::attention_mask},
                                       {"pixel_values", &Batch::pixel_values},
                                       {"input_features", &Batch::input_features}};
constexpr std::string_view kNumberOfItems = "num_items_in_batch";

class ProgramModel : public Model {
 public:
  ProgramModel(std::shared_ptr<const Program> program, const RunSpec& run, ModuleBuilder& b);
  [[nodiscard]] ModelOutput forward(const Batch& batch) override;

 private:
  void bind_sizes();
  void bind_dtypes();
  void choose_forward();
  void make_parameters(ModuleBuilder& b);
  void make_leaf(ModuleBuilder& b, const std::string& path, std::string_view type, std::size_t& i);
  [[nodiscard]] std::unordered_map<std::string, Tensor> make_storages(Tape& tape) const;
  void find_held_parameters();
  void make_tied_heads();
  void find_inputs();
  void look_at_calls();
  void check_fits(const LeafModule& leaf, const Tensor& input) const;
  [[nodiscard]] const BoundFunction& bound(std::int32_t function);
  [[nodiscard]] Instance instance(std::int32_t function, const std::string& path);
  void add_called(const std::vector<BoundInstruction>& body, const std::string& path, Instance& made);
  [[nodiscard]] ModulePlace module_place(const BoundModule& module, const std::string& path) const;
  [[nodiscard]] Tensor find_tensor(const std::string& path, const std::string& name) const;
  void run_body(const Instance& instance, const std::vector<BoundInstruction>& body, std::vector<Tensor>& values,
                std::int64_t in_run = 0) const;
  void run_call(const Instance& instance, const BoundCall& call, std::vector<Tensor>& values,
                std::int64_t in_run) const;
  void run_layers(const Instance& caller, const BoundLayers& call, const std::vector<Instance>& layers,
                  std::vector<Tensor>& values) const;
  void run_loop(const Instance& instance, const BoundLoop& loop, std::vector<Tensor>& values) const;
  void run_custom(const Instance& caller, const BoundCustom& call, const Instance& called,
                  std::vector<Tensor>& values) const;

  std::shared_ptr<const Program> program_;
  RunSpec run_;
  Tape& tape_;
  Binding binding_;
  bool autocasts_ = false;
  const ProgramForward* forward_ = nullptr;
  std::unordered_map<std::string, Tensor> tensors_;       // parameters, buffers and constants by name
  std::unordered_map<std::string, LeafModule> leaves_;    // by path
  std::unordered_map<std::string, HeldParameters> held_;  // by the path of the module
  /// enable_input_require_grads: the path of an embedding that is no nn.Embedding itself; empty: none.
  std::string requires_grad_of_;
  std::unordered_map<std::int32_t, std::unique_ptr<BoundFunction>> functions_;
  Instance main_;
  int instances_ = 0;
  std::vector<std::pair<Tensor Batch::*, std::size_t>> inputs_;  // of the function's keywords; null: Batch::others
};

bool has(const ProgramForward& forward, std::string_view input) {
  return std::find(forward.inputs.begin(), forward.inputs.end(), input) != forward.inputs.end();
}

/// Whether the Trainer passes the module how many labels a batch has (Trainer.model_accepts_loss_kwargs).
bool takes_number_of_items(const Program& program) {
  return std::any_of(program.forwards.begin(), program.forwards.end(),
                     [](const ProgramForward& each) { return has(each, kNumberOfItems); });
}

std::string module_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

/// `name` seen from the module `path`; "/" begins one from the root.
std::string full_name(const std::string& path, const std::string& name) {
  return name.starts_with('/') ? name.substr(1) : path.empty() ? name : path + "." + name;
}

void ProgramModel::bind_sizes() {
  const auto given = [&](const ProgramSymbol& symbol) {
    if (symbol.name == "batch") return run_.batch_size;
    if (symbol.name == "sequence") return run_.sequence_length;
    if (symbol.name == "target") return run_.target_sequence_length;
    if (symbol.name == "image") return run_.image_size;
    return symbol.recorded;
  };
  for (const ProgramSymbol& symbol : program_->symbols) {
    std::int64_t size = given(symbol);
    if (size <= 0) size = symbol.recorded;
    if (!symbol.fixed.empty() && size != symbol.recorded) {
      throw Error(ErrorCode::kUnsupported, fmt::format("{}: {} is {} in this program, and no other: {}", program_->name,
                                                       symbol.name, symbol.recorded, symbol.fixed));
    }
    if (size % symbol.multiple != 0) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: {} must be a multiple of {}", program_->name, symbol.name, symbol.multiple));
    }
    binding_.sizes.set(symbol.name, size);
  }
}

/// The types in which the parameters are when the forward pass runs, and which it computes in.
void ProgramModel::bind_dtypes() {
  // prepare_model_for_kbit_training: what is not quantised becomes float32, and so what runs between the products.
  if (run_.fine_tuning.prepares_for_kbit) binding_.weights = DType::kFloat32;
  binding_.compute = binding_.weights;
  if (!is_autocast(run_.precision)) return;
  const DType half = run_.precision == Precision::kAmpBf16 ? DType::kBFloat16 : DType::kFloat16;
  // In the Trainer FSDP2's policy casts the parameters, and DeepSpeed has cast them itself: no region of autocast.
  const bool casts_parameters =
      run_.parallel.data_parallel == DataParallel::kFsdp2 || run_.parallel.framework() == Framework::kDeepSpeed;
  autocasts_ = !(run_.uses_trainer() && casts_parameters);
  binding_.compute = half;
  if (!autocasts_) binding_.weights = half;
}

void ProgramModel::choose_forward() {
  const std::string_view precision = autocasts_                            ? "autocast"
                                     : binding_.weights == DType::kFloat32 ? "float32"
                                                                           : "bfloat16";
  const bool counts = run_.uses_trainer() && takes_number_of_items(*program_);
  const bool masked = run_.padding || std::any_of(program_->forwards.begin(), program_->forwards.end(),
                                                  [](const auto& each) { return !has(each, "attention_mask"); });
  const bool needs_labels = std::none_of(program_->forwards.begin(), program_->forwards.end(),
                                         [](const auto& each) { return !each.training && !has(each, "labels"); });
  const auto fits = [&](const ProgramForward& each, bool caches) {
    if (each.training != run_.trains()) return false;
    if (each.cache && *each.cache != caches) return false;
    // Encoder-decoders take their decoder's input from the labels.
    if (!run_.trains() && has(each, "labels") && !needs_labels) return false;
    if (has(each, kNumberOfItems) != counts) return false;
    if (masked && has(each, "attention_mask") != run_.padding) return false;
    return each.precisions.empty() ||
           std::find(each.precisions.begin(), each.precisions.end(), precision) != each.precisions.end();
  };
  for (const bool caches : {run_.use_cache, !run_.use_cache}) {
    for (const ProgramForward& each : program_->forwards) {
      if (forward_ == nullptr && fits(each, caches)) forward_ = &each;
    }
  }
  if (forward_ == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} was not recorded in {} mode{}{} in {} (memcalc.record, variants)", program_->name,
                            run_.trains() ? "train" : "eval", run_.padding ? " with a mask" : "",
                            counts ? " with the Trainer's num_items_in_batch" : "", precision));
  }
}

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
        tape.empty(binding_.shape(each.shape, name), binding_.dtype(each.dtype), kParameter, Category::kWeights);
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
      const bool is_norm = type.find("Norm") != std::string_view::npos;
      const bool decays = !is_norm && !name.ends_with("bias");  // Trainer.get_decay_parameter_names
      tensors_[name] = all[i].frozen ? b.frozen_parameter(name, shape) : b.parameter(name, shape, decays);
      // A program has names of classes alone: one that ends so and holds a matrix is derived from nn.Embedding.
      if (type.ends_with("Embedding") && shape.rank == 2 && name.ends_with(".weight")) {
        b.parameters.back().is_embedding = true;
        if (std::exchange(b.first_embedding_requires_grad, false)) requires_grad_of_ = path;
      }
      if (is_recurrent(type)) recurrent[path].push_back(tensors_[name]);
    }
    b.dtype = dtype;
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

const BoundFunction& ProgramModel::bound(std::int32_t function) {
  std::unique_ptr<BoundFunction>& made = functions_[function];
  if (made) return *made;
  made = std::make_unique<BoundFunction>();
  made->function = &program_->functions[static_cast<std::size_t>(function)];
  made->body = bound_body(made->function->body, binding_, program_->name);
  return *made;
}

/// A module of another class that happens to have such a name makes other calls.
bool is_whole(const BoundModule& module, const LeafModule& leaf) {
  constexpr std::string_view kCalls[] = {"linear", "addmm", "embedding"};  // as LeafModule
  return module.input >= 0 && module.output >= 0 && module.main_call == kCalls[leaf.index()];
}

/// A damaged program may give a module what it cannot take.
void ProgramModel::check_fits(const LeafModule& leaf, const Tensor& input) const {
  const auto* linear = std::get_if<Linear>(&leaf);
  const auto* conv = std::get_if<Conv1D>(&leaf);
  if (linear == nullptr && conv == nullptr) return;
  const std::int64_t wanted = linear != nullptr ? linear->weight.size(1) : conv->weight.size(0);
  if (input.rank() > 0 && input.size(-1) == wanted) return;
  throw Error(ErrorCode::kInput, program_->name + ": a linear layer is given another width than its own");
}

ModulePlace ProgramModel::module_place(const BoundModule& module, const std::string& path) const {
  ModulePlace place;
  std::string whole = full_name(path, module.module->path);
  const auto held = held_.find(whole);
  if (held != held_.end()) place.held = &held->second;
  place.output_requires_grad = !whole.empty() && whole == requires_grad_of_;
  auto leaf = leaves_.find(whole);
  if (leaf == leaves_.end() && module.module->type == "Embedding") {  // another name of a shared one
    const auto same = [&](const auto& names) { return names.first == whole + ".weight"; };
    const auto tied = std::find_if(program_->tied.begin(), program_->tied.end(), same);
    if (tied != program_->tied.end()) leaf = leaves_.find(module_of(tied->second));
  }
  if (leaf != leaves_.end() && is_whole(module, leaf->second)) place.leaf = &leaf->second;
  return place;
}

void ProgramModel::add_called(const std::vector<BoundInstruction>& body, const std::string& path, Instance& made) {
  for (const BoundInstruction& each : body) {
    if (const auto* call = std::get_if<BoundLayers>(&each)) {
      std::vector<Instance>& layers = made.layers.emplace_back();
      for (std::int64_t i = 0; i < call->layers->count; ++i) {
        const std::string layer = full_name(path, path_of_layer(call->layers->path, call->layers->first + i));
        layer_paths->push_back(layer);
        layers.push_back(instance(call->layers->function, layer));
      }
    } else if (const auto* module = std::get_if<BoundModule>(&each)) {
      made.modules.push_back(module_place(*module, path));
    } else if (const auto* custom = std::get_if<BoundCustom>(&each)) {
      made.customs.push_back(instance(custom->custom->function, path));
    } else if (const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
      add_called((*loop)->body, path, made);
    }
  }
}

Instance ProgramModel::instance(std::int32_t function, const std::string& path) {
  constexpr int kMost = 20'000;
  if (++instances_ > kMost) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: more than {} layers are not modelled", program_->name, kMost));
  }
  Instance made;
  made.bound = &bound(function);
  for (const std::string& name : made.bound->function->parameters) made.parameters.push_back(find_tensor(path, name));
  add_called(made.bound->body, path, made);
  return made;
}

/// Which tensors of a batch the forward pass gets.
void ProgramModel::find_inputs() {
  for (const ProgramTensor& input : program_->inputs) {
    if (!has(*forward_, input.name) || input.name == kNumberOfItems) continue;
    const auto known = std::find_if(std::begin(kKnownInputs), std::end(kKnownInputs),
                                    [&](const KnownInput& each) { return each.name == input.name; });
    const bool is_known = known != std::end(kKnownInputs);
    DType dtype = binding_.dtype(input.dtype);
    if (run_.uses_trainer() && is_floating(dtype)) dtype = DType::kFloat32;  // as a dataset has them
    inputs.push_back({input.name, binding_.shape(input.shape, input.name), dtype, is_known ? known->member : nullptr});
  }
  for (const std::string& keyword : main_.bound->function->keywords) {
    if (keyword == kNumberOfItems) {
      inputs_.emplace_back(&Batch::number_of_items, 0);
      continue;
    }
    const auto found =
        std::find_if(inputs.begin(), inputs.end(), [&](const ModelInput& each) { return each.name == keyword; });
    if (found == inputs.end()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: there is no input {}", program_->name, keyword));
    }
    inputs_.emplace_back(found->member, static_cast<std::size_t>(found - inputs.begin()));
  }
}

ProgramModel::ProgramModel(std::shared_ptr<const Program> program, const RunSpec& run, ModuleBuilder& b)
    : program_(std::move(program)), run_(run), tape_(b.tape) {
  binding_.weights = b.dtype;
  bind_sizes();
  make_parameters(b);
  bind_dtypes();
  choose_forward();
  // A module that returns one tensor, or nothing that is called a loss: its first output is what backward starts from.
  if (run.trains() && forward_->loss.empty() && forward_->outputs.empty()) {
    throw Error(ErrorCode::kInput, program_->name + ": its forward pass returns nothing to start backward from");
  }
  layer_paths.emplace();
  main_ = instance(forward_->function, "");
  find_inputs();
  accepts_loss_kwargs = takes_number_of_items(*program_);
  loss_shifts_labels = program_->loss_shifts_labels;
  look_at_calls();
  is_encoder_decoder = run.task == Task::kSeq2Seq || run.task == Task::kSpeech;
}

void ProgramModel::look_at_calls() {
  uses_sdpa = false;
  std::set<std::string_view> names;
  const auto look_at = [&](const auto& self, const std::vector<BoundInstruction>& body) -> void {
    for (const BoundInstruction& each : body) {
      if (const auto* call = std::get_if<BoundCall>(&each)) {
        if (call->row == nullptr) names.insert(call->opaque);
        uses_sdpa |= call->row != nullptr && call->row->name == "scaled_dot_product_attention";
      } else if (const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
        self(self, (*loop)->body);
      }
    }
  };
  for (const auto& [number, function] : functions_) look_at(look_at, function->body);
  if (names.empty()) return;
  not_modelled.push_back(
      fmt::format("inside of {}, which the operator table does not have: memory that it holds for a "
                  "moment or keeps for backward beside its tensors",
                  fmt::join(names, ", ")));
}

void ProgramModel::run_call(const Instance& instance, const BoundCall& call, std::vector<Tensor>& values,
                            std::int64_t in_run) const {
  std::vector<BoundArgument> of_this_run;
  if (call.differs_by_run && in_run > 0) of_this_run = slots_in(in_run, call.slots);
  const std::string_view name = call.row == nullptr ? call.opaque : call.row->name;
  RecordedCall recorded(tape_, name, of_this_run.empty() ? call.slots : of_this_run, values, instance.parameters,
                        call.given);
  const bool on_host = recorded.on_host();  // then nothing of it is seen on the card
  const Scoped<bool> recording(tape_.kernels.recording, tape_.kernels.recording && !on_host);
  std::optional<OnMetaDevice> elsewhere;
  if (on_host) elsewhere.emplace(tape_.memory);
  try {
    if (call.row == nullptr) {
      opaque_row(recorded);
    } else {
      if (tape_.modes.autocast.dtype && call.row->autocast == AutocastList::kFloat32) recorded.convert_to_float32();
      call.row->run(recorded);
    }
  } catch (const Error& error) {  // operands that do not go together: the program is to blame
    if (error.code() != ErrorCode::kInternal) throw;
    throw Error(ErrorCode::kInput, fmt::format("{} calls {}: {}", program_->name, name, error.what()));
  }
  const std::vector<std::int32_t>& results = *call.results;
  if (recorded.results.size() < results.size()) recorded.refuse("other results");
  for (std::size_t i = 0; i < results.size(); ++i) {
    values[static_cast<std::size_t>(results[i])] = std::move(recorded.results[i]);
  }
}

void ProgramModel::run_layers(const Instance& caller, const BoundLayers& call, const std::vector<Instance>& layers,
                              std::vector<Tensor>& values) const {
  const std::vector<std::int32_t>& results = call.layers->results;
  const auto place_of = [&](std::size_t result, std::size_t layer) {
    const auto shift = call.shifts[result] ? layer * static_cast<std::size_t>(call.own_results) : 0;
    return static_cast<std::size_t>(results[result]) + shift;
  };
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const Instance& instance = layers[layer];
    KeptTensors positional, keywords;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      const BoundArgument& argument = call.arguments[i];
      const bool of_before = i == 0 && layer > 0;
      const auto place = of_before ? place_of(0, layer - 1) : static_cast<std::size_t>(argument.integer);
      const Tensor& tensor = argument.kind == Kind::kParameter && !of_before ? caller.parameters[place] : values[place];
      if (!tensor.defined()) throw Error(ErrorCode::kInput, program_->name + ": a layer is given a tensor that died");
      (i < call.positional ? positional : keywords).push_back(tensor);
    }
    // What the layer makes beside its first result; a second run of it, in backward, makes nothing that is kept.
    const bool has_others = instance.bound->function->results.size() > 1;
    const auto others = has_others ? std::make_shared<std::vector<Tensor>>() : nullptr;
    values[place_of(0, layer)] =
        checkpointed(run_, std::move(positional), keywords, [this, &instance, others](const KeptTensors& kept) {
          const ProgramFunction& function = *instance.bound->function;
          Variables variables(function);
          std::copy(kept.begin(), kept.end(), variables.values().begin());
          run_body(instance, instance.bound->body, variables.values());
          if (others != nullptr && !tape_.moment.recomputing) {
            for (std::size_t i = 1; i < function.results.size(); ++i) {
              others->push_back(variables.take(function.results[i]));
            }
          }
          return variables.take(function.results[0]);
        });
    for (std::size_t i = 1; others != nullptr && i < results.size() && i <= others->size(); ++i) {
      values[place_of(i, layer)] = std::move((*others)[i - 1]);
    }
    if (call.layers->drops && layer + 1 < layers.size()) {
      values[layer == 0 ? static_cast<std::size_t>(call.arguments[0].integer) : place_of(0, layer - 1)].reset();
    }
  }
}

void ProgramModel::run_loop(const Instance& instance, const BoundLoop& loop, std::vector<Tensor>& values) const {
  for (std::int64_t run = 0; run < loop.count; ++run) {
    for (const auto& [from, to] : loop.loop->carries) {
      if (run > 0) values[static_cast<std::size_t>(to)] = std::move(values[static_cast<std::size_t>(from)]);
    }
    run_body(instance, loop.body, values, run);
  }
}

void ProgramModel::run_custom(const Instance& caller, const BoundCustom& call, const Instance& called,
                              std::vector<Tensor>& values) const {
  const ProgramFunction& function = *called.bound->function;
  Variables variables(function);
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const auto place = static_cast<std::size_t>(call.arguments[i].integer);
    variables.values()[i] = call.arguments[i].kind == Kind::kParameter ? caller.parameters[place] : values[place];
  }
  const NoGrad no_grad(tape_.modes);
  run_body(called, called.bound->body, variables.values());
  const std::vector<std::int32_t>& results = call.custom->results;
  for (std::size_t i = 0; i < results.size(); ++i) {
    values[static_cast<std::size_t>(results[i])] = variables.take(function.results[i]);
  }
}

void ProgramModel::run_body(const Instance& instance, const std::vector<BoundInstruction>& body,
                            std::vector<Tensor>& values, std::int64_t in_run) const {
  Regions regions(tape_);
  std::vector<OpenModule> open;
  const BoundModule* made_to_require_grad = nullptr;
  const auto value = [&](std::int32_t number) -> Tensor& { return values[static_cast<std::size_t>(number)]; };
  for (std::size_t i = 0; i < body.size(); ++i) {
    const BoundInstruction& each = body[i];
    if (const auto* call = std::get_if<BoundCall>(&each)) {
      run_call(instance, *call, values, in_run);
    } else if (const auto* drop = std::get_if<const ProgramDrop*>(&each)) {
      for (const std::int32_t number : (*drop)->values) value(number).reset();
    } else if (const auto* module = std::get_if<BoundModule>(&each)) {
      const ModulePlace& place = instance.modules[module->number];
      if (place.leaf != nullptr && value(module->input).defined()) {
        check_fits(*place.leaf, value(module->input));
        value(module->output) = std::visit([&](const auto& leaf) { return leaf(value(module->input)); }, *place.leaf);
        for (const std::int32_t dead : module->also_dead) value(dead).reset();
        i = module->end;
        continue;
      }
      if (place.output_requires_grad) made_to_require_grad = module;
      if (ModuleHooks* hooks = tape_.modes.module_hooks; hooks != nullptr) {
        begin_module(*module, place, *hooks, values, open);
      }
    } else if (std::holds_alternative<BoundModuleEnd>(each)) {
      if (!open.empty()) end_module(values, open);
      if (made_to_require_grad != nullptr && made_to_require_grad->end == i) {
        require_grad(value(std::exchange(made_to_require_grad, nullptr)->output));
      }
    } else if (const auto* region = std::get_if<const ProgramRegion*>(&each)) {
      regions.run(**region, binding_);
    } else if (const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
      run_loop(instance, **loop, values);
    } else if (const auto* custom = std::get_if<BoundCustom>(&each)) {
      run_custom(instance, *custom, instance.customs[custom->number], values);
    } else {
      const auto& layers = std::get<BoundLayers>(each);
      run_layers(instance, layers, instance.layers[layers.number], values);
    }
  }
}

ModelOutput ProgramModel::forward(const Batch& batch) {
  Variables variables(*main_.bound->function);
  std::vector<Tensor>& values = variables.values();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const auto& [member, place] = inputs_[i];
    values[i] = member != nullptr ? batch.*member : batch.others[place];
  }
  run_body(main_, main_.bound->body, values);
  ModelOutput output;
  if (!forward_->loss.empty()) output.loss = std::move(values[static_cast<std::size_t>(forward_->loss.front())]);
  for (const std::int32_t number : forward_->outputs) {
    Tensor& tensor = values[static_cast<std::size_t>(number)];
    if (run_.trains() && !output.loss.defined()) {
      output.loss = std::move(tensor);
    } else if (!output.logits.defined()) {
      output.logits = std::move(tensor);
    } else {
      output.others.push_back(std::move(tensor));
    }
  }
  output.cached = std::min(forward_->cached, output.others.size());
  if (run_.trains() && (!output.loss.defined() || output.loss.elements() != 1 || !output.loss.requires_grad())) {
    throw Error(ErrorCode::kInput,
                program_->name + ": its forward pass returns no loss, a differentiated scalar (memcalc.record, loss)");
  }
  return output;
}

}  // namespace

std::unique_ptr<Model> build_program(const ProgramSpec& spec, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<ProgramModel>(spec.program, run, builder);
}

}  // namespace memcalc
