#include "memcalc/models/program_binding.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

namespace memcalc {
namespace {

using Kind = BoundArgument::Kind;

constexpr std::int64_t kMostRuns = 100'000;  // of loops in one another

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

  /// What of a call has no place: "7 arguments", "the argument out". None is what an argument is that nobody passes.
  [[nodiscard]] std::optional<std::string> misfit(const ProgramCall& call) const {
    if (variadic_ < 0 && call.positional.size() > names_.size()) {
      return fmt::format("{} arguments", call.positional.size());
    }
    for (const auto& [keyword, argument] : call.keywords) {
      if (argument.kind != ProgramArgument::Kind::kNone && !place_of(keyword)) {
        return fmt::format("the argument {}", keyword);
      }
    }
    return std::nullopt;
  }

  /// Of a call that has no misfit.
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
      slots[i] = std::move(argument);
    }
    for (const auto& [keyword, argument] : call.keywords) {
      if (const std::optional<std::size_t> place = place_of(keyword)) slots[*place] = binding.bound(argument);
    }
    return slots;
  }

 private:
  [[nodiscard]] std::optional<std::size_t> place_of(std::string_view keyword) const {
    const auto found = std::find(names_.begin(), names_.end(), canonical(keyword));
    if (found == names_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - names_.begin());
  }
  /// numpy's names for the same, and those of a function that has several signatures.
  [[nodiscard]] std::string_view canonical(std::string_view keyword) const {
    const bool known = std::find(names_.begin(), names_.end(), keyword) != names_.end();
    if (known) return keyword;
    if (keyword == "axis") return "dim";
    if (keyword == "keepdims") return "keepdim";
    if (keyword == "self" || keyword == "x") return "input";
    if (keyword == "indices" || keyword == "sections") return "indices_or_sections";
    if (keyword == "split_size" || keyword == "split_sizes") return "split_size_or_sections";
    return keyword;
  }

  std::vector<std::string_view> names_;
  int variadic_ = -1;
};

/// The row's, taken apart once: rows live as long as the process.
const Signature& signature_of(const OperatorRow& row) {
  thread_local std::unordered_map<const OperatorRow*, Signature> known;
  const auto found = known.find(&row);
  return found != known.end() ? found->second : known.emplace(&row, Signature(row.signature)).first->second;
}

bool differs_by_run(const BoundArgument& argument) {
  return argument.step != 0 || std::any_of(argument.items.begin(), argument.items.end(), differs_by_run);
}

BoundArgument in_run(std::int64_t run, const BoundArgument& argument) {
  BoundArgument result = argument;
  result.integer += run * argument.step;
  if (argument.step != 0) result.number = static_cast<double>(result.integer);
  for (BoundArgument& item : result.items) item = in_run(run, item);
  return result;
}

/// Binds the instructions of one body.
class Binder {
 public:
  Binder(const Binding& binding, const std::string& program, bool is_main)
      : binding_(binding), program_(program), is_main_(is_main) {
    if (binding.inputs == binding.weights) return;
    around_.emplace(binding).weights = binding.inputs;
    of_attention_.emplace(binding).compute = binding.weights;
  }

  [[nodiscard]] std::vector<BoundInstruction> bound_body(const ProgramInstructions& body) {
    std::vector<BoundInstruction> bound;
    bound.reserve(body.items.size());
    std::vector<std::size_t> open;
    for (const ProgramInstruction& each : body.items) {
      std::visit([&](const auto& instruction) { add(instruction, bound, open); }, each);
    }
    if (!open.empty()) throw Error(ErrorCode::kInput, program_ + ": a module begins and does not end");
    return bound;
  }

 private:
  /// Of a call's arguments. In a packed denoiser norms make float32 of what the layers pass on. Attention casts to its
  /// queries' type, which bitsandbytes' layer has from its input; what the network's own code casts around these it
  /// casts to its inputs' type (diffusers 0.42: hidden_states.to(query.dtype) in models/attention_processor.py,
  /// timestep.to(hidden_states.dtype) in models/transformers/transformer_*.py).
  [[nodiscard]] const Binding& binding_in(const std::vector<BoundInstruction>& bound,
                                          const std::vector<std::size_t>& open) const {
    if (!of_attention_) return binding_;
    const auto is_in = [&](std::string_view part) {
      return std::any_of(open.begin(), open.end(), [&](std::size_t place) {
        return std::get<BoundModule>(bound[place]).module->type.find(part) != std::string::npos;
      });
    };
    if (is_in("Attention")) return *of_attention_;
    return is_in("Norm") || !is_main_ ? binding_ : *around_;
  }

  void add(const ProgramCall& call, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& open) {
    const Binding& binding = binding_in(bound, open);
    auto& result = std::get<BoundCall>(bound.emplace_back(std::in_place_type<BoundCall>));
    result.row = find_operator(call.function);
    const bool has_result = !call.given.empty() || changes_in_place(call.function);
    const Signature* signature = result.row != nullptr ? &signature_of(*result.row) : nullptr;
    std::string problem;
    if (signature == nullptr) {
      problem = fmt::format("{} calls {}, which the operator table does not have", program_, call.function);
    } else if (const auto misfit = signature->misfit(call)) {
      problem = fmt::format("the program calls {} with {}, which is not modelled", call.function, *misfit);
    }
    if (!problem.empty()) {
      if (!has_result) throw Error(ErrorCode::kUnsupported, problem);
      return add_opaque(call, result);
    }
    result.slots = signature->placed(call, binding);
    result.results = &call.results;
    for (const ProgramResult& each : call.given) {
      result.given.push_back({binding_.shape(each.shape, call.function), binding_.dtype(each.dtype)});
    }
    result.unbinds = std::any_of(result.slots.begin(), result.slots.end(), [](const BoundArgument& slot) {
      return slot.text == kUnbound && !slot.items.empty();
    });
    result.differs_by_run = std::any_of(result.slots.begin(), result.slots.end(), memcalc::differs_by_run);
  }

  /// An operator that the table does not have, or not with these arguments: its results' sizes were recorded, or are
  /// those of what it changes.
  void add_opaque(const ProgramCall& call, BoundCall& result) {
    result.row = nullptr;
    result.opaque = call.function;
    for (const ProgramArgument& argument : call.positional) result.slots.push_back(binding_.bound(argument));
    for (const auto& [keyword, argument] : call.keywords) result.slots.push_back(binding_.bound(argument));
    result.results = &call.results;
    for (const ProgramResult& each : call.given) {
      result.given.push_back({binding_.shape(each.shape, call.function), binding_.dtype(each.dtype)});
    }
  }

  void add(const ProgramDrop& drop, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& /*open*/) {
    bound.emplace_back(&drop);
  }

  void add(const ProgramRegion& region, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& /*open*/) {
    bound.emplace_back(&region);
  }

  void add(const ProgramGraph& graph, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& /*open*/) {
    if (graph.begins) {
      bound.emplace_back(BoundGraph{.end = 0, .number = graphs_++, .inputs = {}, .outputs = {}, .dead = {}});
    } else {
      bound.emplace_back(BoundGraphEnd{});
    }
  }

  void add(const ProgramLayers& layers, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& /*open*/) {
    BoundLayers result{.layers = &layers, .arguments = tensors_in(layers.positional, {}), .shifts = {}};
    result.positional = result.arguments.size();
    result.arguments = tensors_in(layers.positional, layers.keywords);
    for (const std::int32_t value : layers.results) {
      const bool own = std::none_of(result.arguments.begin(), result.arguments.end(), [&](const BoundArgument& each) {
        return each.kind == Kind::kValue && each.integer == value;
      });
      result.shifts.push_back(own);
      result.own_results += own ? 1 : 0;
    }
    result.number = layers_++;
    bound.emplace_back(std::move(result));
  }

  void add(const ProgramCheckpoint& region, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& /*open*/) {
    bound.emplace_back(BoundCheckpoint{.region = &region,
                                       .arguments = tensors_in(region.positional, region.keywords),
                                       .positional = tensors_in(region.positional, {}).size(),
                                       .number = regions_++});
  }

  /// The tensors among arguments, by position and then by keyword.
  [[nodiscard]] std::vector<BoundArgument> tensors_in(const std::vector<ProgramArgument>& positional,
                                                      const ProgramKeywords& keywords) const {
    std::vector<BoundArgument> tensors;
    const auto take = [&](const ProgramArgument& argument) {
      BoundArgument made = binding_.bound(argument);
      if (RecordedCall::is_tensor(made)) tensors.push_back(std::move(made));
    };
    for (const ProgramArgument& argument : positional) take(argument);
    for (const auto& [keyword, argument] : keywords) take(argument);
    return tensors;
  }

  void add(const ProgramModule& module, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& open) {
    if (!module.path.empty()) {
      open.push_back(bound.size());
      bound.emplace_back(BoundModule{.module = &module, .also_dead = {}, .number = modules_++});
      return;
    }
    if (open.empty()) throw Error(ErrorCode::kInput, program_ + ": a module ends that has not begun");
    BoundModule& begun = std::get<BoundModule>(bound[open.back()]);
    begun.end = bound.size();
    find_ends(bound, open.back() + 1, begun);
    open.pop_back();
    bound.emplace_back(BoundModuleEnd{});
  }

  /// What a module is given and what it makes, as its calls from `first` on say.
  static void find_ends(const std::vector<BoundInstruction>& bound, std::size_t first, BoundModule& module) {
    constexpr std::string_view kViews[] = {"view", "reshape"};
    constexpr std::string_view kLeaves[] = {"linear", "addmm", "embedding"};  // as LeafModule
    int calls = 0;
    std::string_view main_call;
    std::vector<std::int32_t> made;
    const auto is_made = [&](std::int32_t value) { return std::find(made.begin(), made.end(), value) != made.end(); };
    for (std::size_t i = first; i < bound.size(); ++i) {
      if (const auto* call = std::get_if<BoundCall>(&bound[i])) {
        if (module.input < 0) {
          std::vector<std::int32_t> taken;
          for (const BoundArgument& slot : call->slots) collect_values(slot, taken);
          const auto found = std::find_if_not(taken.begin(), taken.end(), is_made);
          if (found != taken.end()) module.input = *found;
        }
        made.insert(made.end(), call->results->begin(), call->results->end());
        if (!call->results->empty()) module.output = call->results->front();
        const std::string_view name = call->row == nullptr ? call->opaque : call->row->name;
        const bool is_view = std::find(std::begin(kViews), std::end(kViews), name) != std::end(kViews);
        if (!is_view) main_call = ++calls == 1 ? name : std::string_view();
      } else if (const auto* drop = std::get_if<const ProgramDrop*>(&bound[i])) {
        for (const std::int32_t value : (*drop)->values) {
          if (!is_made(value)) module.also_dead.push_back(value);
        }
      } else if (!std::holds_alternative<BoundModule>(bound[i]) && !std::holds_alternative<BoundModuleEnd>(bound[i])) {
        calls = 2;  // regions, layers, loops: nothing that is called as a whole
        main_call = {};
      }
    }
    if (module.input < 0 || module.output < 0) return;
    const auto found = std::find(std::begin(kLeaves), std::end(kLeaves), main_call);
    if (found != std::end(kLeaves)) module.leaf = static_cast<int>(found - std::begin(kLeaves));
  }

  void add(const ProgramLoop& loop, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& /*open*/) {
    auto result = std::make_unique<BoundLoop>();
    result->loop = &loop;
    result->count = binding_.size(loop.count);
    const std::int64_t outer = std::exchange(runs_, checked_multiply(runs_, std::max<std::int64_t>(result->count, 1)));
    if (runs_ > kMostRuns) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: loops of {} runs; at most {} are modelled", program_, runs_, kMostRuns));
    }
    result->body = bound_body(*loop.body);
    runs_ = outer;
    bound.emplace_back(std::move(result));
  }

  void add(const ProgramCustom& custom, std::vector<BoundInstruction>& bound, std::vector<std::size_t>& /*open*/) {
    BoundCustom result{.custom = &custom, .arguments = {}, .inputs = {}, .number = 0};
    for (const ProgramArgument& argument : custom.arguments) result.arguments.push_back(binding_.bound(argument));
    for (const ProgramArgument& input : custom.inputs) result.inputs.push_back(binding_.bound(input));
    result.number = customs_++;
    bound.emplace_back(std::move(result));
  }

  const Binding& binding_;
  std::optional<Binding> around_, of_attention_;  // of a packed denoiser
  const std::string& program_;
  bool is_main_ = false;
  std::size_t layers_ = 0, modules_ = 0, customs_ = 0, regions_ = 0, graphs_ = 0;  // so far
  std::int64_t runs_ = 1;                                                          // of the loops around
};

}  // namespace

DType Binding::dtype(std::string_view name) const {
  if (name == "weights") return weights;
  if (name == "compute") return compute;
  for (const DType each : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64, DType::kInt64,
                           DType::kInt32, DType::kUInt8, DType::kBool, DType::kComplex64}) {
    if (name_of(each) == name) return each;
  }
  if (name == "int8") return DType::kUInt8;  // types as wide: no program does more with them than convert and fill
  if (name == "int16") return DType::kFloat16;
  throw Error(ErrorCode::kUnsupported, fmt::format("the program has tensors of {}, which is not modelled", name));
}

Shape Binding::shape(const std::vector<ProgramArgument>& sizes_of, std::string_view name) const {
  Shape shape;
  for (const ProgramArgument& each : sizes_of) {
    if (shape.rank == kMaxDims) {
      throw Error(ErrorCode::kUnsupported, fmt::format("{}: more than {} dimensions are not modelled", name, kMaxDims));
    }
    const std::int64_t found = size(each);
    if (found < 0) throw Error(ErrorCode::kInput, fmt::format("{}: a size of {}", name, found));
    shape.dims[static_cast<std::size_t>(shape.rank++)] = found;
  }
  return shape;
}

BoundArgument Binding::bound(const ProgramArgument& argument) const {
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
    case From::kUnbound:
      result.kind = Kind::kList;
      result.text = kUnbound;
      break;
    case From::kObject: result.kind = Kind::kText; break;
    case From::kRun:
      result.kind = Kind::kInteger;
      result.step = argument.step;
      result.number = static_cast<double>(result.integer);
      break;
  }
  for (const ProgramArgument& item : argument.items) result.items.push_back(bound(item));
  return result;
}

std::vector<BoundInstruction> bound_body(const ProgramInstructions& body, const Binding& binding,
                                         const std::string& program, bool is_main) {
  return Binder(binding, program, is_main).bound_body(body);
}

void collect_values(const BoundArgument& argument, std::vector<std::int32_t>& values) {
  if (argument.kind == Kind::kValue) values.push_back(static_cast<std::int32_t>(argument.integer));
  for (const BoundArgument& item : argument.items) collect_values(item, values);
}

std::vector<BoundArgument> slots_in(std::int64_t run, const std::vector<BoundArgument>& slots) {
  std::vector<BoundArgument> result;
  for (const BoundArgument& slot : slots) result.push_back(in_run(run, slot));
  return result;
}

}  // namespace memcalc
