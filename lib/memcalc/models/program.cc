// A recorded program (spec/program.h, docs/programs.md) as a model: its calls are made on the operator table, its
// variables die where Python's did, its layers are those that checkpointing, FSDP and others wrap, its linear layers
// and embeddings the modules that fine-tuning changes.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "memcalc/models/program_model.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {
namespace {

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

bool has(const ProgramForward& forward, std::string_view input) {
  return std::find(forward.inputs.begin(), forward.inputs.end(), input) != forward.inputs.end();
}

/// Whether the Trainer passes the module how many labels a batch has (Trainer.model_accepts_loss_kwargs).
bool takes_number_of_items(const Program& program) {
  return std::any_of(program.forwards.begin(), program.forwards.end(),
                     [](const ProgramForward& each) { return has(each, kNumberOfItems); });
}

/// BoundFunction::deaths: where frames end, or a recomputation stops, the innermost first. A result that the function
/// itself made, of no module within it, is a variable of its own, mostly with the name of an argument.
std::vector<std::int32_t> deaths_in(const ProgramFunction& function) {
  std::vector<std::int32_t> inner, own, outer;
  int depth = 0;
  const auto is_result = [&](std::int32_t value) {
    return std::find(function.results.begin(), function.results.end(), value) != function.results.end();
  };
  for_each_instruction(function.body, [&](const ProgramInstruction& each) {
    if (const auto* module = std::get_if<ProgramModule>(&each)) {
      depth += module->path.empty() ? -1 : 1;
    } else if (const auto* drop = std::get_if<ProgramDrop>(&each)) {
      std::vector<std::int32_t>& deaths = depth > 0 ? inner : outer;
      deaths.insert(deaths.end(), drop->values.begin(), drop->values.end());
    } else if (const auto* call = std::get_if<ProgramCall>(&each); call != nullptr && depth == 0) {
      std::copy_if(call->results.begin(), call->results.end(), std::back_inserter(own), is_result);
    }
  });
  inner.insert(inner.end(), own.begin(), own.end());
  inner.insert(inner.end(), outer.begin(), outer.end());
  return inner;
}

}  // namespace

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
      // The scripts' steps of denoisers are recorded by no command.
      const bool records_anew = symbol.name == "batch" && program_->task != kDenoisingTask;
      const std::string anew =
          fmt::format("; accepted: {}, or a program recorded with {} (python -m memcalc.record --batch {})",
                      symbol.recorded, size, size);
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: {} is {} in this program, and no other: {}{}", program_->name, symbol.name,
                              symbol.recorded, symbol.fixed, records_anew ? anew : ""));
    }
    if (size % symbol.multiple != 0) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: {} must be a multiple of {}", program_->name, symbol.name, symbol.multiple));
    }
    if (size < symbol.minimum) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: {} must be at least {}", program_->name, symbol.name, symbol.minimum));
    }
    if (symbol.maximum > 0 && size > symbol.maximum) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: {} must be at most {}", program_->name, symbol.name, symbol.maximum));
    }
    binding_.sizes.set(symbol.name, size / symbol.unit);
  }
}

/// The types in which the parameters are when the forward pass runs, and which it computes in.
void ProgramModel::bind_dtypes() {
  // prepare_model_for_kbit_training: what is not quantised becomes float32, and so what runs between the products.
  // A denoiser's script casts latents and prompts to the type that the weights had before.
  const bool is_packed = run_.fine_tuning.prepares_for_kbit;
  binding_.inputs = is_packed && program_->task != kDenoisingTask ? DType::kFloat32 : binding_.weights;
  if (is_packed) binding_.weights = DType::kFloat32;
  binding_.compute = binding_.weights;
  if (!is_autocast(run_.precision)) return;
  const DType half = run_.precision == Precision::kAmpBf16 ? DType::kBFloat16 : DType::kFloat16;
  // In the Trainer FSDP2's policy casts the parameters, and DeepSpeed has cast them itself: no region of autocast.
  const bool casts_parameters =
      run_.parallel.data_parallel == DataParallel::kFsdp2 || run_.parallel.framework() == Framework::kDeepSpeed;
  autocasts_ = !(run_.uses_trainer() && casts_parameters);
  binding_.compute = half;
  if (!autocasts_) binding_.weights = binding_.inputs = half;
}

/// The precision in whose recording the run's calls are.
std::string_view ProgramModel::recorded_precision() const {
  constexpr std::string_view kOn16Bits = "autocast_bfloat16";
  const bool on_16_bits = binding_.weights != DType::kFloat32;
  if (!autocasts_) return on_16_bits ? "bfloat16" : "float32";
  const auto has_it = [&](std::string_view precision) {
    return std::any_of(program_->forwards.begin(), program_->forwards.end(), [&](const ProgramForward& each) {
      return std::find(each.precisions.begin(), each.precisions.end(), precision) != each.precisions.end();
    });
  };
  // A packed base was loaded in 16 bits; what prepare_model_for_kbit_training made float32 are norms and biases.
  const bool was_16_bits =
      on_16_bits || binding_.inputs != DType::kFloat32 || (run_.fine_tuning.prepares_for_kbit && !has_it("autocast"));
  return was_16_bits && has_it(kOn16Bits) ? kOn16Bits : "autocast";
}

void ProgramModel::choose_forward() {
  const std::string_view precision = recorded_precision();
  const bool counts = run_.uses_trainer() && takes_number_of_items(*program_);
  const bool masked = run_.padding || std::any_of(program_->forwards.begin(), program_->forwards.end(),
                                                  [](const auto& each) { return !has(each, "attention_mask"); });
  const bool needs_labels = std::none_of(program_->forwards.begin(), program_->forwards.end(),
                                         [](const auto& each) { return !each.training && !has(each, "labels"); });
  const bool traced = is_compiled_whole() && knows_compiled_calls();
  const auto fits = [&](const ProgramForward& each, bool caches, bool told) {
    if (each.training != run_.trains() || each.checkpointing != told) return false;
    if (!(traced ? each.runs_compiled : each.runs_eagerly)) return false;
    if (each.cache && *each.cache != caches) return false;
    const auto holds = [&](const ForwardSize& at) {
      return (binding_.sizes.evaluate(at.symbol) == at.size) == at.is_wanted;
    };
    if (!std::all_of(each.sizes.begin(), each.sizes.end(), holds)) return false;
    // Encoder-decoders take their decoder's input from the labels.
    if (!run_.trains() && has(each, "labels") && !needs_labels) return false;
    if (has(each, kNumberOfItems) != counts) return false;
    if (masked && has(each, "attention_mask") != run_.padding) return false;
    return each.precisions.empty() ||
           std::find(each.precisions.begin(), each.precisions.end(), precision) != each.precisions.end();
  };
  const bool leaves_on = program_->caches_in_trainer || run_.profile.behaviors.trainer_keeps_use_cache;
  const bool kept_on = leaves_on && run_.uses_trainer() && run_.trains() &&
                       run_.checkpointing() == Checkpointing::kNone;  // its layers pass no cache on
  const bool wanted = run_.use_cache || kept_on;
  const auto choose = [&](bool caches, bool told) {
    if (forward_ != nullptr) return;
    const auto found = std::find_if(program_->forwards.begin(), program_->forwards.end(),
                                    [&](const ProgramForward& each) { return fits(each, caches, told); });
    if (found != program_->forwards.end()) forward_ = &*found;
  };
  if (run_.trains() && run_.checkpointing() != Checkpointing::kNone) choose(wanted, true);
  choose(wanted, false);
  choose(!wanted, false);
  if (forward_ == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} was not recorded{} in {} mode{}{} in {} (memcalc.record, variants)", program_->name,
                            traced ? " as torch.compile traces it" : "", run_.trains() ? "train" : "eval",
                            run_.padding ? " with a mask" : "", counts ? " with the Trainer's num_items_in_batch" : "",
                            precision));
  }
  breaks_graph_ = is_compiled_whole() && forward_->graphs.has_value();
}

void ProgramModel::bind_functions() {
  placed_ = &program_->places.of(*program_, forward_->function);
  functions_.resize(program_->functions.size());
  for (const std::int32_t number : placed_->functions) {
    const ProgramFunction& function = program_->functions.at(number);
    auto bound = std::make_unique<BoundFunction>();
    bound->function = &function;
    bound->deaths = deaths_in(function);
    bound->body = bound_body(function.body, binding_, program_->name, number == placed_->main.function);
    if (forward_->graphs) {
      relate_graphs(bound->body, function.results, program_->name);
      bound->is_graph = is_one_graph(bound->body);
    }
    functions_[static_cast<std::size_t>(number)] = std::move(bound);
  }
  if (placed_->has_regions && forward_->checkpointing && run_.checkpointing() == Checkpointing::kFull &&
      run_.training().checkpoint_every == 1) {
    run_.training().checkpointing = Checkpointing::kNone;  // its regions are what is checkpointed
  }
  if (placed_->has_regions && run_.trains() && run_.checkpointing() != Checkpointing::kNone) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: the module checkpoints regions of its own; accepted: --checkpointing none{}",
                            program_->name, forward_->checkpointing ? ", full" : ""));
  }
  layer_paths = placed_->layers;
}

/// Which tensors of a batch the forward pass gets.
void ProgramModel::find_inputs() {
  for (const ProgramTensor& input : program_->inputs) {
    if (!has(*forward_, input.name) || input.name == kNumberOfItems) continue;
    const auto known = std::find_if(std::begin(kKnownInputs), std::end(kKnownInputs),
                                    [&](const KnownInput& each) { return each.name == input.name; });
    const bool is_known = known != std::end(kKnownInputs);
    DType dtype = input.dtype == "weights" ? binding_.inputs : binding_.dtype(input.dtype);
    if (run_.uses_trainer() && is_floating(dtype)) dtype = DType::kFloat32;  // as a dataset has them
    inputs.push_back({input.name, binding_.shape(input.shape, input.name), dtype, is_known ? known->member : nullptr});
  }
  for (const std::string& keyword : bound(placed_->main).function->keywords) {
    if (keyword == kNumberOfItems) {
      inputs_.push_back({.member = &Batch::number_of_items});
      continue;
    }
    const auto found =
        std::find_if(inputs.begin(), inputs.end(), [&](const ModelInput& each) { return each.name == keyword; });
    if (found == inputs.end()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: there is no input {}", program_->name, keyword));
    }
    const bool converts = run_.uses_trainer() && is_half(binding_.weights) &&
                          turns_into_weights_type(static_cast<std::int32_t>(inputs_.size()), keyword);
    inputs_.push_back({found->member, static_cast<std::size_t>(found - inputs.begin()), converts});
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
  bind_functions();
  find_inputs();
  if (run.trains()) make_residents(b.tape);
  accepts_loss_kwargs = takes_number_of_items(*program_);
  loss_shifts_labels = program_->loss_shifts_labels;
  look_at_calls();
  check_compiles();
  is_encoder_decoder = run.task == Task::kSeq2Seq || run.task == Task::kSpeech;
}

void ProgramModel::look_at_calls() {
  uses_sdpa = false;
  const auto look_at = [&](const auto& self, const std::vector<BoundInstruction>& body) -> void {
    for (const BoundInstruction& each : body) {
      if (const auto* call = std::get_if<BoundCall>(&each)) {
        uses_sdpa |= call->row != nullptr && call->row->name == "scaled_dot_product_attention";
      } else if (const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
        self(self, (*loop)->body);
      }
    }
  };
  for (const auto& function : functions_) {
    if (function) look_at(look_at, function->body);
  }
}

bool ProgramModel::turns_into_weights_type(std::int32_t value, std::string_view input) const {
  const bool of_weights = std::any_of(program_->inputs.begin(), program_->inputs.end(), [&](const ProgramTensor& each) {
    return each.name == input && each.dtype == "weights";
  });
  if (!of_weights) return false;
  const ProgramCall* first = nullptr;
  for_each_instruction(bound(placed_->main).function->body, [&](const ProgramInstruction& each) {
    const auto* call = std::get_if<ProgramCall>(&each);
    if (first != nullptr || call == nullptr) return;
    const bool takes = std::any_of(call->positional.begin(), call->positional.end(), [&](const ProgramArgument& given) {
      return given.kind == ProgramArgument::Kind::kValue && given.integer == value;
    });
    if (takes) first = call;
  });
  return first != nullptr && first->function != "to" && first->function != "type";
}

ModelOutput ProgramModel::forward(const Batch& batch) {
  graphs_run_ = 0;
  run_residents();
  // The module makes it once; here each pass makes it anew, in the place of what is let go of.
  for (Tensor& each : kept_) each.reset();
  kept_.clear();
  const BoundFunction& main = bound(placed_->main);
  Variables variables(main);
  std::vector<Tensor>& values = variables.values();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const BoundInput& input = inputs_[i];
    values[i] = input.member != nullptr ? batch.*input.member : batch.others[input.place];
    const bool converts = input.converts && values[i].defined() && values[i].dtype() == DType::kFloat32;
    if (converts) values[i] = to_dtype(values[i], binding_.weights);
  }
  // The module itself may hold parameters (a token of classes), as its modules do.
  const HeldParameters* own = held(placed_->main.module, placed_->main.used);
  ModuleHooks* hooks = tape_.modes.module_hooks;
  if (own != nullptr) (void)hooks->before_module(own, own->tensors, {});  // no input of a model is differentiated
  run_body(placed_->main, main.body, values);
  for (const std::vector<std::int32_t>* made : {&forward_->loss, &forward_->outputs}) {
    if (own == nullptr || made->empty()) continue;
    hooks->after_module(std::exchange(own, nullptr), values[static_cast<std::size_t>(made->front())]);
  }
  for (const std::int32_t number : forward_->held) {
    const auto place = static_cast<std::size_t>(number);
    if (place < values.size() && values[place].defined()) kept_.push_back(values[place]);
  }
  ModelOutput output;
  if (!forward_->loss.empty()) output.loss = std::move(values[static_cast<std::size_t>(forward_->loss.front())]);
  for (auto at = forward_->outputs.begin(); at != forward_->outputs.end(); ++at) {
    const bool is_shared = std::find(at + 1, forward_->outputs.end(), *at) != forward_->outputs.end();
    Tensor& value = values[static_cast<std::size_t>(*at)];
    Tensor tensor = is_shared ? value : std::move(value);
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

/// A number for the second time is that of a variable that shares the first one's tensor and is assigned behind the
/// variables between them.
void ProgramModel::drop_replaced(const std::vector<Tensor>& values) const {
  const std::vector<std::int32_t>& numbers = forward_->outputs;
  const auto is_made = [&](std::int32_t number) { return values[static_cast<std::size_t>(number)].defined(); };
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Tensor& before = (*of_step_before_)[i];
    if (!before.defined() || !is_made(numbers[i])) continue;
    const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(i);
    const bool shares = std::find(numbers.begin(), end, numbers[i]) != end;
    if (!shares || std::all_of(numbers.begin(), end, is_made)) before.reset();
  }
}

std::unique_ptr<Model> build_program(const ProgramSpec& spec, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<ProgramModel>(spec.program, run, builder);
}

}  // namespace memcalc
