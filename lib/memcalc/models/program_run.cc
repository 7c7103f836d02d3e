// A program's calls on the operator table, where its variables die where Python's did.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {
namespace {

using Kind = BoundArgument::Kind;

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
    } else if (!region.dtype.empty() && (tape_.modes.autocast.dtype || in_backward())) {
      tape_.modes.autocast.dtype = binding.dtype(region.dtype);
    }
  }

 private:
  struct Open {
    ProgramRegion::Kind kind;
    std::optional<DType> autocast;
    bool gradients;
  };

  /// torch.amp.custom_bwd begins a region where there is none around; elsewhere one that is not off changes nothing.
  [[nodiscard]] bool in_backward() const { return tape_.moment.phase == Phase::kBackward && !tape_.moment.recomputing; }

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

void begin_module(const BoundModule& module, const HeldParameters* held, ModuleHooks& hooks,
                  std::vector<Tensor>& values, std::vector<OpenModule>& open) {
  OpenModule& begun = open.emplace_back(OpenModule{&module, nullptr, {}});
  if (held == nullptr || module.output < 0) return;
  if (module.input < 0) {  // it is given a buffer, or nothing
    begun.held = held;
    (void)hooks.before_module(held, held->tensors, {});
    return;
  }
  Tensor& input = values[static_cast<std::size_t>(module.input)];
  if (!input.defined()) return;
  if (is_recurrent(module.module->type)) {
    throw Error(ErrorCode::kUnsupported, "gathering the flattened weights of nn." + module.module->type +
                                             " module by module is not modelled; accepted: --parallel ddp, ds-zero2");
  }
  begun.held = held;
  begun.input = input;
  input = hooks.before_module(held, held->tensors, begun.input);
}

void end_module(std::vector<Tensor>& values, std::vector<OpenModule>& open) {
  OpenModule ended = std::move(open.back());
  open.pop_back();
  if (ended.held == nullptr) return;
  const Tensor& output = values[static_cast<std::size_t>(ended.module->output)];
  if (output.defined()) output.tape().modes.module_hooks->after_module(ended.held, output);
  const std::vector<std::int32_t>& dead = ended.module->also_dead;
  const bool died = std::find(dead.begin(), dead.end(), ended.module->input) != dead.end();
  if (!died && ended.module->input >= 0) {
    values[static_cast<std::size_t>(ended.module->input)] = std::move(ended.input);
  }
}

/// The forward hook of enable_input_require_grads.
void require_grad(const Tensor& output) {
  if (!output.defined() || output.requires_grad() || !output.tape().modes.grad_enabled) return;
  output.tape().autograd.require_gradient(output);
}

}  // namespace

/// A damaged program may give a module what it cannot take.
void ProgramModel::check_fits(const LeafModule& leaf, const Tensor& input) const {
  const auto* linear = std::get_if<Linear>(&leaf);
  const auto* conv = std::get_if<Conv1D>(&leaf);
  if (linear == nullptr && conv == nullptr) return;
  const std::int64_t wanted = linear != nullptr ? linear->weight.size(1) : conv->weight.size(0);
  if (input.rank() > 0 && input.size(-1) == wanted) return;
  throw Error(ErrorCode::kInput, program_->name + ": a linear layer is given another width than its own");
}

const LeafModule* ProgramModel::leaf(const PlacedModule& place, const BoundModule& module) const {
  if (module.leaf < 0 || place.called < 0) return nullptr;
  const std::optional<LeafModule>& found = leaves_[static_cast<std::size_t>(place.called)];
  // A module of another class that happens to have such a name makes other calls.
  return found && static_cast<int>(found->index()) == module.leaf ? &*found : nullptr;
}

const WrappedModule* ProgramModel::wrapped(const PlacedModule& place) const {
  if (wrapped_.empty() || place.module < 0) return nullptr;
  const WrappedModule* module = wrapped_[static_cast<std::size_t>(place.module)].get();
  return module != nullptr && !module->wrappers.empty() ? module : nullptr;
}

/// A class derived from nn.Linear whose forward makes other calls than F.linear (Falcon's), and which fine-tuning has
/// changed: peft and bitsandbytes ask isinstance. Null: it is none.
const Linear* ProgramModel::changed_linear(const PlacedModule& place, const BoundModule& module) const {
  if (place.module < 0 || module.leaf >= 0 || module.input < 0 || module.output < 0) return nullptr;
  const std::optional<LeafModule>& found = leaves_[static_cast<std::size_t>(place.module)];
  const Linear* linear = found ? std::get_if<Linear>(&*found) : nullptr;
  return linear != nullptr && linear->fine_tuned ? linear : nullptr;
}

/// An adapter stands beside the class's own calls, a quantised layer in place of them (Linear4bit, Linear8bitLt).
template <typename Calls>
void ProgramModel::run_changed(const Linear& linear, const BoundModule& module, const HeldParameters* held,
                               const Calls& own_calls, std::vector<Tensor>& values) const {
  ModuleHooks* hooks = tape_.modes.module_hooks;
  if (hooks != nullptr && hooks->hooks_adapters()) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: adapters of {}, which is derived from nn.Linear, are not modelled where each module is "
                    "gathered by itself; accepted: --parallel ddp, ds-zero2, fsdp2",
                    program_->name, module.module->type));
  }
  Tensor& output = values[static_cast<std::size_t>(module.output)];
  Tensor& input = values[static_cast<std::size_t>(module.input)];
  const Tensor given = input;
  if (hooks != nullptr) input = hooks->before_module(held, held->tensors, given);
  output = linear.fine_tuned->forward(Tensor(input), linear.bias, [&](const Tensor&) {
    own_calls();
    return std::move(output);
  });
  if (hooks != nullptr) hooks->after_module(held, output);
  input = given;
  for (const std::int32_t dead : module.also_dead) values[static_cast<std::size_t>(dead)].reset();
}

const HeldParameters* ProgramModel::held(std::int32_t module, const std::vector<std::int32_t>& used) const {
  const ModuleHooks* hooks = tape_.modes.module_hooks;
  if (hooks == nullptr) return nullptr;
  const HeldParameters* own = held_by(module);
  if (used.empty() || !hooks->hooks_used_parameters()) return own;
  HeldParameters& all = with_used_[&used];
  if (!all.tensors.empty()) return &all;
  if (own != nullptr) all = *own;
  for (const std::int32_t parameter : used) all.tensors.push_back(&tensors_[static_cast<std::size_t>(parameter)]);
  return &all;
}

const HeldParameters* ProgramModel::held_by(std::int32_t module) const {
  if (module < 0) return nullptr;
  if (held_.empty()) {
    held_.resize(program_->module_count());
    const auto hold = [&](std::int32_t holder, std::size_t parameter) {
      held_[static_cast<std::size_t>(holder)].tensors.push_back(&tensors_[parameter]);
    };
    for (std::size_t i = 0; i < program_->parameters.size(); ++i) hold(program_->parameters[i].module, i);
    for (const TiedTensor& each : program_->tied_tensors) hold(each.module, static_cast<std::size_t>(each.parameter));
  }
  const HeldParameters& found = held_[static_cast<std::size_t>(module)];
  return found.tensors.empty() ? nullptr : &found;
}

/// A kUnbound list becomes a list of its parts, which stand behind the values.
void ProgramModel::unbind(BoundArgument& slot, std::vector<Tensor>& values) const {
  if (slot.text != kUnbound || slot.items.empty()) return;
  static const OperatorRow* const kRow = find_operator("unbind");
  RecordedCall call(tape_, kUnbound, slot.items, values, {});
  kRow->run(call);
  slot = {.kind = Kind::kList};
  for (Tensor& part : call.results) {
    slot.items.push_back({.kind = Kind::kValue, .integer = static_cast<std::int64_t>(values.size())});
    values.push_back(std::move(part));
  }
}

void ProgramModel::run_call(const PlacedFunction& function, const BoundCall& call, std::vector<Tensor>& values,
                            std::int64_t in_run) const {
  std::vector<BoundArgument> of_this_run;
  if (call.differs_by_run && in_run > 0) of_this_run = slots_in(in_run, call.slots);
  const std::string_view name = call.row == nullptr ? call.opaque : call.row->name;
  std::vector<Tensor> with_parts;  // of lists that the call itself makes
  if (call.unbinds) {
    if (of_this_run.empty()) of_this_run = call.slots;
    with_parts = values;
    for (BoundArgument& slot : of_this_run) unbind(slot, with_parts);
  }
  RecordedCall recorded(tape_, name, of_this_run.empty() ? call.slots : of_this_run, call.unbinds ? with_parts : values,
                        {tensors_, function.tensors}, call.given);
  const bool on_host = recorded.on_host();  // then nothing of it is seen on the card
  const Scoped<bool> recording(tape_.kernels.recording, tape_.kernels.recording && !on_host);
  std::optional<OnMetaDevice> elsewhere;
  if (on_host) elsewhere.emplace(tape_.memory);
  if (tape_.modes.capture != nullptr) check_traced(recorded);
  try {
    if (call.row == nullptr) {
      opaque_row(recorded);
    } else {
      call.row->run(recorded);
    }
  } catch (const Error& error) {  // operands that do not go together: the program is to blame
    if (error.code() != ErrorCode::kInternal) throw;
    std::string recorded_with;
    for (const ProgramSymbol& symbol : program_->symbols) {
      const std::int64_t asked = binding_.sizes.evaluate(symbol.name) * symbol.unit;
      if (asked == symbol.recorded || symbol.name == "batch") continue;  // a batch that is not free was refused before
      recorded_with += fmt::format("; recorded with {} {}, asked for {}", symbol.name, symbol.recorded, asked);
    }
    throw Error(ErrorCode::kInput, fmt::format("{} calls {}: {}{}", program_->name, name, error.what(), recorded_with));
  }
  const std::vector<std::int32_t>& results = *call.results;
  if (recorded.results.size() < results.size()) recorded.refuse("other results");
  for (std::size_t i = 0; i < results.size(); ++i) {
    values[static_cast<std::size_t>(results[i])] = std::move(recorded.results[i]);
  }
}

/// The first result of a function; the further ones go to `others`, which has places for them; null: there are none.
Tensor ProgramModel::run_called(const PlacedFunction& called, const KeptTensors& given,
                                std::vector<Tensor>* others) const {
  const BoundFunction& bound_called = bound(called);
  const ProgramFunction& function = *bound_called.function;
  Variables variables(bound_called);
  std::copy(given.begin(), given.end(), variables.values().begin());
  run_body(called, bound_called.body, variables.values());
  if (others != nullptr && !tape_.moment.recomputing) {
    for (std::size_t i = 1; i < function.results.size(); ++i) (*others)[i - 1] = variables.take(function.results[i]);
  }
  return variables.take(function.results[0]);
}

/// A layer may hold parameters itself, as its modules do.
Tensor ProgramModel::run_layer(const PlacedFunction& called, const KeptTensors& given,
                               std::vector<Tensor>* others) const {
  const HeldParameters* own = held(called.module, called.used);
  if (own == nullptr) return run_called(called, given, others);
  ModuleHooks& hooks = *tape_.modes.module_hooks;
  KeptTensors hooked = given;
  if (hooked.empty()) {
    (void)hooks.before_module(own, own->tensors, {});
  } else {
    hooked.front() = hooks.before_module(own, own->tensors, given.front());
  }
  Tensor result = run_called(called, hooked, others);
  hooks.after_module(own, result);
  return result;
}

void ProgramModel::run_layers(const PlacedFunction& caller, const BoundLayers& call,
                              std::vector<Tensor>& values) const {
  const std::vector<PlacedFunction>& layers = caller.layers[call.number];
  const std::vector<std::int32_t>& results = call.layers->results;
  const auto place_of = [&](std::size_t result, std::size_t layer) {
    const auto shift = call.shifts[result] ? layer * static_cast<std::size_t>(call.own_results) : 0;
    return static_cast<std::size_t>(results[result]) + shift;
  };
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const PlacedFunction& called = layers[layer];
    KeptTensors positional, keywords;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      const BoundArgument& argument = call.arguments[i];
      const bool of_before = i == 0 && layer > 0;
      const auto place = of_before ? place_of(0, layer - 1) : static_cast<std::size_t>(argument.integer);
      const Tensor& tensor = argument.kind == Kind::kParameter && !of_before ? parameter(caller, place) : values[place];
      if (!tensor.defined()) throw Error(ErrorCode::kInput, program_->name + ": a layer is given a tensor that died");
      (i < call.positional ? positional : keywords).push_back(tensor);
    }
    // What the layer makes beside its first result; a second run of it, in backward, makes nothing that is kept.
    const std::size_t count = bound(called).function->results.size() - 1;
    const auto others = count > 0 ? std::make_shared<std::vector<Tensor>>(count) : nullptr;
    Byproducts further;  // results of its graph, where it has one of its own
    for (std::size_t i = 0; i < count; ++i) further.shared.push_back(&(*others)[i]);
    if (is_in_graphs() && bound(called).is_graph) {
      positional.insert(positional.end(), keywords.begin(), keywords.end());
      values[place_of(0, layer)] = run_layer_graph(called, positional, others.get());
    } else {
      values[place_of(0, layer)] = checkpointed(
          run_, std::move(positional), keywords,
          [this, &called, others](const KeptTensors& kept) {
            // Buffers that another layer's graph had: they are none of this one's values.
            const bool is_graph = tape_.modes.capture != nullptr && tape_.modes.compiler != nullptr;
            if (is_graph && !forward_->graphs) forget_graph_values();
            return run_layer(called, kept, others.get());
          },
          further);
    }
    for (std::size_t i = 1; others != nullptr && i < results.size() && i <= others->size(); ++i) {
      values[place_of(i, layer)] = std::move((*others)[i - 1]);
    }
    if (call.layers->drops && layer + 1 < layers.size()) {
      values[layer == 0 ? static_cast<std::size_t>(call.arguments[0].integer) : place_of(0, layer - 1)].reset();
    }
  }
}

void ProgramModel::run_loop(const PlacedFunction& function, const BoundLoop& loop, std::vector<Tensor>& values) const {
  if (loop.count == 0) {  // what it would hand on is what it got
    for (const auto& [from, to] : loop.loop->carries) {
      values[static_cast<std::size_t>(from)] = std::move(values[static_cast<std::size_t>(to)]);
    }
  }
  for (std::int64_t run = 0; run < loop.count; ++run) {
    for (const auto& [from, to] : loop.loop->carries) {
      if (run > 0) values[static_cast<std::size_t>(to)] = std::move(values[static_cast<std::size_t>(from)]);
    }
    run_body(function, loop.body, values, run);
  }
}

void ProgramModel::run_body(const PlacedFunction& function, const std::vector<BoundInstruction>& body,
                            std::vector<Tensor>& values, std::int64_t in_run) const {
  run_part(function, body, 0, body.size(), values, in_run);
}

/// The instructions from `first` on, without `last`.
void ProgramModel::run_part(const PlacedFunction& function, const std::vector<BoundInstruction>& body,
                            std::size_t first, std::size_t last, std::vector<Tensor>& values,
                            std::int64_t in_run) const {
  Regions regions(tape_);
  std::vector<OpenModule> open;
  std::vector<std::unique_ptr<WrappedRun>> wrapped_runs;
  const BoundModule* made_to_require_grad = nullptr;
  const auto value = [&](std::int32_t number) -> Tensor& { return values[static_cast<std::size_t>(number)]; };
  for (std::size_t i = first; i < last; ++i) {
    const BoundInstruction& each = body[i];
    for (const auto& run : wrapped_runs) run->before(i);
    if (const auto* call = std::get_if<BoundCall>(&each)) {
      run_call(function, *call, values, in_run);
      if (of_step_before_ != nullptr && &function == &placed_->main && !tape_.moment.recomputing) drop_replaced(values);
    } else if (const auto* drop = std::get_if<const ProgramDrop*>(&each)) {
      for (const std::int32_t number : (*drop)->values) value(number).reset();
    } else if (const auto* module = std::get_if<BoundModule>(&each)) {
      const PlacedModule& place = function.modules[module->number];
      const LeafModule* whole = leaf(place, *module);
      if (whole != nullptr && value(module->input).defined()) {
        check_fits(*whole, value(module->input));
        value(module->output) = std::visit([&](const auto& called) { return called(value(module->input)); }, *whole);
        for (const std::int32_t dead : module->also_dead) value(dead).reset();
        i = module->end;
        continue;
      }
      if (const Linear* changed = changed_linear(place, *module); changed != nullptr) {
        const auto own_calls = [&] { run_part(function, body, i + 1, module->end, values, in_run); };
        run_changed(*changed, *module, held(place.module, place.used), own_calls, values);
        i = module->end;
        continue;
      }
      if (const WrappedModule* of = wrapped(place); of != nullptr) {
        wrapped_runs.push_back(
            std::make_unique<WrappedRun>(*program_, function, body, i + 1, module->end, *of, tensors_));
      }
      if (place.called >= 0 && place.called == requires_grad_of_) made_to_require_grad = module;
      if (ModuleHooks* hooks = tape_.modes.module_hooks; hooks != nullptr) {
        begin_module(*module, held(place.module, place.used), *hooks, values, open);
      }
    } else if (std::holds_alternative<BoundModuleEnd>(each)) {
      if (!wrapped_runs.empty() && wrapped_runs.back()->end() == i) wrapped_runs.pop_back();
      if (!open.empty()) end_module(values, open);
      if (made_to_require_grad != nullptr && made_to_require_grad->end == i) {
        require_grad(value(std::exchange(made_to_require_grad, nullptr)->output));
      }
    } else if (const auto* region = std::get_if<const ProgramRegion*>(&each)) {
      regions.run(**region, binding_);
    } else if (const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
      run_loop(function, **loop, values);
    } else if (const auto* graph = std::get_if<BoundGraph>(&each)) {
      if (!is_in_graphs()) continue;
      run_graph(function, body, i, values, in_run);
      i = graph->end;
    } else if (std::holds_alternative<BoundGraphEnd>(each)) {
      continue;
    } else if (const auto* custom = std::get_if<BoundCustom>(&each)) {
      run_custom(function, *custom, values);
    } else if (const auto* checkpoint = std::get_if<BoundCheckpoint>(&each)) {
      run_checkpoint(function, *checkpoint, values);
    } else {
      run_layers(function, std::get<BoundLayers>(each), values);
    }
  }
}

}  // namespace memcalc
