// MIRRORS(trl, "experimental/utils.py", "1.16.0")
#include "memcalc/train/step.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/measured_families.h"
#include "memcalc/models/model.h"
#include "memcalc/models/packed_experts.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/native_format.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/every_step.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/loading.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/loop_megatron.h"
#include "memcalc/train/loop_pipeline.h"
#include "memcalc/train/measured_modes.h"
#include "memcalc/train/offloaded_weights.h"
#include "memcalc/train/optimizers/offload.h"
#include "memcalc/train/optimizers/rule.h"
#include "memcalc/train/step_patterns.h"
#include "memcalc/train/swapped_blocks.h"
#include "memcalc/train/version_notes.h"

namespace memcalc {

namespace {

DType weights_dtype(const RunSpec& run) {
  if (run.weights_dtype) return *run.weights_dtype;
  switch (run.precision) {
    case Precision::kBf16: return DType::kBFloat16;
    case Precision::kFp16: return DType::kFloat16;
    default: return DType::kFloat32;
  }
}

/// TRL's own: a copy of the model as it was loaded. Trainers that generate read it from the checkpoint themselves
/// (create_model_from_path); the others, where they are given none beside a model that was read. Online DPO copies the
/// model on the card (experimental/utils.py, create_reference_model), and its copy does not train, so that autocast
/// keeps no casts of it.
struct ReferenceModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<ParallelWrapper> wrapper;  // null where each rank has it whole
  BlockId warm_up = kNoBlock;                // of its reading
};

bool has_reference_model(const RunSpec& run) { return run.uses_trl() && run.training().reference == Reference::kModel; }

/// Frameworks that take a model from the host and share it out, or cast it there: FSDP and DeepSpeed.
bool prepares_on_host(const RunSpec& run) {
  const DataParallel mode = run.parallel.data_parallel;
  return mode == DataParallel::kFsdp1 || mode == DataParallel::kFsdp2 ||
         run.parallel.framework() == Framework::kDeepSpeed;
}

/// From a checkpoint; online DPO copies its reference.
bool reads_reference(const RunSpec& run) {
  return has_reference_model(run) && run.training().loop != Loop::kTrlOnlineDpo &&
         (run.generates() || loads_later(run));
}

/// Before trl 1.16 create_model_from_path knows nothing of a model object beside which it reads the reference: dtype
/// float32, attention as config.json has it. LLaMA-Factory reads its own.
bool reads_in_float32(const Tape& tape, const RunSpec& run) {
  return reads_reference(run) && !run.training().whole_logits && !tape.behaviors.reference_is_as_policy;
}

/// trl 1.16, models/utils.py: prepare_fsdp shards the whole reference as one unit, by FSDP1 layer by layer;
/// prepare_deepspeed shares it out under ZeRO-3, and otherwise (stage 0) leaves it whole, in DeepSpeed's type.
ReferenceModel make_shared_reference(Tape& tape, const ModelSpec& spec, const RunSpec& of_reference, const RunSpec& run,
                                     std::int64_t rank) {
  const bool in_half = (run.parallel.framework() == Framework::kDeepSpeed && run.precision == Precision::kAmpBf16) ||
                       (run.training().reference_in_half && !reads_in_float32(tape, run));
  ReferenceModel reference{
      .model = build_model(spec, of_reference, tape, in_half ? DType::kBFloat16 : weights_dtype(of_reference)),
      .wrapper = {}};
  const DataParallel mode = run.parallel.data_parallel;
  const bool takes_from_host = mode == DataParallel::kDsZero3 || mode == DataParallel::kFsdp1;
  if (!takes_from_host) move_to_card(tape, *reference.model);
  if (takes_from_host || mode == DataParallel::kFsdp2) {
    reference.wrapper = make_reference_wrapper(tape, run, rank);
    reference.wrapper->wrap_reference(*reference.model);
  }
  return reference;
}

/// trl 1.16: Trainer.__init__, which takes a model from the host to the card, comes before create_model_from_path of
/// the reference.
bool moves_before_reference(const RunSpec& run) {
  return reads_reference(run) && !prepares_on_host(run) && run.training().loading == ModelLoading::kHost;
}

ReferenceModel make_reference(Tape& tape, const ModelSpec& spec, const RunSpec& run, std::int64_t rank) {
  if (!has_reference_model(run)) return {};
  const bool is_copied = run.training().loop == Loop::kTrlOnlineDpo;
  const bool is_read = reads_reference(run);
  RunSpec of_reference = run;
  of_reference.fine_tuning = {};
  of_reference.training().loading = is_read ? ModelLoading::kDeviceMap : ModelLoading::kConfig;
  if (reads_in_float32(tape, run)) {
    of_reference.weights_dtype = DType::kFloat32;
    of_reference.attention = is_eager_in(spec, tape.behaviors) ? Attention::kEager : Attention::kSdpa;
  }
  // KTOTrainer says nothing of use_cache, and the Trainer switches it off in the model that trains alone.
  if (run.training().loop == Loop::kTrlKto && !run.training().whole_logits &&
      tape.behaviors.preference_scores == PreferenceScores::kLogits) {
    of_reference.use_cache = true;
  }
  if (prepares_on_host(run)) {
    of_reference.training().loading = ModelLoading::kHost;
    return make_shared_reference(tape, spec, of_reference, run, rank);
  }
  ReferenceModel reference{.model = build_model(spec, of_reference, tape, weights_dtype(of_reference)), .wrapper = {}};
  if (is_copied) {
    for (const Parameter& each : reference.model->parameters) tape.autograd.set_trainable(each.tensor, false);
  }
  if (!is_read) return reference;
  if (tape.processes > 1) {
    move_to_card(tape, *reference.model);  // device_map=None
  } else {
    reference.warm_up = load_on_card(tape, *reference.model, spec.model_type);
  }
  return reference;
}

Bytes bytes_of(const Model& model) {
  Bytes sum = 0;
  for (const Parameter& each : model.parameters) sum = checked_add(sum, each.tensor.bytes());
  return sum;
}

/// "2.11"
std::string torch_of(const Profile& profile) {
  const Version& torch = profile.version(Software::kTorch);
  return std::to_string(torch.major) + "." + std::to_string(torch.minor);
}

/// Which attention kernel SDPA took, as the kernels of the run show.
/// PyTorch keeps cuDNN's graph of a backward pass by the shapes and strides of query, key and value
/// (MHACacheKeyWrapper, aten/src/ATen/native/cudnn/MHA.cpp), not by the gradient's strides. Of these classes blocks of
/// one stream hand in a slice of a concatenation, those of two streams whole rows.
bool mixes_layouts_of_gradients(const ModelSpec& spec) {
  if (!is_denoiser(spec)) return false;
  const std::string& source = spec.architecture.as<ProgramSpec>().program->source;
  return source.find("FluxTransformer2DModel") != std::string::npos ||
         source.find("Flux2Transformer2DModel") != std::string::npos;
}

void tell_attention_kernel(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device, SymbolicRun& result) {
  if (run.attention == Attention::kFlash) {
    result.assumptions.emplace_back("flash attention allocates as PyTorch's own flash kernels do (not validated)");
    if (run.padding) result.not_modelled.emplace_back("the copies that flash attention makes to take padding out");
    return;
  }
  if (run.attention != Attention::kSdpa) return;
  std::string_view chosen = "the math (unfused)";
  for (const Kernel& kernel : result.kernels) {
    if (kernel.kind == KernelKind::kCudnnAttention) chosen = "cuDNN's";
    if (kernel.kind == KernelKind::kFlashAttention) chosen = "the flash";
    if (kernel.kind == KernelKind::kEfficientAttention) chosen = "the memory-efficient";
  }
  result.assumptions.push_back("sdpa takes " + std::string(chosen) + " kernel, as torch " + torch_of(run.profile) +
                               " does on " + device.name +
                               (device.validated ? "" : " by its rules (not validated on this card)"));
  if (chosen == "cuDNN's" && run.trains() && mixes_layouts_of_gradients(spec)) {
    result.not_modelled.emplace_back(
        "that this backward pass is wrong or stops on such a card: PyTorch takes one graph of cuDNN's attention for "
        "gradients of two layouts; with torch.backends.cuda.enable_cudnn_sdp(False) the flash kernel runs "
        "(docs/diffusion.md)");
  }
}

void tell_about_optimizer(const RunSpec& run, SymbolicRun& result) {
  const Training& training = run.training();
  const OptimizerRule& rule = rule_of(training.optimizer);
  if (training.offload_optimizer) {
    result.assumptions.emplace_back(
        "the optimizer is torchao's CPUOffloadOptimizer (torchao/optim/cpu_offload.py): fused AdamW on the host, "
        "tensors under 4096 elements on the card");
    if (training.offload_gradients) {
      result.not_modelled.emplace_back(
          "how long a gradient's memory waits for its copy to the host: here it is free at once");
    }
  }
  if (!rule.is_measured) {
    result.assumptions.push_back("optimizer " + std::string(name_of(training.optimizer)) + " follows its source, " +
                                 rule.source + " (not validated)");
  }
  if (result.managed_bytes > 0) {
    result.assumptions.emplace_back(
        "paged states stay on the card where there is room; what finds none moves to the host, and the step waits");
  }
}

/// `whole_shapes`: of the parameters before a wrapper replaced them; empty where none did.
std::vector<ParameterInfo> parameters_of(const Model& model, const std::vector<Shape>& whole_shapes,
                                         const ParallelWrapper* wrapper) {
  std::vector<ParameterInfo> parameters;
  for (const Parameter& parameter : model.parameters) {
    const std::size_t i = parameters.size();
    const Shape held = parameter.tensor.shape();
    const Shape& shape = whole_shapes.empty() ? held : whole_shapes[i];
    parameters.push_back({.name = parameter.name,
                          .elements = shape.elements(),
                          .dtype = parameter.tensor.dtype(),
                          .trainable = parameter.tensor.requires_grad(),
                          .shape = shape,
                          .is_embedding = parameter.is_embedding,
                          .held = held,
                          .is_updated = wrapper == nullptr || wrapper->updates(parameter)});
  }
  return parameters;
}

/// Adapters stand between the layers' parameters, so names tell which weight is whose.
void say_what_is_packed(const Model& model, const DeviceSpec& device, std::vector<ParameterInfo>& parameters) {
  std::unordered_map<std::string, const QuantizedWeight*> packed;
  for (const auto& layer : model.linear_layers) {
    if (layer->quantized.kind != Quantization::kNone) packed.emplace(layer->name + ".weight", &layer->quantized);
  }
  for (const auto& layer : model.experts) {
    for (const PackedParameter& each : layer->packed) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (model.parameters[i].tensor.impl() != each.parameter.impl()) continue;
        parameters[i].packing = each.weight.kind;
        parameters[i].packed = packed_bytes(each.weight, device);
      }
    }
    if (layer->gate_up_proj.kind == Quantization::kNone) continue;
    for (const auto& [at, matrices] : {std::pair(layer->gate_up_parameter(), &layer->gate_up_proj),
                                       std::pair(layer->down_parameter(), &layer->down_proj)}) {
      parameters[at].packing = matrices->kind;
      parameters[at].packed = packed_bytes(*matrices, device);
    }
  }
  if (packed.empty()) return;
  for (ParameterInfo& parameter : parameters) {
    const auto found = packed.find(parameter.name);
    if (found == packed.end()) continue;
    const QuantizedWeight& weight = *found->second;
    parameter.packing = weight.kind;
    parameter.packed = packed_bytes(weight, device);
  }
}

/// Weights that wait on the host: the card has none of their bytes.
void say_what_is_swapped(const Model& model, SymbolicRun& result) {
  HeldRow row{"swapped blocks", 0, "weights of the blocks to swap, and as much again in staging buffers"};
  for (const auto& layer : model.linear_layers) {
    if (!layer->is_swapped) continue;
    const std::string name = layer->name + ".weight";
    const auto found = std::find_if(result.parameters.begin(), result.parameters.end(),
                                    [&](const ParameterInfo& each) { return each.name == name; });
    if (found == result.parameters.end()) continue;
    row.bytes = checked_add(row.bytes, checked_multiply(found->elements, size_of(found->dtype)));
    found->is_swapped = true;
    found->packed.weight = 0;
  }
  if (row.bytes > 0) result.held_on_host.push_back(row);
}

/// What a long generation leaves out (train/generate.h).
void tell_skipped_tokens(const RunSpec& run, SymbolicRun& result) {
  const Inference* inference = run.inference();
  if (inference == nullptr || !result.kv_cache || inference->new_tokens == 0) return;
  const auto layers = static_cast<std::size_t>(result.kv_cache->layers);
  const std::size_t executed = executed_tokens(inference->new_tokens, layers).size();
  if (executed == static_cast<std::size_t>(inference->new_tokens)) return;
  result.not_modelled.push_back("the tokens between the first and the last of " + std::to_string(executed) +
                                ": allocated is theirs, but the holes that they leave are not, so that reserved memory "
                                "can be more or less (of 8,192 tokens all executed it was more than twice as large)");
}

// Convolutions in TF32 are torch's own default, which the Trainer and diffusers' scripts leave, and float32 in a plain
// loop is taken to switch off. Products run in it where that is asked for.
void set_tf32(KernelLog& kernels, const ModelSpec& spec, const RunSpec& run) {
  kernels.products_in_tf32 = run.precision == Precision::kTf32;
  kernels.convolutions_in_tf32 = kernels.products_in_tf32 || run.uses_trainer() || is_denoiser(spec);
}

void load(Tape& tape, Model& model, const ModelSpec& spec, const RunSpec& run) {
  const bool by_bitsandbytes = is_packed_by_bitsandbytes(run.fine_tuning.quantization);
  if (is_denoiser(spec) && run.trains() && !by_bitsandbytes) {
    load_denoiser(tape, model, run);
  } else if (run.fine_tuning.quantization != Quantization::kNone) {
    load_quantized(tape, model, run, spec.model_type);
  } else if (loads_later(run) && run.training().loading == ModelLoading::kDeviceMap) {
    (void)load_on_card(tape, model, spec.model_type);
  }
}

/// A model of few layers that may tell the steps of a whole one.
class TellingModel {
 public:
  TellingModel(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device)
      : tape_(device, run.profile.behaviors), model_(build_model(spec, run, tape_, weights_dtype(run))) {
    set_tf32(tape_.kernels, spec, run);
    load(tape_, *model_, spec, run);
    reference_ = make_reference(tape_, spec, run, /*rank=*/0);
  }
  ~TellingModel() { tape_.memory.stop(); }
  TellingModel(const TellingModel&) = delete;
  TellingModel& operator=(const TellingModel&) = delete;

  [[nodiscard]] FewLayers layers() { return {tape_, *model_, {.model = reference_.model.get()}}; }

 private:
  Tape tape_;
  std::unique_ptr<Model> model_;
  ReferenceModel reference_;
};

/// The first layer, the last one, and two between them that are each other's neighbours.
constexpr std::int64_t kFewLayers = 4;

/// With so few layers as tell it; nothing where they do not, or would be too many to be worth it.
std::optional<ModelSpec> with_few_layers(const ModelSpec& spec, const RunSpec& run) {
  if (!run.trains() || !run.uses_trainer() || !run.training().lengths || !layers_are_alike(spec)) return std::nullopt;
  const Training& training = run.training();
  if (run.parallel.is_parallel() || run.compiles() || run.generates() || training.skipped_steps > 0) {
    return std::nullopt;
  }
  const std::int64_t layers = kFewLayers * training.checkpoint_every;
  const std::optional<std::int64_t> all = shared_sizes(spec).layers;
  if (!all || *all < 3 * layers || *all % training.checkpoint_every != 0) return std::nullopt;
  ModelSpec few = spec;
  set_layers(few, layers);
  return few;
}

SymbolicRun executed(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device, std::int64_t rank,
                     bool tells_steps) {
  if (!keeps_packed(run.fine_tuning.quantization, device)) {
    return executed(spec, dequantized(run), device, rank, tells_steps);
  }
  if (run.parallel.framework() == Framework::kMegatron) return run_megatron(spec, run, device, rank);
  Tape tape(device, run.profile.behaviors);
  // Its import has multiplied matrices to see what the card can do, before there is a model.
  if (run.fine_tuning.unsloth) tape.memory.use_cublas(false);
  tape.modes.cut_cross_entropy = run.fine_tuning.cut_cross_entropy;
  set_tf32(tape.kernels, spec, run);
  if (run.parallel.data_parallel != DataParallel::kDp) {  // which is one process
    tape.processes = run.parallel.gpus;
    tape.process_index = rank;
  }
  SymbolicRun result;
  result.rank = rank;
  bool uses_sdpa = true;
  const bool pipelined = run.parallel.pipeline > 1;
  {
    // Modules that are split each by itself no longer share a weight.
    const bool unties = pipelined || (run.parallel.sequence_parallel && run.parallel.tensor > 1);
    RunSpec built = run;
    // The model waits on the host, so that what is made of the reference beside it lies where it will.
    const bool is_shared_by_fsdp1 = run.uses_trl() && run.parallel.data_parallel == DataParallel::kFsdp1;
    if (is_shared_by_fsdp1 || (has_reference_model(run) && prepares_on_host(run))) {
      built.training().loading = ModelLoading::kHost;
    }
    const std::unique_ptr<Model> model = build_model(unties ? untied(spec) : spec, built, tape, weights_dtype(run));
    load(tape, *model, spec, run);
    const bool is_packed = run.fine_tuning.quantization != Quantization::kNone;
    const bool is_read = loads_later(run) && run.training().loading == ModelLoading::kDeviceMap;
    if (is_read && !is_packed && has_merged_experts(*model)) {
      result.assumptions.emplace_back(
          "the experts of a layer are put together as soon as they are read (not validated): reading ahead of that "
          "changes what loading reserves");
    }
    const std::unique_ptr<ParallelWrapper> wrapper = pipelined ? nullptr : make_wrapper(tape, run, rank);
    if (wrapper && run.trains() && reads_on_host(run.training().loading)) (void)wrapper->load(*model);
    const bool model_is_prepared = moves_before_reference(run);
    if (model_is_prepared) prepare_model(tape, *model, run);
    const ReferenceModel reference = make_reference(tape, spec, run, rank);
    result.warm_up = reference.warm_up;
    std::vector<Shape> whole_shapes;
    if (pipelined) {
      WrappedStages stages = run_pipeline_loop(tape, *model, spec, run, rank);
      result.parameters_of_model = stages.parameters_of_model;
      result.trainable_of_model = stages.trainable_of_model;
      whole_shapes = std::move(stages.whole_shapes);
      result.assumptions = pipeline_assumptions(run);
      result.assumptions.insert(result.assumptions.end(), stages.assumptions.begin(), stages.assumptions.end());
    } else if (!run.trains()) {
      std::optional<OffloadedWeights> offloaded;
      if (run.parallel.offload_parameters == OffloadTo::kHost) offloaded.emplace(tape, *model);
      const InferenceCalls calls = run_inference(tape, *model, run, spec.model_type);
      if (offloaded) {
        offloaded->check_every_parameter_is_hooked();
        result.held = offloaded->held();
        result.held_on_host = offloaded->held_on_host();
      }
      result.measured_from = calls.second_call;
      result.kv_cache = calls.cache;
    } else if (run.uses_trainer()) {
      std::optional<TellingModel> telling;
      if (const auto few = with_few_layers(spec, run); few && tells_steps) telling.emplace(*few, run, device);
      std::optional<FewLayers> few_layers;
      if (telling) few_layers.emplace(telling->layers());
      result.data_steps = run_trainer_loop(tape, *model, run, wrapper.get(),
                                           {reference.model.get(), reference.wrapper.get(), model_is_prepared},
                                           special_tokens_of(spec.model_type), few_layers ? &*few_layers : nullptr);
    } else {
      run_bare_loop(tape, *model, run, wrapper.get());
    }
    if (wrapper) whole_shapes = wrapper->whole_shapes;
    result.parameters = parameters_of(*model, whole_shapes, wrapper.get());
    if (reference.model) result.reference_bytes = bytes_of(*reference.model);
    if (wrapper) {
      result.assumptions.insert(result.assumptions.end(), wrapper->assumptions.begin(), wrapper->assumptions.end());
      result.held = wrapper->held();
      result.held_on_host = wrapper->held_on_host();
    }
    say_what_is_packed(*model, device, result.parameters);
    say_what_is_swapped(*model, result);
    result.inactive_parameters = model->inactive_parameters;
    result.not_modelled = model->not_modelled;
    result.assumptions.insert(result.assumptions.end(), model->assumptions.begin(), model->assumptions.end());
    uses_sdpa = model->uses_sdpa;
    result.host_copies = tape.memory.host_copies;
    if (run.trains() && run.training().offload_optimizer) result.host_optimizer = host_optimizer_of(model->parameters);
    for (const BatchTensor& each : batch_tensors(*model, run)) {
      result.batch_tensors.push_back(checked_multiply(each.shape.elements(), size_of(each.dtype)));
    }
    result.trace = std::move(tape.memory.trace);
    result.kernels = tape.kernels.take();
    result.managed_bytes = tape.memory.managed_bytes;
    tape.memory.stop();
  }
  if (uses_sdpa) tell_attention_kernel(spec, run, device, result);
  if (spec.model_type == kProgramType) {
    result.assumptions.push_back(spec.name + ": no run of it was compared (not validated)");
  } else if (!is_program(spec) && !is_measured(spec, run.task)) {
    result.assumptions.push_back(measured_as(spec) + " with task " + std::string(name_of(run.task)) +
                                 " follows its source; no run of it was compared (not validated)");
  }
  if (run.trains() && run.parallel.is_parallel() && reads_on_host(run.training().loading)) {
    result.assumptions.emplace_back(
        "loading on each rank's host, and saving on several GPUs, follow their sources; no run with them was compared "
        "(not validated)");
  }
  const DataParallel mode = run.parallel.data_parallel;
  const bool is_compared_under_fsdp1 = run.uses_trl() && !run.generates() && !run.fine_tuning.lora &&
                                       run.training().loop != Loop::kTrlKto && run.training().loop != Loop::kTrlReward;
  if (is_compared_under_fsdp1 && mode == DataParallel::kFsdp1) {
    result.assumptions.emplace_back(
        "of TRL under FSDP1 allocated memory was within 0.3 % in four runs, reserved up to 18 % too high "
        "(docs/jobs.md)");
  } else if (run.uses_trl() && run.parallel.is_parallel() && mode != DataParallel::kDdp) {
    result.assumptions.emplace_back(
        "TRL's head, its reference and its generation under FSDP and DeepSpeed follow their sources; no run of them "
        "was compared (not validated)");
  }
  for (const std::string_view mode : unmeasured_modes(run)) {
    result.assumptions.push_back(std::string(mode) +
                                 " follows its source; no run with it was compared (not validated)");
  }
  tell_skipped_tokens(run, result);
  if (run.trains()) tell_about_optimizer(run, result);
  tell_about_versions(spec, run, device, result);
  if (run.compiles()) {
    result.assumptions.emplace_back(
        "torch.compile is modelled by its partitioner's algorithm and inductor's rules for buffers, near the measured "
        "peaks but not exact (docs/compile.md)");
    result.not_modelled.emplace_back("memory that inductor takes in the first step while it compares kernels");
    const Family* family = family_of(spec);
    if (family != nullptr && family->skips_layers_at_random && run.training().compiled_parts == CompiledParts::kModel) {
      result.assumptions.emplace_back(
          "a random number is read before each layer (LayerDrop), where the graph breaks: Python goes over the layers, "
          "each is a graph, and so is the head with its loss");
    }
    if (run.records_graphs()) {
      result.assumptions.emplace_back(
          "CUDA graphs are warmed up in the first step and recorded in the second, from one private pool; from the "
          "third on activations and gradients are no memory of the allocator, but the pool stays");
      result.not_modelled.emplace_back("what the driver keeps of recorded CUDA graphs");
    }
  }
  if (run.padding && run.uses_trainer() && run.batch_size <= 2) {
    result.assumptions.emplace_back(
        "half of the sequences are padded and shuffled, so some batches have no padding (the first steps here)");
  }
  return result;
}

}  // namespace

SymbolicRun run_every_step(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device) {
  return executed(spec, run, device, 0, false);
}

std::vector<ParameterInfo> parameters_of_run(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device) {
  const bool is_ready_before_steps = run.trains() && !run.uses_trainer() && !run.parallel.is_parallel();
  if (!is_ready_before_steps) return run_symbolically(spec, run, device).parameters;
  if (!keeps_packed(run.fine_tuning.quantization, device)) return parameters_of_run(spec, dequantized(run), device);
  Tape tape(device, run.profile.behaviors);
  std::vector<ParameterInfo> parameters;
  {
    const std::unique_ptr<Model> model = build_model(spec, run, tape, weights_dtype(run));
    load(tape, *model, spec, run);
    prepare_model(tape, *model, run);
    parameters = parameters_of(*model, {}, nullptr);
    tape.memory.stop();
  }
  return parameters;
}

SymbolicRun run_symbolically(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device, std::int64_t rank) {
  try {
    try {
      return executed(spec, run, device, rank, true);
    } catch (const LayersDiffer&) {
      return executed(spec, run, device, rank, false);
    }
  } catch (const Error& error) {
    if (!is_program(spec) || error.code() != ErrorCode::kInternal) throw;
    throw Error(ErrorCode::kInput, spec.name + ": the program's calls do not go together: " + error.what());
  }
}

}  // namespace memcalc
