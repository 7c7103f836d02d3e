// Program: the forward pass of any torch module as it was recorded (docs/programs.md): calls of torch functions on
// numbered values, deaths of Python variables, modules entered and left. Plain values; models/program.cc executes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/json_reader.h"

namespace memcalc {

/// An argument of a call. Which members count follows from `kind`.
struct ProgramArgument {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,       // integer: 0 or 1
    kInteger,    // integer
    kNumber,     // number
    kText,       // text
    kDType,      // text: "float32", "weights" (that of the parameters), "compute" (16-bit under autocast)
    kSymbolic,   // text: an integer as an expression in the program's symbols, "2*batch*sequence"
    kValue,      // integer: the number of a value of the function
    kParameter,  // integer: place in ProgramFunction::parameters
    kSlice,      // items: start, stop, step
    kEllipsis,
    kList,     // items
    kUnbound,  // items: a value and a dimension, whose parts are a list
    kRun,      // in a loop: integer + step * the number of the run, from 0
    kObject,   // something else of Python's, which no operator of the table looks at
  };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;
  std::int64_t step = 0;
  double number = 0;
  std::string text{};
  std::vector<ProgramArgument> items{};
};

using ProgramKeywords = std::vector<std::pair<std::string, ProgramArgument>>;

/// A result whose size depends on values: what it was under the policies of the recording.
struct ProgramResult {
  std::vector<ProgramArgument> shape;
  std::string dtype;  // as ProgramArgument::kDType
};

/// torch.nn.functional.linear(x, weight, bias): `function` is the last part of the name.
struct ProgramCall {
  std::string function;
  std::vector<ProgramArgument> positional;
  ProgramKeywords keywords;
  std::vector<std::int32_t> results;
  std::vector<ProgramResult> given;  // none: sizes follow from the arguments'
};

/// Python variables that die, in this order.
struct ProgramDrop {
  std::vector<std::int32_t> values;
};

/// Calls of layers (what may be checkpointed, sharded or compiled by itself), one after the other: `count` of them,
/// each with the first result of the one before as its first argument. `path` has the index in place of "{}".
struct ProgramLayers {
  std::int32_t function = 0;
  std::string path;
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::vector<ProgramArgument> positional;
  ProgramKeywords keywords;
  std::vector<std::int32_t> results;  // of the first; of each further one larger by as many
  bool drops = false;                 // after each layer but the last its first argument dies
};

/// A module begins or, without a path, ends.
struct ProgramModule {
  std::string path;  // relative to the function's
  std::string type;
};

/// A region of torch.autocast or of torch.no_grad() and enable_grad() begins or ends.
struct ProgramRegion {
  enum class Kind : std::uint8_t { kAutocast, kGradients };
  Kind kind = Kind::kAutocast;
  bool begins = true;
  bool enabled = false;
  std::string dtype;  // of autocast; empty: its own
};

struct ProgramInstructions;

/// A loop of Python: the instructions `count` times. Before each run but the first, value `first` of a pair becomes its
/// value `second`, which is dead.
struct ProgramLoop {
  ProgramArgument count;
  std::vector<std::pair<std::int32_t, std::int32_t>> carries;
  std::shared_ptr<ProgramInstructions> body;
};

/// A custom autograd.Function: its forward runs without gradients, and its backward where it stands in the graph.
struct ProgramCustom {
  std::string name;
  std::int32_t function = 0;
  std::vector<ProgramArgument> arguments;
  std::vector<std::int32_t> results;
  /// Tensors of ctx.save_for_backward, then those of other attributes of ctx: kInteger is a place among the results of
  /// `function`, kParameter a parameter.
  std::vector<ProgramArgument> saved, attributes;
  std::int32_t backward = -1;           // its function; -1: there is none
  std::vector<ProgramArgument> inputs;  // whose gradient each of backward's results is, as `arguments`
  std::vector<bool> needs;              // which of these needed it; empty: the function does not ask
  std::vector<bool> differentiable;     // of `results`
  bool materializes = true;             // zeros in place of gradients that did not arrive
};

/// A region of torch.utils.checkpoint: backward runs its function once more.
struct ProgramCheckpoint {
  bool reentrant = false;
  std::int32_t function = 0;
  std::vector<ProgramArgument> positional;
  ProgramKeywords keywords;  // and what the function holds
  std::vector<std::int32_t> results;
};

/// A graph of torch.compile begins or, with what Dynamo stopped at, ends. Outside of graphs the calls are eager ones.
struct ProgramGraph {
  bool begins = true;
  std::string why;
};

using ProgramInstruction = std::variant<ProgramCall, ProgramDrop, ProgramLayers, ProgramModule, ProgramRegion,
                                        ProgramLoop, ProgramCustom, ProgramCheckpoint, ProgramGraph>;

struct ProgramInstructions {
  std::vector<ProgramInstruction> items;
};

/// Calls `visit` for each instruction, those of loops, too.
template <typename Visit>
void for_each_instruction(const ProgramInstructions& body, const Visit& visit) {
  for (const ProgramInstruction& each : body.items) {
    visit(each);
    if (const auto* loop = std::get_if<ProgramLoop>(&each)) for_each_instruction(*loop->body, visit);
  }
}

struct ProgramFunction {
  std::int32_t inputs = 0;  // values 0 … inputs - 1, by position; those of `keywords` follow
  std::vector<std::string> keywords;
  std::vector<std::string> parameters;  // and buffers, by name relative to the path of the module
  ProgramInstructions body;
  std::vector<std::int32_t> results;
  std::int32_t values = 0;  // numbers used
};

/// The functions of a program, each read when it is first asked for: a program has those of every way in which it was
/// recorded, and a run takes one of these ways. A copy has its own, which may be changed. Threads may share one that
/// nobody changes.
class ProgramFunctions {
 public:
  /// Reads function `i`. Throws Error(kInput) where it is damaged.
  using Read = std::function<ProgramFunction(std::size_t i)>;

  ProgramFunctions() = default;
  ProgramFunctions(std::size_t count, Read read) : read_(std::move(read)), functions_(count) {}
  ProgramFunctions(const ProgramFunctions& other) { *this = other; }
  ProgramFunctions& operator=(const ProgramFunctions& other);

  [[nodiscard]] std::size_t size() const { return functions_.size(); }
  /// Throws as `Read` does, and where there is no function `i`.
  [[nodiscard]] const ProgramFunction& at(std::int64_t i) const { return function(i); }
  [[nodiscard]] ProgramFunction& at(std::int64_t i) { return function(i); }

 private:
  ProgramFunction& function(std::int64_t i) const;

  Read read_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<ProgramFunction>> functions_;
};

struct ProgramSymbol {
  std::string name;  // "batch", "sequence", "image", …
  std::int64_t recorded = 0;
  std::int64_t multiple = 1;
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;  // 0: none
  std::int64_t unit = 1;     // of the run's size, in which these four are: the pixels of a latent
  std::string fixed;         // why only the recorded size works; empty: others do
};

/// A size: a number, or an expression in the symbols.
struct ProgramTensor {
  std::string name;
  std::vector<ProgramArgument> shape;
  std::string dtype;  // as ProgramArgument::kDType
  bool frozen = false;
  bool on_host = false;  // a buffer or a constant that is on no card
  // Of a parameter, as relate_parts() finds them.
  std::int32_t module = 0;  // its module: see Program::module_path()
  std::string module_type;  // its class
  /// The weight of a module that is called as a whole. Of nn.Linear and Conv1D the bias follows as the next parameter,
  /// where there is one.
  enum class Leaf : std::uint8_t { kNone, kLinear, kConv1D, kEmbedding } leaf = Leaf::kNone;
  bool has_bias = false;  // of a leaf
  bool decays = true;     // under the Trainer
};

/// The name `module`.… of a parameter that is another's.
struct TiedTensor {
  std::int32_t module = 0;
  std::int32_t parameter = 0;
};

/// nn.Linear whose weight is another module's, or frozen: the places of its parameters; -1: it has no bias.
struct TiedHead {
  std::int32_t module = 0;
  std::int32_t weight = 0;
  std::int32_t bias = -1;
};

/// What the module's construction did with storages: it made that of the parameter or buffer `name`, or, without a
/// name, one that the module does not keep (of a layer that was copied, nn.TransformerEncoder's), or such ones died.
struct ProgramConstruction {
  std::string name;
  std::vector<ProgramArgument> shape{};  // of one that is not kept
  std::string dtype{};
  std::vector<std::int32_t> freed{};  // numbers of those, as they were made
};

/// A storage that the module's construction made.
struct ConstructedTensor {
  bool is_buffer = false;
  std::size_t place = 0;     // among parameters or buffers
  bool is_replaced = false;  // by another's, once it is tied
  std::int32_t other = -1;   // in place of these, an item of Program::construction without a name
};

/// A size at which alone a forward pass is this one, or at which it is another.
struct ForwardSize {
  std::string symbol;
  std::int64_t size = 0;
  bool is_wanted = true;
};

/// What runs: forward(**inputs) in train() or eval(), with or without a cache of keys and values.
struct ProgramForward {
  bool training = true;
  std::optional<bool> cache;            // absent: there is no choice
  bool checkpointing = false;           // what the module runs when it is told that layers are checkpointed
  bool runs_eagerly = true;             // and
  bool runs_compiled = false;           // as torch.compile traces it, either of which may be all that it is
  std::optional<std::int64_t> graphs;   // of torch.compile, where Dynamo breaks it; absent: it is one
  std::vector<std::string> inputs;      // names
  std::vector<std::string> precisions;  // "float32", "bfloat16", "autocast", "autocast_bfloat16"; empty: all
  std::vector<ForwardSize> sizes;       // all of these hold; empty: at any size
  std::int32_t function = 0;
  std::vector<std::int32_t> loss;     // the value of the loss; empty: there is none
  std::vector<std::int32_t> outputs;  // what else the caller is given, in the order in which it dies
  std::vector<std::int32_t> held;     // what the module keeps of the pass for the next one
  std::size_t cached = 0;             // the last of these are a cache's, which is no container of tensors to accelerate
};

class FlatJson;  // spec/flat_json.h
struct ModelSpec;
struct Program;
struct PlacedForward;  // spec/program_places.h

/// What the functions of a program name, found when it is first asked for. A copy of a program, which may be changed,
/// finds it anew. Threads may share it.
class ProgramPlaces {
 public:
  ProgramPlaces() = default;
  ProgramPlaces(const ProgramPlaces& /*other*/) {}
  ProgramPlaces& operator=(const ProgramPlaces& other);

  /// Of the forward pass that is `function`. Throws Error(kInput) where a function names what `program`, whose places
  /// these are, does not have.
  [[nodiscard]] const PlacedForward& of(const Program& program, std::int32_t function) const;

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::int32_t, std::shared_ptr<const PlacedForward>> found_;
};

/// A model of a diffusion pipeline beside the network that is trained: its autoencoder, a text encoder.
struct PipelinePart {
  bool in_float32 = false;   // whatever the network's type: the scripts keep some autoencoders so
  bool is_resident = false;  // the loop keeps it on the card
  std::shared_ptr<const Program> program;
};

struct Program {
  std::string name;
  std::string source;  // the class, and the versions it was recorded under
  std::string task;
  bool loss_shifts_labels = false;          // Trainer._loss_shifts_labels
  std::optional<std::int64_t> hidden_size;  // of its configuration, as trainer_config_finalize reads it
  bool caches_in_trainer = false;  // the Trainer's config.use_cache = False does not reach the part that has the cache
  std::vector<ProgramSymbol> symbols;
  std::vector<ProgramTensor> inputs;
  std::vector<ProgramTensor> parameters;  // in the order of module.parameters()
  std::vector<ProgramTensor> buffers;
  bool converted = false;  // its class takes no dtype: it is made in float32, and module.to() gives it another
  std::vector<ProgramConstruction> construction;          // both in the order in which they are made; empty: as above
  std::vector<ProgramTensor> constants;                   // tensors that the module holds elsewhere
  std::vector<std::pair<std::string, std::string>> tied;  // name, the parameter it is
  std::vector<std::pair<std::string, std::string>> modules;  // path, class: of those that hold parameters
  ProgramFunctions functions;
  std::vector<ProgramForward> forwards;
  std::vector<std::string> assumptions;
  std::string not_compiled;  // why it was not recorded as torch.compile traces it; empty: nothing is known

  // Of a denoising network.
  std::vector<std::string> lora_targets;  // the default of its script; empty: every linear layer
  std::vector<PipelinePart> parts;

  // As relate_parts() finds them.
  std::vector<std::string> other_modules;      // paths of modules that hold parameters and are none of `modules`
  std::vector<TiedTensor> tied_tensors;        // of `tied`, those whose parameter there is
  std::vector<TiedHead> tied_heads;            // in the order of `modules`
  std::vector<ConstructedTensor> constructed;  // `construction`
  bool constructs_all = false;                 // every parameter is among them
  std::vector<ConstructedTensor> conversion;   // what module.to() converts, or moves, in its order
  ProgramPlaces places;

  /// Of `modules`, then of `other_modules`.
  [[nodiscard]] const std::string& module_path(std::int32_t module) const {
    const auto i = static_cast<std::size_t>(module);
    return i < modules.size() ? modules[i].first : other_modules[i - modules.size()];
  }
  [[nodiscard]] std::size_t module_count() const { return modules.size() + other_modules.size(); }
};

/// "encoder.fc1" of "encoder.fc1.weight".
[[nodiscard]] std::string module_of(const std::string& name);

/// `name` seen from the module `path`; "/" begins one from the root.
[[nodiscard]] std::string full_name(const std::string& path, const std::string& name);

/// Fills what follows from the rest of a program, once for all its runs.
void relate_parts(Program& program);

/// ModelSpec::model_type of a program that is no model of ours by name.
inline constexpr const char* kProgramType = "program";

/// Program::task of a denoising network whose forward pass is a training step of diffusers' LoRA scripts, from latents
/// and encoded prompts to the loss.
inline constexpr const char* kDenoisingTask = "denoising";

/// Whether the model is such a program.
[[nodiscard]] bool is_denoiser(const ModelSpec& model);

/// `path` with `index` in place of "{}".
[[nodiscard]] std::string path_of_layer(const std::string& path, std::int64_t index);

/// Values of the symbols of one run.
class SymbolValues {
 public:
  void set(std::string name, std::int64_t value) { values_.emplace_back(std::move(name), value); }
  /// `expression` of numbers, symbols, + - * // and parentheses. Throws Error(kInput) for anything else.
  [[nodiscard]] std::int64_t evaluate(std::string_view expression) const;

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
};

/// Whether an object is a program: "format": "memcalc.program".
[[nodiscard]] bool is_program_file(const JsonObject& json);

/// The text of a file, *.json or *.json.gz. Throws Error(kInput) where it cannot be read.
[[nodiscard]] std::string read_program_text(const std::string& path);

/// Throws Error(kInput) with the place of what is wrong; functions are read, and looked through, as they are used.
/// `file`: for messages.
[[nodiscard]] Program read_program(std::shared_ptr<const FlatJson> json, const std::string& file);
[[nodiscard]] Program read_program(const JsonObject& json);
/// `text`: of the file, as read_program_text() gives it.
[[nodiscard]] Program read_program(std::string text, const std::string& file);

/// Throws Error(kInput) where a function that the forward pass `function` reaches does not fit those that it calls, or
/// calls itself: execution would not end.
void check_forward(const Program& program, std::int32_t function);

}  // namespace memcalc
