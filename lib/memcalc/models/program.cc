// A recorded program (spec/program.h, docs/programs.md) as a model: its calls are made on the operator table, its
// variables die where Python's did, its layers are those that checkpointing, FSDP and others wrap.
#include "memcalc/spec/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <variant>

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/model.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {
namespace {

using Kind = BoundArgument::Kind;

/// What of a run decides the numbers and types in a program.
struct Binding {
  SymbolValues sizes;
  DType weights = DType::kFloat32;
  DType compute = DType::kFloat32;

  [[nodiscard]] DType dtype(std::string_view name) const {
    if (name == "weights") return weights;
    if (name == "compute") return compute;
    for (const DType each : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64, DType::kInt64,
                             DType::kInt32, DType::kUInt8, DType::kBool, DType::kComplex64}) {
      if (name_of(each) == name) return each;
    }
    if (name == "int16" || name == "int8") return DType::kUInt8;
    throw Error(ErrorCode::kUnsupported, fmt::format("the program has tensors of {}, which is not modelled", name));
  }

  [[nodiscard]] std::int64_t size(const ProgramArgument& size) const {
    return size.kind == ProgramArgument::Kind::kSymbolic ? sizes.evaluate(size.text) : size.integer;
  }

  [[nodiscard]] Shape shape(const ProgramTensor& tensor) const {
    Shape shape;
    for (const ProgramArgument& each : tensor.shape) {
      if (shape.rank == kMaxDims) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{}: more than {} dimensions are not modelled", tensor.name, kMaxDims));
      }
      shape.dims[static_cast<std::size_t>(shape.rank++)] = size(each);
    }
    return shape;
  }

  [[nodiscard]] BoundArgument bound(const ProgramArgument& argument) const {
    using From = ProgramArgument::Kind;
    BoundArgument result;
    result.integer = argument.integer;
    result.number = argument.number;
    switch (argument.kind) {
      case From::kNone: break;
      case From::kBool: result.kind = Kind::kBool; break;
      case From::kInteger: result.kind = Kind::kInteger; break;
      case From::kNumber: result.kind = Kind::kNumber; break;
      case From::kText:
        result.kind = Kind::kText;
        result.text = argument.text;
        break;
      case From::kDType:
        result.kind = Kind::kDType;
        result.integer = static_cast<std::int64_t>(dtype(argument.text));
        break;
      case From::kSymbolic:
        result.kind = Kind::kInteger;
        result.integer = sizes.evaluate(argument.text);
        result.number = static_cast<double>(result.integer);
        break;
      case From::kValue: result.kind = Kind::kValue; break;
      case From::kParameter: result.kind = Kind::kParameter; break;
      case From::kSlice: result.kind = Kind::kSlice; break;
      case From::kEllipsis: result.kind = Kind::kEllipsis; break;
      case From::kList: result.kind = Kind::kList; break;
      case From::kObject: result.kind = Kind::kText; break;
    }
    for (const ProgramArgument& item : argument.items) result.items.push_back(bound(item));
    return result;
  }
};

struct BoundCall {
  const OperatorRow* row = nullptr;
  std::vector<BoundArgument> slots;
  const std::vector<std::int32_t>* results = nullptr;
  bool is_linear = false;  // of a module that fine-tuning may change
};

struct BoundLayers {
  const ProgramLayers* layers = nullptr;
  std::vector<BoundArgument> arguments;  // tensors, by position and then by keyword
  std::size_t positional = 0;            // of these
};

using BoundInstruction = std::variant<BoundCall, const ProgramDrop*, BoundLayers, const ProgramRegion*>;

struct BoundFunction {
  const ProgramFunction* function = nullptr;
  std::vector<BoundInstruction> body;
};

/// A function as the function of one module: with the module's parameters, and the layers that it calls.
struct Instance {
  const BoundFunction* bound = nullptr;
  std::vector<Tensor> parameters;
  std::vector<std::shared_ptr<FineTunedLinear>> linears;  // by parameter: that whose weight it is
  std::vector<std::vector<Instance>> layers;              // of each BoundLayers, in order
};

/// The places of a signature: "input *size dtype".
class Signature {
 public:
  explicit Signature(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      std::string_view name = text.substr(0, end);
      if (name.starts_with('*')) {
        variadic_ = static_cast<int>(names_.size());
        name.remove_prefix(1);
      }
      names_.push_back(name);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  [[nodiscard]] std::vector<BoundArgument> placed(const ProgramCall& call, const Binding& binding) const {
    std::vector<BoundArgument> slots(names_.size());
    for (std::size_t i = 0; i < call.positional.size(); ++i) {
      BoundArgument argument = binding.bound(call.positional[i]);
      const auto place = static_cast<int>(i);
      if (variadic_ >= 0 && place >= variadic_) {
        BoundArgument& all = slots[static_cast<std::size_t>(variadic_)];
        const bool last_list = place == variadic_ && argument.kind == Kind::kList;
        if (last_list) {
          all = std::move(argument);
        } else if (all.kind == Kind::kList) {
          all.items.push_back(std::move(argument));
        } else {
          all.kind = Kind::kList;
          all.items.push_back(std::move(argument));
        }
        continue;
      }
      if (i >= slots.size()) throw refusal_of(call, fmt::format("{} arguments", call.positional.size()));
      slots[i] = std::move(argument);
    }
    for (const auto& [keyword, argument] : call.keywords) {
      const auto found = std::find(names_.begin(), names_.end(), canonical(keyword));
      if (found == names_.end()) {
        if (argument.kind == ProgramArgument::Kind::kNone) continue;
        throw refusal_of(call, fmt::format("the argument {}", keyword));
      }
      slots[static_cast<std::size_t>(found - names_.begin())] = binding.bound(argument);
    }
    return slots;
  }

 private:
  static Error refusal_of(const ProgramCall& call, const std::string& what) {
    return {ErrorCode::kUnsupported,
            fmt::format("the program calls {} with {}, which is not modelled", call.function, what)};
  }
  /// numpy's names for the same.
  [[nodiscard]] std::string_view canonical(std::string_view keyword) const {
    const bool known = std::find(names_.begin(), names_.end(), keyword) != names_.end();
    if (known) return keyword;
    if (keyword == "axis") return "dim";
    if (keyword == "keepdims") return "keepdim";
    if (keyword == "self" || keyword == "x") return "input";
    return keyword;
  }

  std::vector<std::string_view> names_;
  int variadic_ = -1;
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

class ProgramModel : public Model {
 public:
  ProgramModel(std::shared_ptr<const Program> program, const RunSpec& run, ModuleBuilder& b);
  [[nodiscard]] ModelOutput forward(const Batch& batch) override;

 private:
  void bind_sizes();
  void choose_forward();
  void make_parameters(ModuleBuilder& b);
  [[nodiscard]] const BoundFunction& bound(std::int32_t function);
  [[nodiscard]] BoundCall bound(const ProgramCall& call, const ProgramFunction& function) const;
  [[nodiscard]] Instance instance(std::int32_t function, const std::string& path);
  [[nodiscard]] Tensor find_tensor(const std::string& path, const std::string& name, std::string& full) const;
  void run_body(const Instance& instance, std::vector<Tensor>& values) const;
  void run_call(const Instance& instance, const BoundCall& call, std::vector<Tensor>& values) const;
  void run_layers(const Instance& caller, const BoundLayers& call, const std::vector<Instance>& layers,
                  std::vector<Tensor>& values) const;

  std::shared_ptr<const Program> program_;
  RunSpec run_;
  Tape& tape_;
  Binding binding_;
  const ProgramForward* forward_ = nullptr;
  std::unordered_map<std::string, Tensor> tensors_;  // parameters, buffers and constants by name
  std::unordered_map<std::string, std::shared_ptr<FineTunedLinear>> linears_;  // by the name of their weight
  std::unordered_map<std::int32_t, std::unique_ptr<BoundFunction>> functions_;
  Instance main_;
  std::vector<std::size_t> inputs_;  // places in the batch, in the order of the function's keywords
};

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

void ProgramModel::choose_forward() {
  const std::string_view precision = is_autocast(run_.precision)           ? "autocast"
                                     : binding_.weights == DType::kFloat32 ? "float32"
                                                                           : "bfloat16";
  const auto fits = [&](const ProgramForward& each, bool caches) {
    if (each.training != run_.trains()) return false;
    if (each.cache && *each.cache != caches) return false;
    const auto has = [&](std::string_view name) {
      return std::find(each.inputs.begin(), each.inputs.end(), name) != each.inputs.end();
    };
    const bool masks = std::any_of(program_->inputs.begin(), program_->inputs.end(),
                                   [](const ProgramTensor& input) { return input.name == "attention_mask"; });
    if (masks && has("attention_mask") != run_.padding) return false;
    if (!run_.trains() && has("labels")) return false;
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
                fmt::format("{} was not recorded in {} mode{} in {}", program_->name, run_.trains() ? "train" : "eval",
                            run_.padding ? " with a mask" : "", precision));
  }
}

void ProgramModel::make_parameters(ModuleBuilder& b) {
  std::unordered_map<std::string_view, std::string_view> types;
  for (const auto& [path, type] : program_->modules) types.emplace(path, type);
  const auto module_of = [](const std::string& name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? std::string() : name.substr(0, dot);
  };
  const std::vector<ProgramTensor>& all = program_->parameters;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i].name;
    const Shape shape = binding_.shape(all[i]);
    const std::string path = module_of(name);
    const auto type = types.find(path);
    const bool is_norm = type != types.end() && type->second.find("Norm") != std::string_view::npos;
    const bool decays = !is_norm && !name.ends_with("bias");  // Trainer.get_decay_parameter_names
    const DType dtype = std::exchange(b.dtype, binding_.dtype(all[i].dtype));
    tensors_[name] = all[i].frozen ? b.frozen_parameter(name, shape) : b.parameter(name, shape, decays);
    b.dtype = dtype;
    if (type == types.end()) continue;
    if (type->second == "Embedding") b.parameters.back().is_embedding = true;
    if (type->second != "Linear" || shape.rank != 2) continue;
    const bool has_bias = i + 1 < all.size() && all[i + 1].name == path + ".bias";
    if (has_bias) {
      ++i;
      tensors_[all[i].name] = b.parameter(all[i].name, binding_.shape(all[i]), false);
    }
    linears_[name] = b.remember_linear(path, shape[1], shape[0], has_bias ? 2 : 1);
  }
  for (const auto& [name, target] : program_->tied) {
    const auto found = tensors_.find(target);
    if (found != tensors_.end()) tensors_[name] = found->second;
  }
  for (const std::vector<ProgramTensor>* made : {&program_->buffers, &program_->constants}) {
    for (const ProgramTensor& each : *made) {
      tensors_[each.name] = b.buffer(binding_.shape(each), binding_.dtype(each.dtype));
    }
  }
}

Tensor ProgramModel::find_tensor(const std::string& path, const std::string& name, std::string& full) const {
  full = name.starts_with('/') ? name.substr(1) : path.empty() ? name : path + "." + name;
  const auto found = tensors_.find(full);
  if (found != tensors_.end()) return found->second;
  throw Error(ErrorCode::kInput, fmt::format("{}: the program names {}, which it does not have", program_->name, full));
}

BoundCall ProgramModel::bound(const ProgramCall& call, const ProgramFunction& /*function*/) const {
  BoundCall result;
  result.row = find_operator(call.function);
  if (result.row == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} calls {}, which the operator table does not have", program_->name, call.function));
  }
  if (call.depends_on_values) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} calls {}, whose result's size depends on values", program_->name, call.function));
  }
  result.slots = Signature(result.row->signature).placed(call, binding_);
  result.results = &call.results;
  result.is_linear = call.function == "linear" && result.slots[1].kind == Kind::kParameter;
  return result;
}

const BoundFunction& ProgramModel::bound(std::int32_t function) {
  std::unique_ptr<BoundFunction>& made = functions_[function];
  if (made) return *made;
  made = std::make_unique<BoundFunction>();
  BoundFunction& result = *made;  // bound() of layers may move what `functions_` holds, not this
  result.function = &program_->functions[static_cast<std::size_t>(function)];
  for (const ProgramInstruction& each : result.function->body) {
    if (const auto* call = std::get_if<ProgramCall>(&each)) {
      result.body.emplace_back(bound(*call, *result.function));
    } else if (const auto* drop = std::get_if<ProgramDrop>(&each)) {
      result.body.emplace_back(drop);
    } else if (const auto* region = std::get_if<ProgramRegion>(&each)) {
      result.body.emplace_back(region);
    } else if (const auto* layers = std::get_if<ProgramLayers>(&each)) {
      BoundLayers bound_layers{.layers = layers, .arguments = {}};
      const auto add = [&](const ProgramArgument& argument) {
        BoundArgument made_argument = binding_.bound(argument);
        if (RecordedCall::is_tensor(made_argument)) bound_layers.arguments.push_back(std::move(made_argument));
      };
      for (const ProgramArgument& argument : layers->positional) add(argument);
      bound_layers.positional = bound_layers.arguments.size();
      for (const auto& [keyword, argument] : layers->keywords) add(argument);
      result.body.emplace_back(std::move(bound_layers));
    }
  }
  return result;
}

Instance ProgramModel::instance(std::int32_t function, const std::string& path) {
  Instance made;
  made.bound = &bound(function);
  std::string full;
  for (const std::string& name : made.bound->function->parameters) {
    made.parameters.push_back(find_tensor(path, name, full));
    const auto linear = linears_.find(full);
    made.linears.push_back(linear == linears_.end() ? nullptr : linear->second);
  }
  for (const BoundInstruction& each : made.bound->body) {
    const auto* call = std::get_if<BoundLayers>(&each);
    if (call == nullptr) continue;
    std::vector<Instance>& layers = made.layers.emplace_back();
    for (std::int64_t i = 0; i < call->layers->count; ++i) {
      const std::string layer = path_of_layer(call->layers->path, call->layers->first + i);
      const std::string whole = layer.starts_with('/') ? layer.substr(1) : path.empty() ? layer : path + "." + layer;
      layers.push_back(instance(call->layers->function, whole));
    }
  }
  return made;
}

ProgramModel::ProgramModel(std::shared_ptr<const Program> program, const RunSpec& run, ModuleBuilder& b)
    : program_(std::move(program)), run_(run), tape_(b.tape) {
  binding_.weights = b.dtype;
  binding_.compute = b.dtype;
  if (run.precision == Precision::kAmpBf16) binding_.compute = DType::kBFloat16;
  if (run.precision == Precision::kAmpFp16) binding_.compute = DType::kFloat16;
  bind_sizes();
  choose_forward();
  make_parameters(b);
  // A module that returns one tensor, or nothing that is called a loss: its first output is what backward starts from.
  if (run.trains() && forward_->loss.empty() && forward_->outputs.empty()) {
    throw Error(ErrorCode::kInput, program_->name + ": its forward pass returns nothing to start backward from");
  }
  main_ = instance(forward_->function, "");
  for (const ProgramTensor& input : program_->inputs) {
    const bool passed =
        std::find(forward_->inputs.begin(), forward_->inputs.end(), input.name) != forward_->inputs.end();
    if (passed) inputs.push_back({input.name, binding_.shape(input), binding_.dtype(input.dtype)});
  }
  for (const std::string& keyword : main_.bound->function->keywords) {
    const auto found =
        std::find_if(inputs.begin(), inputs.end(), [&](const ModelInput& each) { return each.name == keyword; });
    if (found == inputs.end()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: there is no input {}", program_->name, keyword));
    }
    inputs_.push_back(static_cast<std::size_t>(found - inputs.begin()));
  }
}

void ProgramModel::run_call(const Instance& instance, const BoundCall& call, std::vector<Tensor>& values) const {
  RecordedCall recorded(tape_, call.row->name, call.slots, values, instance.parameters);
  const FineTunedLinear* linear = nullptr;
  if (call.is_linear) linear = instance.linears[static_cast<std::size_t>(call.slots[1].integer)].get();
  if (linear != nullptr) {
    const Tensor &weight = recorded.tensor(1), &bias = recorded.tensor_or_none(2);
    recorded.returns(
        linear->forward(recorded.tensor(0), bias, [&](const Tensor& x) { return memcalc::linear(x, weight, bias); }));
  } else {
    if (tape_.modes.autocast.dtype && call.row->autocast == AutocastList::kFloat32) recorded.convert_to_float32();
    call.row->run(recorded);
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
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const Instance& instance = layers[layer];
    KeptTensors positional, keywords;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      const BoundArgument& argument = call.arguments[i];
      auto place = static_cast<std::size_t>(argument.integer);
      if (i == 0 && layer > 0) place = static_cast<std::size_t>(results[0]) + (layer - 1) * results.size();
      const Tensor& tensor =
          argument.kind == Kind::kParameter && !(i == 0 && layer > 0) ? caller.parameters[place] : values[place];
      if (!tensor.defined()) throw Error(ErrorCode::kInput, program_->name + ": a layer is given a tensor that died");
      (i < call.positional ? positional : keywords).push_back(tensor);
    }
    // What the layer makes beside its first result; a second run of it, in backward, makes nothing that is kept.
    const bool has_others = instance.bound->function->results.size() > 1;
    const auto others = has_others ? std::make_shared<std::vector<Tensor>>() : nullptr;
    const std::size_t first = static_cast<std::size_t>(results[0]) + layer * results.size();
    values[first] =
        checkpointed(run_, std::move(positional), keywords, [this, &instance, others](const KeptTensors& kept) {
          const ProgramFunction& function = *instance.bound->function;
          Variables variables(function);
          std::copy(kept.begin(), kept.end(), variables.values().begin());
          run_body(instance, variables.values());
          if (others != nullptr && !tape_.moment.recomputing) {
            for (std::size_t i = 1; i < function.results.size(); ++i) {
              others->push_back(variables.take(function.results[i]));
            }
          }
          return variables.take(function.results[0]);
        });
    for (std::size_t i = 1; others != nullptr && i < results.size() && i <= others->size(); ++i) {
      values[static_cast<std::size_t>(results[i]) + layer * results.size()] = std::move((*others)[i - 1]);
    }
    if (call.layers->drops && layer + 1 < layers.size()) {
      const auto before = layer == 0 ? static_cast<std::size_t>(call.arguments[0].integer) : first - results.size();
      values[before].reset();
    }
  }
}

void ProgramModel::run_body(const Instance& instance, std::vector<Tensor>& values) const {
  Regions regions(tape_);
  std::size_t layers = 0;
  for (const BoundInstruction& each : instance.bound->body) {
    if (const auto* call = std::get_if<BoundCall>(&each)) {
      run_call(instance, *call, values);
    } else if (const auto* drop = std::get_if<const ProgramDrop*>(&each)) {
      for (const std::int32_t value : (*drop)->values) values[static_cast<std::size_t>(value)].reset();
    } else if (const auto* region = std::get_if<const ProgramRegion*>(&each)) {
      regions.run(**region, binding_);
    } else {
      run_layers(instance, std::get<BoundLayers>(each), instance.layers[layers++], values);
    }
  }
}

ModelOutput ProgramModel::forward(const Batch& batch) {
  Variables variables(*main_.bound->function);
  std::vector<Tensor>& values = variables.values();
  for (std::size_t i = 0; i < inputs_.size(); ++i) values[i] = batch.others[inputs_[i]];
  run_body(main_, values);
  ModelOutput output;
  if (!forward_->loss.empty()) output.loss = std::move(values[static_cast<std::size_t>(forward_->loss.front())]);
  for (const std::int32_t value : forward_->outputs) {
    Tensor& tensor = values[static_cast<std::size_t>(value)];
    if (run_.trains() && !output.loss.defined()) {
      output.loss = std::move(tensor);
    } else if (!output.logits.defined()) {
      output.logits = std::move(tensor);
    } else {
      output.others.push_back(std::move(tensor));
    }
  }
  if (run_.trains() && (!output.loss.defined() || output.loss.elements() != 1 || !output.loss.requires_grad())) {
    throw Error(ErrorCode::kInput, program_->name + ": its forward pass returns no loss, a differentiated scalar");
  }
  return output;
}

}  // namespace

std::unique_ptr<Model> build_program(const ProgramSpec& spec, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<ProgramModel>(spec.program, run, builder);
}

}  // namespace memcalc
