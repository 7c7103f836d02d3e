// ProgramModel: a recorded program as a model. program.cc chooses what runs, program_parameters.cc makes what the
// module holds, program_run.cc makes the calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/model.h"
#include "memcalc/models/program_binding.h"
#include "memcalc/spec/program.h"

namespace memcalc {

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
  std::vector<Instance> customs, backwards;   // of each BoundCustom, by its number
  std::vector<Instance> regions;              // of each BoundCheckpoint, by its number
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

struct CustomPass;

class ProgramModel : public Model {
 public:
  ProgramModel(std::shared_ptr<const Program> program, const RunSpec& run, ModuleBuilder& b);
  [[nodiscard]] ModelOutput forward(const Batch& batch) override;

 private:
  void bind_sizes();
  void bind_dtypes();
  [[nodiscard]] std::string_view recorded_precision() const;
  void choose_forward();
  void make_parameters(ModuleBuilder& b);
  void make_leaf(ModuleBuilder& b, const std::string& path, std::string_view type, std::size_t& i);
  struct Storages {
    std::vector<Tensor> parameters, buffers;
  };
  [[nodiscard]] Storages make_storages(Tape& tape) const;
  void find_held_parameters();
  void make_tied_heads();
  void find_inputs();
  void look_at_calls();
  /// Throws Error(kUnsupported) where torch.compile is asked for and the program says that it would break the graph.
  void check_compiles() const;
  /// The same of a call that is being traced.
  void check_traced(const RecordedCall& call) const;
  /// A graph begins: what the module holds has no number in it.
  void forget_graph_values() const;
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
  void unbind(BoundArgument& slot, std::vector<Tensor>& values) const;
  void run_layers(const Instance& caller, const BoundLayers& call, const std::vector<Instance>& layers,
                  std::vector<Tensor>& values) const;
  void run_loop(const Instance& instance, const BoundLoop& loop, std::vector<Tensor>& values) const;
  void run_checkpoint(const Instance& caller, const BoundCheckpoint& call, std::vector<Tensor>& values) const;
  [[nodiscard]] Tensor run_called(const Instance& instance, const KeptTensors& given,
                                  std::vector<Tensor>* others) const;
  void run_custom(const Instance& caller, const BoundCustom& call, std::vector<Tensor>& values) const;
  void check_backward(const BoundCustom& call, const std::vector<const Tensor*>& inputs, bool differentiated) const;
  void run_backward(const CustomPass& pass, BackwardCall& call) const;
  static void custom_backward(BackwardCall& call);

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

/// `name` seen from the module `path`; "/" begins one from the root.
[[nodiscard]] std::string full_name(const std::string& path, const std::string& name);

/// nn.LSTM and its like, whose weights lie in one storage (RNNBase.flatten_parameters).
[[nodiscard]] bool is_recurrent(std::string_view type);

}  // namespace memcalc
