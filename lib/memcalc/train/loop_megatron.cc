// megatron/training/training.py, train_step, and core/pipeline_parallel/schedules.py (core_r0.14.0).
// MIRRORS(megatron, "core/pipeline_parallel/schedules.py", "0.14.0")
// MIRRORS(megatron, "training/training.py", "0.14.0")
#include "memcalc/train/loop_megatron.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/models/megatron_model.h"
#include "memcalc/models/module.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizers/rule.h"
#include "memcalc/train/parallel/megatron_buffers.h"
#include "memcalc/train/parallel/micro_batch_trace.h"
#include "memcalc/train/repeat.h"

namespace memcalc {

namespace {

constexpr Operator kReceive{"c10d::recv_"};

/// Steps that the trace holds: the first makes the optimizer's states and TransformerEngine's buffers, the second is
/// like all that follow.
constexpr int kMegatronSteps = 2;

/// One model chunk with what the schedule keeps of its micro-batches.
struct Chunk {
  std::unique_ptr<MegatronModel> model;
  std::vector<Tensor> inputs, outputs;  // of the executed micro-batches: schedules.py, input_tensors, output_tensors
  // The schedule's variables: each keeps its value until the next is assigned.
  Tensor input, input_gradient, output_gradient;
};

class MegatronStep {
 public:
  MegatronStep(Tape& tape, const MegatronConfig& config, DType dtype) : tape_(tape), config_(config), dtype_(dtype) {}

  void forward(Chunk& chunk) {
    tape_.moment.phase = Phase::kForward;
    const MegatronChunk& place = chunk.model->chunk();
    if (!place.embeds) {
      Tensor received = receive();
      tape_.autograd.require_gradient(received);
      chunk.input = std::move(received);
    }
    const MegatronBatch batch = chunk.model->make_batch();
    Tensor output = chunk.model->forward(batch, chunk.input);
    if (place.predicts) {
      // pretrain_gpt.py, loss_func: check_for_nan_in_loss_and_grad is the default, and torch.isnan() of it is read.
      read_on_host(tape_);
      output = divide_scalar(divide_scalar(std::move(output)));  // by tokens, by micro-batches
    }
    chunk.inputs.push_back(chunk.input);
    chunk.outputs.push_back(std::move(output));
    if (!place.predicts) deallocate(chunk.outputs.back());
  }

  void backward(Chunk& chunk, std::size_t micro_batch) {
    tape_.moment.phase = Phase::kBackward;
    const bool has_loss = chunk.model->chunk().predicts;
    if (!has_loss) chunk.output_gradient = receive();
    chunk.input = std::move(chunk.inputs[micro_batch]);
    Tensor output = std::move(chunk.outputs[micro_batch]);
    if (has_loss) {
      backward_from(output);
    } else {
      tape_.autograd.backward(output, chunk.output_gradient);
    }
    if (chunk.input.defined()) chunk.input_gradient = chunk.input.impl()->grad;
  }

 private:
  /// What passes from stage to stage.
  [[nodiscard]] Shape boundary() const {
    return {config_.local_sequence(), config_.micro_batch_size, config_.hidden_size};
  }

  /// p2p_communication.py: a message of the neighbouring stage.
  [[nodiscard]] Tensor receive() const {
    Tensor received = tape_.empty(boundary(), dtype_, kReceive, Category::kCommunication);
    tape_.kernels.collective(kReceive, Collective::kSend, dtype_, received.bytes(), 2,
                             config_.parallel.gpus / config_.parallel.pipeline);
    // p2p_communication.py, _communicate: torch.cuda.synchronize() after a batch of messages (batch_p2p_sync). Those of
    // an interleaved schedule are no batch (arguments.py, overlap_p2p_comm).
    if (config_.parallel.virtual_stages == 1) read_on_host(tape_, kReceive);
    return received;
  }

  /// deallocate_output_tensor: once sent, only its place in the graph is needed.
  void deallocate(const Tensor& output) const {
    Tensor scalar = tape_.empty({1}, dtype_, aten::kEmpty);
    std::swap(output.impl()->block, scalar.impl()->block);
  }

  Tape& tape_;
  const MegatronConfig& config_;
  DType dtype_;
};

/// Of the last stage, those whose head's gradient is put off are executed, too, and two that follow them.
std::int32_t executed_micro_batches(const MegatronConfig& config, const Pipeline& pipeline, std::int64_t stage) {
  if (!config.options.defers_head_gradient || stage + 1 < pipeline.stages) return MicroBatchTrace::kExecuted;
  const std::int64_t limit = config.options.deferral_limit;
  return static_cast<std::int32_t>(limit == 0 ? pipeline.micro_batches : limit + MicroBatchTrace::kExecuted);
}

/// forward_backward_func: a few micro-batches are executed, all appear in the trace.
void forward_backward(MegatronMemory& memory, const MegatronConfig& config, DType dtype, std::vector<Chunk>& chunks,
                      const Pipeline& pipeline, std::int64_t micro_batches, std::int64_t stage) {
  Tape& tape = memory.tape;
  MegatronStep step(tape, config, dtype);
  MicroBatchTrace trace(tape, pipeline, executed_micro_batches(config, pipeline, stage));
  const std::int32_t executed = trace.executed();
  const auto repeats = [&](std::int32_t m) { return m + 1 < executed ? 1 : micro_batches - (executed - 1); };
  const auto count = static_cast<std::int32_t>(chunks.size());
  for (std::int32_t m = 0; m < executed; ++m) {
    tape.kernels.repeats = repeats(m);
    for (std::int32_t c = 0; c < count; ++c) {
      trace.record({PipelineAction::kForward, c, m}, [&] { step.forward(chunks[static_cast<std::size_t>(c)]); });
    }
  }
  for (std::int32_t m = 0; m < executed; ++m) {
    tape.kernels.repeats = repeats(m);
    for (std::int32_t c = count; c-- > 0;) {
      trace.record({PipelineAction::kBackward, c, m},
                   [&] { step.backward(chunks[static_cast<std::size_t>(c)], static_cast<std::size_t>(m)); });
    }
  }
  tape.kernels.repeats = 1;
  trace.record_end([&] {
    drain_head_gradients(memory);
    for (Chunk& chunk : chunks) drop(chunk.input, chunk.output_gradient, chunk.input_gradient);
  });
  trace.stitch(pipeline_steps(pipeline, stage));
}

std::vector<ParameterInfo> parameters_of(const std::vector<std::vector<Parameter>>& chunks) {
  std::vector<ParameterInfo> infos;
  for (const std::vector<Parameter>& of_chunk : chunks) {
    for (const Parameter& each : of_chunk) {
      const Shape& shape = each.tensor.shape();
      infos.push_back({.name = each.name,
                       .elements = each.tensor.elements(),
                       .dtype = each.tensor.dtype(),
                       .shape = shape,
                       .held = shape});
    }
  }
  return infos;
}

void tell(const MegatronConfig& config, const Pipeline& pipeline, std::int64_t stage, SymbolicRun& result) {
  std::vector<std::string>& assumptions = result.assumptions;
  if (pipeline.stages > 1) {
    assumptions.push_back("stage " + std::to_string(stage) + " of " + std::to_string(pipeline.stages) +
                          " holds at most " + std::to_string(most_in_flight(pipeline, stage)) +
                          (pipeline.chunks > 1 ? " chunk" : "") + " micro-batches between forward and backward, of " +
                          std::to_string(pipeline.micro_batches));
  }
  if (config.moe && !config.options.expert_capacity && config.options.expert_imbalance == 1.0) {
    assumptions.emplace_back("tokens spread evenly over the experts (--megatron expert-imbalance=X: the fullest rank)");
  }
  if (config.token_types > 0) {
    assumptions.emplace_back(
        "Megatron-core's BertModel in these sizes: each layer begins with its norms, and the first token tells the "
        "order "
        "of sentences");
  }
  if (config.decoder_layers > 0) {
    assumptions.emplace_back(
        "Megatron-core's T5Model in these sizes, which has what transformers' has not: LayerNorm, biases, GELU and "
        "learned positions (--megatron normalization, disable-bias-linear, swiglu)");
  }
  if (config.options.attention == MegatronAttention::kFused) {
    assumptions.emplace_back("attention by cuDNN through TransformerEngine (--megatron attention-backend)");
  }
  if (config.options.attention == MegatronAttention::kFlash) {
    assumptions.emplace_back("attention by flash-attn 2 through TransformerEngine");
  }
  if (config.parallel.context > 1 && config.parallel.context_type != ContextParallel::kUlysses) {
    assumptions.emplace_back("context parallelism by ring or all-gather follows its source (not validated)");
  }
  result.not_modelled.insert(result.not_modelled.end(),
                             {"overlap of communication with products (userbuffers), FP8, multi-token prediction",
                              "logging and checkpoints of Megatron-LM"});
}

/// Deterministic mode leaves cuDNN's attention out before compute capability 9.0 and on Blackwell
/// (dot_product_attention/utils.py, get_attention_backend), which leaves flash-attn 2, that takes one head width alone.
/// What runs with a padding mask in that mode is not modelled apart.
/// TransformerEngine 1.2 (pytorch/attention.py, DotProductAttention) turns flash-attn 2 off, too, and has cuDNN's on
/// Blackwell. For a padding mask Megatron-core wants the unfused one before 1.7 (bert_model.py, t5_dataset.py).
void choose_attention(MegatronConfig& config, const DeviceSpec& device) {
  MegatronLayout& options = config.options;
  const bool pads = config.token_types > 0 || config.decoder_layers > 0;
  const bool old_card = architecture_of(device) < CudaArchitecture::kHopper;
  if (options.engine_1_2) {
    const bool unfused = pads || (options.deterministic && old_card);
    if (unfused && options.attention != MegatronAttention::kLocal) options.attention = MegatronAttention::kUnfused;
    return;
  }
  if (options.attention != MegatronAttention::kFused || !options.deterministic || pads) return;
  if (old_card || architecture_of(device) >= CudaArchitecture::kBlackwell) {
    options.attention = config.latent ? MegatronAttention::kUnfused : MegatronAttention::kFlash;
  }
}

/// The same modules, wherever their layers stand.
bool alike(const MegatronConfig& config, const std::vector<MegatronChunk>& a, const std::vector<MegatronChunk>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].layers != b[i].layers || a[i].embeds != b[i].embeds || a[i].predicts != b[i].predicts) return false;
    for (std::int64_t layer = 0; layer < a[i].layers; ++layer) {
      const std::int64_t of_a = a[i].first_layer + layer, of_b = b[i].first_layer + layer;
      if (config.is_dense(of_a) != config.is_dense(of_b) || config.block(of_a) != config.block(of_b)) return false;
    }
  }
  return true;
}

/// "embedding, layers 0 to 11; 4 micro-batches in flight"
std::string holds(const std::vector<MegatronChunk>& chunks, std::int64_t in_flight) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const MegatronChunk& each : chunks) {
    if (each.embeds) add("embedding");
    const std::int64_t last = each.first_layer + each.layers - 1;
    if (each.layers == 1) add("layer " + std::to_string(last));
    if (each.layers > 1) add("layers " + std::to_string(each.first_layer) + " to " + std::to_string(last));
    if (each.predicts) add("head");
  }
  return text + "; " + std::to_string(in_flight) + (chunks.size() > 1 ? " chunk" : "") +
         (in_flight == 1 ? " micro-batch" : " micro-batches") + " in flight";
}

DType megatron_dtype(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return DType::kFloat32;
    case Precision::kFp16: return DType::kFloat16;
    default: return DType::kBFloat16;
  }
}

}  // namespace

std::int64_t pipeline_stage(const Parallel& parallel, std::int64_t rank) {
  return rank / (parallel.gpus / parallel.pipeline);
}

std::vector<RankGroup> megatron_ranks(const ModelSpec& model, const RunSpec& run) {
  constexpr std::int64_t kMostListed = 8;
  const MegatronConfig config = megatron_config(model, run);
  const Parallel& p = run.parallel;
  const std::int64_t ranks = p.gpus / p.pipeline;
  const Pipeline pipeline = pipeline_of(p, run.training().accumulation_steps);
  std::vector<RankGroup> groups;
  std::vector<MegatronChunk> before;
  std::int64_t first = 0;  // stage of the last group
  for (std::int64_t stage = 0; stage < p.pipeline; ++stage) {
    const std::vector<MegatronChunk> chunks = chunks_of_stage(config, stage);
    if (p.pipeline > kMostListed && stage > 0 && alike(config, before, chunks)) {
      groups.back().count += ranks;
      groups.back().name = "stages " + std::to_string(first) + " to " + std::to_string(stage);
      continue;
    }
    before = chunks;
    first = stage;
    groups.push_back({.first = stage * ranks,
                      .count = ranks,
                      .name = "stage " + std::to_string(stage),
                      .holds = holds(chunks, most_in_flight(pipeline, stage))});
  }
  return groups;
}

SymbolicRun run_megatron(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device, std::int64_t rank) {
  MegatronConfig config = megatron_config(spec, run);
  choose_attention(config, device);
  const DType dtype = megatron_dtype(run.precision);
  const std::int64_t stage = pipeline_stage(run.parallel, rank);
  const Pipeline asked = pipeline_of(run.parallel, run.training().accumulation_steps);
  SymbolicRun result;
  Tape tape(device, run.profile.behaviors);
  {
    MegatronMemory memory(tape);
    memory.tensor_parallel = run.parallel.tensor;
    memory.sequence_parallel = run.parallel.sequence_parallel;
    memory.uses_transformer_engine = config.options.attention != MegatronAttention::kLocal;
    memory.keeps_dummy_gradients = !config.options.engine_1_2;
    memory.fuses_weight_gradients = config.options.fuses_weight_gradients;
    if (config.options.defers_head_gradient) {
      memory.deferred_head_gradients =
          config.options.deferral_limit > 0 ? config.options.deferral_limit : asked.micro_batches;
    }
    std::vector<Chunk> chunks;
    std::vector<std::vector<Parameter>> parameters;
    std::vector<Tensor> buffers;
    for (const MegatronChunk& place : chunks_of_stage(config, stage)) {
      ModuleBuilder builder(tape, dtype);
      Chunk& chunk = chunks.emplace_back();
      chunk.model = config.build(builder, config, memory, place);
      parameters.push_back(std::move(builder.parameters));
    }
    MegatronOptimizer optimizer(tape, config, dtype, run.training().optimizer == Optimizer::kMuon);
    for (const std::vector<Parameter>& of_chunk : parameters) optimizer.wrap(of_chunk);
    optimizer.construct();

    tape.kernels.recording = true;
    tape.moment.step = 0;
    const std::size_t first_event = tape.memory.trace.events.size();
    const std::size_t first_block = tape.memory.trace.blocks.size();
    // What is put off grows with the micro-batches.
    const bool all = config.options.defers_head_gradient && config.options.deferral_limit == 0;
    forward_backward(memory, config, dtype, chunks, all ? asked : shortened(asked), asked.micro_batches, stage);
    tape.moment.phase = Phase::kOptimizer;
    optimizer.step();
    const CarriedVariables none;
    repeat_step(tape, first_event, first_block, none, kMegatronSteps - 1);

    result.parameters = parameters_of(parameters);
    result.held = optimizer.held();
    result.trace = std::move(tape.memory.trace);
    result.kernels = tape.kernels.take();
    tape.memory.stop();
  }
  const MegatronCount count = count_parameters(config);
  result.parameters_of_model = result.trainable_of_model = count.total;
  result.inactive_parameters = count.inactive;
  tell(config, asked, stage, result);
  return result;
}

}  // namespace memcalc
