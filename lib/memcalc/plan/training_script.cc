#include "memcalc/plan/training_script.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "memcalc/report/quantity.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

std::string_view torch_type(DType dtype) {
  if (dtype == DType::kBFloat16) return "torch.bfloat16";
  return dtype == DType::kFloat16 ? "torch.float16" : "torch.float32";
}

/// Imports are gathered while the lines are written, and stand above them.
class Script {
 public:
  void import(const std::string& line) { imports_.insert(line); }
  void add(const std::string& line = "") { lines_ += line + "\n"; }

  [[nodiscard]] std::string text(const std::string& head) const {
    std::string text = head;
    for (const char* kind : {"import ", "from "}) {
      for (const std::string& line : imports_) {
        if (line.starts_with(kind)) text += line + "\n";
      }
    }
    return text + "\n" + lines_;
  }

 private:
  std::set<std::string> imports_;
  std::string lines_;
};

struct Dimension {
  std::string name;
  std::int64_t ranks;
};

/// Of init_device_mesh, in the order in which ranks are numbered; those of one rank are left out.
std::vector<Dimension> dimensions_of(const Parallel& p) {
  if (p.data_parallel == DataParallel::kDp) return {};
  const std::int64_t data = p.gpus / (p.pipeline * p.context * p.tensor * p.expert);
  const std::int64_t shard = p.torch().hsdp_shard > 0 ? p.torch().hsdp_shard : data;
  std::vector<Dimension> all = {{"pipeline", p.pipeline},
                                {"copies", data / shard},
                                {"data", shard},
                                {"context", p.context},
                                {"tensor", p.tensor}};
  std::erase_if(all, [](const Dimension& each) { return each.ranks == 1; });
  return all;
}

std::string part(const std::string& names) { return "mesh[" + names + "]"; }
std::string part_of(const char* name) { return part("\"" + std::string(name) + "\""); }

/// The ranks that hold the same parameters, or parts of them.
std::string sharing_ranks(const Parallel& p) {
  std::string names;
  std::size_t count = 0;
  for (const Dimension& each : dimensions_of(p)) {
    if (each.name == "pipeline" || each.name == "tensor") continue;
    names += (count++ > 0 ? ", \"" : "\"") + each.name + "\"";
  }
  return part(names) + (count > 1 && p.context > 1 ? "._flatten(\"shards\")" : "");
}

void add_mesh(const Parallel& p, Script& script) {
  const std::vector<Dimension> all = dimensions_of(p);
  if (all.empty()) return;
  script.import("from torch.distributed.device_mesh import init_device_mesh");
  std::string sizes, names;
  for (const Dimension& each : all) {
    sizes += number(each.ranks) + ", ";
    names += "\"" + each.name + "\", ";
  }
  script.add("mesh = init_device_mesh(\"cuda\", (" + sizes.substr(0, sizes.size() - (all.size() > 1 ? 2 : 1)) +
             "), mesh_dim_names=(" + names.substr(0, names.size() - (all.size() > 1 ? 2 : 1)) + "))");
  if (p.context > 1) {
    script.import("from torch.distributed.tensor.experimental._attention import set_rotate_method");
    const bool ring = p.context_type == ContextParallel::kRing;
    script.add(std::string("set_rotate_method(\"") + (ring ? "alltoall" : "allgather") + "\")");
  }
}

void add_selective_policy(const RunSpec& run, Script& script) {
  if (run.checkpointing() != Checkpointing::kSelective) return;
  script.import("from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts");
  script.add("aten = torch.ops.aten");
  script.add("kept = {aten._scaled_dot_product_cudnn_attention.default,");
  script.add("        aten._scaled_dot_product_flash_attention.default,");
  script.add("        aten._scaled_dot_product_efficient_attention.default}");
  script.add();
  script.add("def selective():  # fused attention and every second product are kept, the rest is computed again");
  script.add("    products = {False: 0, True: 0}");
  script.add("    def policy(context, op, *args, **kwargs):");
  script.add("        keeps = op in kept");
  script.add("        if op == aten.mm.default:");
  script.add("            products[context.is_recompute] += 1");
  script.add("            keeps = products[context.is_recompute] % 2 == 1");
  script.add("        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE");
  script.add("    return create_selective_checkpoint_contexts(policy)");
}

// What follows writes the body of prepared().

void add_tensor_parallel(const Parallel& p, Script& script) {
  if (p.tensor == 1) return;
  script.import("from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module");
  script.add(
      "    columns = [\"self_attn.q_proj\", \"self_attn.k_proj\", \"self_attn.v_proj\", \"mlp.gate_proj\", "
      "\"mlp.up_proj\"]");
  script.add("    rows = [\"self_attn.o_proj\", \"mlp.down_proj\"]");
  script.add("    for layer in layers:");
  script.add("        parallelize_module(layer, " + part_of("tensor") +
             ", {**{name: ColwiseParallel() for name in columns},");
  script.add("                                                **{name: RowwiseParallel() for name in rows}})");
}

void add_checkpointing(const RunSpec& run, Script& script) {
  if (run.checkpointing() == Checkpointing::kNone) return;
  script.import("from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper");
  if (run.checkpoints_reentrantly()) {
    script.import("from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl");
  }
  const bool selective = run.checkpointing() == Checkpointing::kSelective;
  const std::string step = run.training().checkpoint_every > 1
                               ? "0, len(layers), " + number(run.training().checkpoint_every)
                               : "len(layers)";
  script.add("    for i in range(" + step + "):");
  script.add("        layers[i] = checkpoint_wrapper(layers[i]" +
             std::string(selective                       ? ", context_fn=selective"
                         : run.checkpoints_reentrantly() ? ", checkpoint_impl=CheckpointImpl.REENTRANT"
                                                         : "") +
             ")");
}

void add_fsdp2(const Parallel& p, Script& script) {
  script.import("from torch.distributed.fsdp import fully_shard");
  std::string more = "mesh=shards";
  script.add("    shards = " + sharing_ranks(p));
  const TorchMesh& mesh = p.torch();
  if (mesh.fsdp_param_dtype || mesh.fsdp_reduce_dtype) {
    script.import("from torch.distributed.fsdp import MixedPrecisionPolicy");
    const auto type = [](const auto& dtype) { return dtype ? std::string(torch_type(*dtype)) : std::string("None"); };
    script.add("    policy = MixedPrecisionPolicy(");
    script.add("        param_dtype=" + type(mesh.fsdp_param_dtype) + ", reduce_dtype=" + type(mesh.fsdp_reduce_dtype) +
               ")");
    more += ", mp_policy=policy";
  }
  if (p.offload_parameters == OffloadTo::kHost) {
    script.import("from torch.distributed.fsdp import CPUOffloadPolicy");
    more += ",\n            offload_policy=CPUOffloadPolicy()";
  }
  // The root's default is to keep what it gathered.
  more += std::string(", reshard_after_forward=") + (mesh.reshard_after_forward ? "True" : "False");
  script.add("    for module in [*layers, model]:");
  script.add("        fully_shard(");
  script.add("            module, " + more + ")");
}

void add_data_parallel(const Parallel& p, Script& script) {
  switch (p.data_parallel) {
    case DataParallel::kFsdp2: return add_fsdp2(p, script);
    case DataParallel::kFsdp1:
      script.import("import functools");
      script.import("from torch.distributed.fsdp import FullyShardedDataParallel");
      script.import("from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy");
      script.add(
          "    wraps = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={type(layers[0])})");
      script.add("    model = FullyShardedDataParallel(model, auto_wrap_policy=wraps, use_orig_params=True)");
      return;
    case DataParallel::kDp: script.add("    model = torch.nn.DataParallel(model)"); return;
    case DataParallel::kDdp:
    case DataParallel::kZero1: {
      script.import("from torch.nn.parallel import DistributedDataParallel");
      std::string more = "device_ids=[rank_on_host], device_mesh=" + sharing_ranks(p);
      if (p.pipeline > 1) more = "process_group=" + sharing_ranks(p) + ".get_group()";
      if (p.torch().ddp_bucket_view) more += ", gradient_as_bucket_view=True";
      if (p.torch().ddp_static_graph) more += ", static_graph=True";
      script.add("    model = DistributedDataParallel(");
      script.add("        model, " + more + ")");
      return;
    }
    default: return;
  }
}

/// Tensor parallelism first, then checkpointing, then what shares parameters: as torchtitan does.
void add_preparation(const RunSpec& run, Script& script) {
  script.add();
  script.add("def prepared(model, layers):");
  add_tensor_parallel(run.parallel, script);
  add_checkpointing(run, script);
  add_data_parallel(run.parallel, script);
  script.add("    return model");
  script.add();
}

constexpr std::string_view class_of(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::kGpipe: return "ScheduleGPipe";
    case PipelineSchedule::kInterleaved: return "ScheduleInterleaved1F1B";
    case PipelineSchedule::kZeroBubble: return "ScheduleInterleavedZeroBubble";
    case PipelineSchedule::kZeroBubbleV: return "ScheduleZBVZeroBubble";
    default: return "Schedule1F1B";
  }
}

void add_pipeline(const RunSpec& run, Script& script) {
  const Parallel& p = run.parallel;
  const std::int64_t micro_batches = std::max(p.micro_batches, p.pipeline);
  const std::string stages = number(p.pipeline * p.virtual_stages);
  const std::string schedule(class_of(p.schedule));
  const bool one_stage =
      p.schedule == PipelineSchedule::kGpipe || p.schedule == PipelineSchedule::kOneForwardOneBackward;
  script.import("from torch.distributed.pipelining import PipelineStage, " + schedule);
  std::string shares = "an equal share of its layers";
  for (const std::int64_t layers : p.stage_layers) {
    shares = (&layers == p.stage_layers.data() ? "" : shares + ", ") + number(layers);
  }
  if (!p.stage_layers.empty()) shares += " layers";
  script.add("# stage_of(i, n): the i-th of n parts of the model with " + shares + ", and these layers");
  script.add("# loss_of(logits, labels): of the last of them");
  const std::string place = part_of("pipeline") + ".get_local_rank()";
  if (p.schedule == PipelineSchedule::kZeroBubbleV) {
    script.add("places = [" + place + ", " + stages + " - 1 - " + place + "]");
  } else {
    script.add("places = range(" + place + ", " + stages + ", " + number(p.pipeline) + ")");
  }
  script.add("model = torch.nn.ModuleList(prepared(*stage_of(i, " + stages + ")) for i in places)");
  script.add("group = " + part_of("pipeline") + ".get_group()");
  script.add("stages = [PipelineStage(module, i, " + stages +
             ", device, group=group) for module, i in zip(model, places)]");
  script.add("schedule = " + schedule + "(" + (one_stage ? "stages[0]" : "stages") +
             ", n_microbatches=" + number(micro_batches) + ", loss_fn=loss_of)");
}

struct TorchOptimizer {
  Optimizer optimizer;
  const char* name;
  const char* more;
};
constexpr TorchOptimizer kTorchOptimizers[] = {{Optimizer::kAdamWForeach, "AdamW", ""},
                                               {Optimizer::kAdamWFused, "AdamW", ", fused=True"},
                                               {Optimizer::kAdamWForLoop, "AdamW", ", foreach=False"},
                                               {Optimizer::kSgd, "SGD", ""},
                                               {Optimizer::kSgdMomentum, "SGD", ", momentum=0.9"},
                                               {Optimizer::kSgdWeightDecay, "SGD", ", weight_decay=0.01"},
                                               {Optimizer::kAdam, "Adam", ""},
                                               {Optimizer::kAdamWAmsgrad, "AdamW", ", amsgrad=True"},
                                               {Optimizer::kNAdam, "NAdam", ""},
                                               {Optimizer::kRAdam, "RAdam", ""},
                                               {Optimizer::kAdamax, "Adamax", ""},
                                               {Optimizer::kAdagrad, "Adagrad", ""},
                                               {Optimizer::kAdagradForLoop, "Adagrad", ", foreach=False"},
                                               {Optimizer::kRmsprop, "RMSprop", ""},
                                               {Optimizer::kAdafactorTorch, "Adafactor", ""}};

void add_optimizer(const RunSpec& run, Script& script) {
  const auto* found =
      std::find_if(std::begin(kTorchOptimizers), std::end(kTorchOptimizers),
                   [&](const TorchOptimizer& each) { return each.optimizer == run.training().optimizer; });
  if (found == std::end(kTorchOptimizers)) {
    script.add("# optimizer: " + std::string(name_of(run.training().optimizer)) +
               " (docs/cli.md says which class that is)");
  } else if (run.parallel.data_parallel == DataParallel::kZero1) {
    script.import("from torch.distributed.optim import ZeroRedundancyOptimizer");
    script.add("optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim." + std::string(found->name) +
               found->more + ")");
  } else {
    script.add("optimizer = torch.optim." + std::string(found->name) + "(model.parameters()" + found->more + ")");
  }
  if (run.precision == Precision::kAmpFp16) script.add("scaler = torch.amp.GradScaler(\"cuda\")");
}

/// What stands around the forward pass; "" where nothing does.
std::string contexts_of(const RunSpec& run, Script& script) {
  std::vector<std::string> contexts;
  if (run.parallel.context > 1) {
    script.import("from torch.distributed.tensor.experimental import context_parallel");
    contexts.emplace_back(
        "context_parallel(mesh[\"context\"], buffers=list(batch.values()), "
        "buffer_seq_dims=[1] * len(batch))");
  }
  if (is_autocast(run.precision)) {
    const DType dtype = run.precision == Precision::kAmpBf16 ? DType::kBFloat16 : DType::kFloat16;
    contexts.emplace_back("torch.autocast(\"cuda\", dtype=" + std::string(torch_type(dtype)) + ")");
  }
  if (run.training().offload_activations) contexts.emplace_back("torch.autograd.graph.save_on_cpu(pin_memory=True)");
  std::string text;
  for (const std::string& each : contexts) text += (text.empty() ? "" : ", ") + each;
  return text;
}

void add_step(const RunSpec& run, Script& script) {
  script.add();
  if (run.parallel.pipeline > 1) {
    const std::string contexts = contexts_of(run, script);
    const std::string indent = contexts.empty() ? "    " : "        ";
    script.add("def step(ids, labels):  # of all micro-batches, " + number(run.batch_size) + " sequences each");
    script.add("    optimizer.zero_grad()");
    if (!contexts.empty()) script.add("    with " + contexts + ":");
    script.add(indent + "inputs = (ids,) if 0 in places else ()");
    script.add(indent + "targets = {\"target\": labels, \"losses\": []} if " +
               number(run.parallel.pipeline * run.parallel.virtual_stages - 1) + " in places else {}");
    script.add(indent + "schedule.step(*inputs, **targets)");
    script.add("    optimizer.step()");
    return;
  }
  const bool scales = run.precision == Precision::kAmpFp16;
  const std::string contexts = contexts_of(run, script);
  const bool accumulates = run.training().accumulation_steps > 1;
  script.add("def step(batches):  # " + number(run.training().accumulation_steps) + " of " + number(run.batch_size) +
             " sequences on each GPU");
  script.add("    optimizer.zero_grad()");
  script.add("    for batch in batches:");
  std::string indent = "        ";
  if (!contexts.empty()) {
    script.add(indent + "with " + contexts + ":");
    indent += "    ";
  }
  script.add(indent + "loss = model(**batch).loss" + (accumulates ? " / len(batches)" : ""));
  // The sequence is whole again where context_parallel ends, so backward runs inside.
  if (run.parallel.context == 1) indent = "        ";
  script.add(indent + (scales ? "scaler.scale(loss).backward()" : "loss.backward()"));
  if (run.training().max_grad_norm) {
    if (scales) script.add("    scaler.unscale_(optimizer)");
    script.add("    torch.nn.utils.clip_grad_norm_(model.parameters(), " + format_exact(*run.training().max_grad_norm) +
               ")");
  }
  script.add(scales ? "    scaler.step(optimizer)\n    scaler.update()" : "    optimizer.step()");
}

}  // namespace

std::string training_script(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  Script script;
  script.import("import torch");
  const bool alone = p.gpus == 1 || p.data_parallel == DataParallel::kDp;
  if (!alone) {
    script.import("import os");
    script.add("rank_on_host = int(os.environ[\"LOCAL_RANK\"])");
    script.add("device = torch.device(\"cuda\", rank_on_host)");
    script.add("torch.cuda.set_device(device)");
    script.add("torch.distributed.init_process_group(\"nccl\", device_id=device)");
    add_mesh(p, script);
  }
  if (run.precision == Precision::kTf32) script.add("torch.backends.cuda.matmul.allow_tf32 = True");
  add_selective_policy(run, script);
  add_preparation(run, script);
  const std::string weights(torch_type(weights_dtype_of(run)));
  if (p.pipeline > 1) {
    script.add("# weights: " + weights);
    add_pipeline(run, script);
  } else {
    script.add("# model: " + model.name + " on this GPU, its weights " + weights);
    if (p.expert > 1) {
      script.add("#   from_pretrained(..., distributed_config=transformers.distributed.DistributedConfig(tp_size=" +
                 number(p.expert) + ", enable_expert_parallel=True))");
    }
    script.add("# layers: the ModuleList of its transformer layers, such as model.model.layers");
    script.add("model = prepared(model, layers)");
  }
  add_optimizer(run, script);
  add_step(run, script);
  const std::string start =
      alone ? "# python train.py"
            : "# torchrun --nnodes=" + number(p.nodes) + " --nproc-per-node=" + number(p.gpus / p.nodes) + " train.py";
  return script.text(start + "  (torch 2.11)\n");
}

}  // namespace memcalc
