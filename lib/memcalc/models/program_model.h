// ProgramModel: a recorded program as a model. program.cc chooses what runs, program_parameters.cc makes what the
// module holds, program_run.cc makes the calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/model.h"
#include "memcalc/models/program_binding.h"
#include "memcalc/models/program_wrapped.h"
#include "memcalc/spec/program_places.h"

namespace memcalc {

/// Modules that are called as a whole: fine-tuning and hooks may change what they do.
using LeafModule = std::variant<Linear, Conv1D, Embedding>;

struct BoundFunction {
  const ProgramFunction* function = nullptr;
  std::vector<std::int32_t> deaths;  // values in the order in which they die: its results, then as it drops them
  bool is_graph = false;             // of torch.compile: one, and nothing else
  std::vector<BoundInstruction> body;
};

/// What a keyword of the forward pass is given of a batch.
struct BoundInput {
  Tensor Batch::*member = nullptr;  // null: Batch::others, at `place`
  std::size_t place = 0;
  bool converts = false;  // a dataset's float32 is turned into the weights' type
};

/// A module that holds parameters itself, for the hooks around it.
struct HeldParameters {
  std::vector<const Tensor*> tensors;
};

/// The variables of one call of a function. A recomputation that stops in its middle leaves them to Python's traceback,
/// which lets go of the innermost frame first (CPython 3.11, Python/traceback.c, tb_dealloc), of its variables in the
/// order of their names in the code (Objects/frameobject.c, frame_dealloc): as they die where a frame ends. What is
/// returned has mostly the name of an argument.
class Variables {
 public:
  explicit Variables(const BoundFunction& bound)
      : values_(static_cast<std::size_t>(bound.function->values)), deaths_(&bound.deaths) {}
  ~Variables() {
    for (const std::int32_t value : *deaths_) values_[static_cast<std::size_t>(value)].reset();
    for (auto value = values_.rbegin(); value != values_.rend(); ++value) value->reset();
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  [[nodiscard]] std::vector<Tensor>& values() { return values_; }
  [[nodiscard]] Tensor take(std::int32_t value) { return std::move(values_[static_cast<std::size_t>(value)]); }

 private:
  std::vector<Tensor> values_;
  const std::vector<std::int32_t>* deaths_;
};

struct CustomPass;
class ProgramModel;

/// A model of the pipeline that stays on the card, and what the batch has for it.
struct ProgramResident {
  std::unique_ptr<ProgramModel> model;
  Batch batch;

  ProgramResident();
  ProgramResident(ProgramResident&&) noexcept;
  ~ProgramResident();
};

class ProgramModel : public Model {
 public:
  ProgramModel(std::shared_ptr<const Program> program, const RunSpec& run, ModuleBuilder& b);
  [[nodiscard]] ModelOutput forward(const Batch& batch) override;
  /// torch.compile of the whole module, whose graph breaks.
  [[nodiscard]] bool breaks_graph() const { return breaks_graph_; }
  /// How many variables of a loop forward() returns beside the loss, which live until the next step assigns them. Of a
  /// program that is no step none.
  [[nodiscard]] std::size_t step_variables() const {
    return program_->task == kDenoisingTask ? forward_->outputs.size() : 0;
  }
  /// The parameter behind which module.to() moves a buffer; null: not known.
  [[nodiscard]] const Tensor* moved_before(std::size_t buffer) const;
  /// Those of the step before, each of which dies when the pass has made the value that takes its name.
  void replace_in_forward(std::vector<Tensor>& of_step_before) { of_step_before_ = &of_step_before; }

 private:
  void bind_sizes();
  void bind_dtypes();
  [[nodiscard]] std::string_view recorded_precision() const;
  void choose_forward();
  /// torch.compile of the whole module.
  [[nodiscard]] bool is_compiled_whole() const;
  /// Whether the program has what torch.compile traces.
  [[nodiscard]] bool knows_compiled_calls() const;
  void make_parameters(ModuleBuilder& b);
  void make_leaf(ModuleBuilder& b, std::size_t& i);
  struct Storages {
    std::vector<Tensor> parameters, buffers;
  };
  [[nodiscard]] bool converts() const;
  [[nodiscard]] Storages make_storages(Tape& tape) const;
  void make_tied_heads();
  /// Whether the module turns an input into its weights' type if it is of another (ViT's embeddings), which a
  /// recording, whose inputs are of that type, does not have. One that always converts has the call.
  [[nodiscard]] bool turns_into_weights_type(std::int32_t value, std::string_view input) const;
  void find_inputs();
  void make_residents(Tape& tape);
  void run_residents();
  void drop_replaced(const std::vector<Tensor>& values) const;
  void look_at_calls();
  /// Throws Error(kUnsupported) where torch.compile is asked for and the program says that it would break the graph.
  void check_compiles() const;
  /// The same of a call that is being traced.
  void check_traced(const RecordedCall& call) const;
  /// Whether the pass under way is graphs of torch.compile, between which calls are eager ones.
  [[nodiscard]] bool is_in_graphs() const;
  void run_graph(const PlacedFunction& function, const std::vector<BoundInstruction>& body, std::size_t begin,
                 std::vector<Tensor>& values, std::int64_t in_run) const;
  /// A layer that is one graph: as run_layer().
  [[nodiscard]] Tensor run_layer_graph(const PlacedFunction& called, const KeptTensors& given,
                                       std::vector<Tensor>* others) const;
  [[nodiscard]] std::int64_t next_graph(const PlacedFunction& function, std::size_t graph) const;
  /// A graph begins: what the module holds has no number in it.
  void forget_graph_values() const;
  void check_fits(const LeafModule& leaf, const Tensor& input) const;
  void bind_functions();
  [[nodiscard]] const BoundFunction& bound(const PlacedFunction& function) const {
    return *functions_[static_cast<std::size_t>(function.function)];
  }
  /// The parameter, buffer or constant of that number in the function.
  [[nodiscard]] const Tensor& parameter(const PlacedFunction& function, std::size_t number) const {
    return tensors_[static_cast<std::size_t>(function.tensors[number])];
  }
  /// The value or parameter that an argument of `caller` is.
  [[nodiscard]] const Tensor& given(const PlacedFunction& caller, const BoundArgument& argument,
                                    const std::vector<Tensor>& values) const {
    const auto place = static_cast<std::size_t>(argument.integer);
    return argument.kind == BoundArgument::Kind::kParameter ? parameter(caller, place) : values[place];
  }
  /// Null: it is called by what its function says.
  [[nodiscard]] const LeafModule* leaf(const PlacedModule& place, const BoundModule& module) const;
  /// What the hooks around a module are given, where there are any: what it holds itself, and what its calls use of
  /// others (`used`, which stays where it is). Null: nothing.
  [[nodiscard]] const HeldParameters* held(std::int32_t module, const std::vector<std::int32_t>& used) const;
  [[nodiscard]] const HeldParameters* held_by(std::int32_t module) const;
  void run_body(const PlacedFunction& function, const std::vector<BoundInstruction>& body, std::vector<Tensor>& values,
                std::int64_t in_run = 0) const;
  void run_part(const PlacedFunction& function, const std::vector<BoundInstruction>& body, std::size_t first,
                std::size_t last, std::vector<Tensor>& values, std::int64_t in_run) const;
  /// Null: peft has put no wrappers around it.
  [[nodiscard]] const WrappedModule* wrapped(const PlacedModule& place) const;
  /// Null: it is called as every other module.
  [[nodiscard]] const Linear* changed_linear(const PlacedModule& place, const BoundModule& module) const;
  template <typename Calls>
  void run_changed(const Linear& linear, const BoundModule& module, const HeldParameters* held, const Calls& own_calls,
                   std::vector<Tensor>& values) const;
  void run_call(const PlacedFunction& function, const BoundCall& call, std::vector<Tensor>& values,
                std::int64_t in_run) const;
  void unbind(BoundArgument& slot, std::vector<Tensor>& values) const;
  void run_layers(const PlacedFunction& caller, const BoundLayers& call, std::vector<Tensor>& values) const;
  void run_loop(const PlacedFunction& function, const BoundLoop& loop, std::vector<Tensor>& values) const;
  void run_checkpoint(const PlacedFunction& caller, const BoundCheckpoint& call, std::vector<Tensor>& values) const;
  [[nodiscard]] Tensor run_called(const PlacedFunction& function, const KeptTensors& given,
                                  std::vector<Tensor>* others) const;
  [[nodiscard]] Tensor run_layer(const PlacedFunction& function, const KeptTensors& given,
                                 std::vector<Tensor>* others) const;
  void run_custom(const PlacedFunction& caller, const BoundCustom& call, std::vector<Tensor>& values) const;
  void check_backward(const BoundCustom& call, const std::vector<const Tensor*>& inputs, bool differentiated) const;
  void run_backward(const CustomPass& pass, BackwardCall& call) const;
  static void custom_backward(BackwardCall& call);

  std::shared_ptr<const Program> program_;
  RunSpec run_;
  Tape& tape_;
  Binding binding_;
  bool autocasts_ = false;
  const ProgramForward* forward_ = nullptr;
  const PlacedForward* placed_ = nullptr;
  /// Parameters, then buffers, then constants. In a module that peft wraps, parameters with their adapters.
  mutable std::vector<Tensor> tensors_;
  std::vector<std::shared_ptr<PackedExperts>> wrapped_;  // of each module; null: none; empty: there are no adapters
  std::vector<std::optional<LeafModule>> leaves_;        // of each module
  mutable std::vector<HeldParameters> held_;             // of each module; empty until something hooks modules
  mutable std::unordered_map<const void*, HeldParameters> with_used_;
  bool breaks_graph_ = false;
  mutable std::int64_t graphs_run_ = 0;  // of the pass under way
  /// enable_input_require_grads: an embedding that is no nn.Embedding itself; -1: none.
  std::int32_t requires_grad_of_ = -1;
  std::vector<std::unique_ptr<BoundFunction>> functions_;  // of the program; null: it is not called
  std::vector<ProgramResident> residents_;
  std::vector<BoundInput> inputs_;                 // of the function's keywords
  std::vector<Tensor> kept_;                       // what the module keeps of its last pass
  std::vector<Tensor>* of_step_before_ = nullptr;  // see replace_in_forward()
};

/// nn.LSTM and its like, whose weights lie in one storage (RNNBase.flatten_parameters).
[[nodiscard]] bool is_recurrent(std::string_view type);

}  // namespace memcalc
