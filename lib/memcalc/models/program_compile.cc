// What of a program torch.compile cannot make one graph of, or would make another graph of than its recording is.
// MIRRORS(transformers, "masking_utils.py", "5.17.0")
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {
namespace {

/// Calls whose result Python reads (Dynamo's config: capture_scalar_outputs is off), and those whose results are as
/// large as values say (capture_dynamic_output_shape_ops is off, too).
constexpr std::string_view kReading[] = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"};
constexpr std::string_view kSizedByValues[] = {"nonzero", "masked_select", "unique_consecutive"};

template <std::size_t count>
bool is_among(const std::string_view (&names)[count], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool breaks_graph(const BoundCall& call) {
  if (call.row == nullptr) return false;
  const std::string_view name = call.row->name;
  if (is_among(kReading, name) || is_among(kSizedByValues, name)) return true;
  const auto is_tensor = [&](std::size_t slot) {
    return slot < call.slots.size() && call.slots[slot].kind == BoundArgument::Kind::kValue;
  };
  constexpr std::size_t kRepeats = 1, kOutputSize = 3;
  const bool has_size = call.slots.size() > kOutputSize && call.slots[kOutputSize].kind != BoundArgument::Kind::kNone;
  return name == "repeat_interleave" && is_tensor(kRepeats) && !has_size;
}

}  // namespace

/// Looks at what is compiled, each function once.
class GraphCheck {
 public:
  using Functions = std::vector<std::unique_ptr<BoundFunction>>;

  GraphCheck(const Program& program, const Functions& functions, const RunSpec& run, bool has_layers)
      : program_(program),
        functions_(functions),
        whole_(run.training().compiled_parts == CompiledParts::kModel),
        checkpoints_(run.checkpointing() != Checkpointing::kNone),
        has_layers_(has_layers) {}

  void look_at(const PlacedFunction& function, bool in_graph) {
    if (!seen_.emplace(function.function, in_graph).second) return;
    look_at(function, functions_[static_cast<std::size_t>(function.function)]->body, in_graph);
  }

 private:
  void look_at(const PlacedFunction& function, const std::vector<BoundInstruction>& body, bool in_graph) {
    std::string module;
    for (const BoundInstruction& each : body) {
      if (const auto* begun = std::get_if<BoundModule>(&each)) {
        module = begun->module->path;
      } else if (std::holds_alternative<BoundGraph>(each)) {
        in_graph = true;
      } else if (std::holds_alternative<BoundGraphEnd>(each)) {
        in_graph = false;
      } else if (const auto* layers = std::get_if<BoundLayers>(&each)) {
        for (const PlacedFunction& layer : function.layers[layers->number]) look_at_layer(layer, in_graph);
      } else if (const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
        look_at(function, (*loop)->body, in_graph);
      } else if (!in_graph) {
        continue;
      } else if (const auto* call = std::get_if<BoundCall>(&each)) {
        look_at(*call, module);
      } else if (const auto* custom = std::get_if<BoundCustom>(&each)) {
        if (custom->custom->backward < 0) continue;  // of whole numbers, as masks are made of: its forward's calls
        refuse(fmt::format("Dynamo traces through the custom function {}, whose graph is not modelled",
                           custom->custom->name));
      } else if (const auto* region = std::get_if<BoundCheckpoint>(&each)) {
        look_at(function.regions[region->number], in_graph);
      }
    }
  }

  void look_at_layer(const PlacedFunction& layer, bool in_graph) {
    const std::vector<BoundInstruction>& body = functions_[static_cast<std::size_t>(layer.function)]->body;
    const bool breaks = std::any_of(body.begin(), body.end(), [](const BoundInstruction& each) {
      return std::holds_alternative<BoundGraph>(each);
    });
    if (whole_ && checkpoints_ && breaks && !is_one_graph(body)) {
      refuse("its graph breaks within layers, whose checkpoints are then none of a graph, which is not modelled");
    }
    look_at(layer, !whole_ || in_graph);
  }

  void look_at(const BoundCall& call, const std::string& module) const {
    if (!breaks_graph(call)) return;
    refuse(fmt::format("{}{} needs a value of the card, which breaks the graph, and its pieces are not modelled",
                       call.row->name, module.empty() ? "" : " behind " + module));
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kUnsupported, fmt::format("torch.compile of {}: {}; accepted: {}no --compile", program_.name,
                                                     why, whole_ && has_layers_ ? "--compile-parts layers, or " : ""));
  }

  const Program& program_;
  const Functions& functions_;
  bool whole_, checkpoints_, has_layers_;
  std::set<std::pair<std::int32_t, bool>> seen_;
};

bool ProgramModel::is_compiled_whole() const {
  return run_.trains() && run_.compiles() && run_.training().compiled_parts == CompiledParts::kModel;
}

bool ProgramModel::knows_compiled_calls() const {
  return std::any_of(program_->forwards.begin(), program_->forwards.end(),
                     [](const ProgramForward& each) { return each.runs_compiled; });
}

void ProgramModel::check_compiles() const {
  if (!run_.trains() || !run_.compiles()) return;
  const bool has_layers = layer_paths && !layer_paths->empty();
  const bool whole = is_compiled_whole();
  if (!whole && !has_layers) {
    throw Error(ErrorCode::kUnsupported, fmt::format("compile: {} has no layers that would be compiled one by one; "
                                                     "accepted: --compile-parts model",
                                                     program_->name));
  }
  // masking_utils.py and others ask is_tracing(): eager mode looks whether a mask masks anything; where the module is
  // traced, the mask is always made.
  const bool differs = program_->source.starts_with("transformers.") || !program_->not_compiled.empty();
  if (whole && differs && !knows_compiled_calls()) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("torch.compile of {}: what it traces was not recorded ({}); accepted: {}a program that is "
                    "recorded again, or no --compile",
                    program_->name, program_->not_compiled.empty() ? "by a recorder of before" : program_->not_compiled,
                    has_layers ? "--compile-parts layers, " : ""));
  }
  GraphCheck(*program_, functions_, run_, has_layers).look_at(placed_->main, whole && !breaks_graph_);
}

void ProgramModel::forget_graph_values() const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.defined()) tensor.impl()->graph_value = -1;
  }
}

/// A boolean index chooses as many as it has true values; whether an index is one is known as it runs.
void ProgramModel::check_traced(const RecordedCall& call) const {
  if (call.name() != "__getitem__" || call.given_count() == 0) return;
  const std::vector<Tensor> tensors = call.all_tensors();
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].dtype() != DType::kBool) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("torch.compile of {}: a boolean index chooses by values, which breaks the graph, and its "
                            "pieces are not modelled; accepted: no --compile",
                            program_->name));
  }
}

}  // namespace memcalc
