// plan/settings.h: a run as options of memcalc and as settings of other programs. That Python, JSON and a shell read
// them is tests/cli/settings_test.py's.
#include "memcalc/plan/settings.h"
#include "memcalc/families/distilbert/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "memcalc/base/error.h"
#include "support/small_models.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ModelSpec llama() { return {.name = "small", .model_type = "llama", .architecture = test::llama_256_wide(8)}; }

RunSpec plain() {
  RunSpec run;
  run.batch_size = 2;
  run.training().accumulation_steps = 4;
  run.sequence_length = 512;
  run.training().loop = Loop::kBare;
  run.precision = Precision::kFp32;
  run.training().optimizer = Optimizer::kAdamWForeach;
  return run;
}

struct SettingsCase {
  const char* name;
  Emit emit;
  std::function<void(RunSpec&)> change;
  std::vector<const char*> said;
  std::vector<const char*> not_said;
};

void PrintTo(const SettingsCase& c, std::ostream* out) { *out << c.name; }

void shard(RunSpec& run) {
  run.parallel.gpus = 8;
  run.parallel.data_parallel = DataParallel::kFsdp2;
  run.parallel.layout = TorchMesh{.fsdp_param_dtype = DType::kBFloat16, .fsdp_reduce_dtype = DType::kFloat32};
}

void deepspeed(RunSpec& run, DataParallel mode) {
  run.parallel.gpus = 8;
  run.parallel.layout = DeepSpeedZero{};
  run.parallel.data_parallel = mode;
  run.precision = Precision::kBf16;
}

void megatron(RunSpec& run) {
  run.parallel.gpus = 16;
  run.parallel.layout = MegatronLayout{};
  run.parallel.data_parallel = DataParallel::kMegatronDist;
  run.precision = Precision::kBf16;
}

const SettingsCase kCases[] = {
    {"OneGpu",
     Emit::kTorchrun,
     [](RunSpec& r) { r.precision = Precision::kAmpFp16; },
     {"# python train.py", "torch.autocast(\"cuda\", dtype=torch.float16)", "torch.optim.AdamW(model.parameters())",
      "scaler.step(optimizer)", "/ len(batches)"},
     {"torch.distributed", "clip_grad_norm_"}},
    {"Clipping",
     Emit::kTorchrun,
     [](RunSpec& r) { r.training().max_grad_norm = 1.0; },
     {"clip_grad_norm_(model.parameters(), 1)"},
     {}},
    {"Fsdp2",
     Emit::kTorchrun,
     shard,
     {"--nnodes=1 --nproc-per-node=8", "init_device_mesh(\"cuda\", (8,), mesh_dim_names=(\"data\",))",
      "shards = mesh[\"data\"]", "param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
      "module, mesh=shards, mp_policy=policy, reshard_after_forward=True)"},
     {"CPUOffloadPolicy", "autocast"}},
    {"Fsdp2ThatKeepsAndOffloads",
     Emit::kTorchrun,
     [](RunSpec& r) {
       shard(r);
       r.parallel.torch().reshard_after_forward = false;
       r.parallel.offload_parameters = OffloadTo::kHost;
     },
     {"offload_policy=CPUOffloadPolicy(), reshard_after_forward=False"},
     {}},
    {"TwoHosts",
     Emit::kTorchrun,
     [](RunSpec& r) {
       shard(r);
       r.parallel.nodes = 2;
     },
     {"--nnodes=2 --nproc-per-node=4"},
     {}},
    {"CopiesOfShards",
     Emit::kTorchrun,
     [](RunSpec& r) {
       shard(r);
       r.parallel.torch().hsdp_shard = 4;
     },
     {"(2, 4), mesh_dim_names=(\"copies\", \"data\")", "shards = mesh[\"copies\", \"data\"]\n"},
     {}},
    {"ThreeDimensions",
     Emit::kTorchrun,
     [](RunSpec& r) {
       shard(r);
       r.parallel.tensor = r.parallel.pipeline = 2;
       r.parallel.micro_batches = 4;
     },
     {"(2, 2, 2), mesh_dim_names=(\"pipeline\", \"data\", \"tensor\")", "shards = mesh[\"data\"]\n",
      "parallelize_module(layer, mesh[\"tensor\"]", "prepared(*stage_of(i, 2))"},
     {"DistributedDataParallel"}},
    {"StagesInDdp",
     Emit::kTorchrun,
     [](RunSpec& r) {
       r.parallel.gpus = 4;
       r.parallel.layout = TorchMesh{};
       r.parallel.pipeline = 2;
       r.parallel.data_parallel = DataParallel::kDdp;
     },
     {"process_group=mesh[\"data\"].get_group()"},
     {}},
    {"Experts",
     Emit::kTorchrun,
     [](RunSpec& r) {
       r.parallel.gpus = r.parallel.expert = 4;
       r.parallel.layout = TorchMesh{};
       r.training().optimizer = Optimizer::kAdamWForLoop;
     },
     {"DistributedConfig(tp_size=4, enable_expert_parallel=True)"},
     {"init_device_mesh"}},
    {"ContextBesideShards",
     Emit::kTorchrun,
     [](RunSpec& r) {
       shard(r);
       r.parallel.context = 2;
       r.parallel.context_type = ContextParallel::kRing;
     },
     {"(4, 2), mesh_dim_names=(\"data\", \"context\")", "mesh[\"data\", \"context\"]._flatten(\"shards\")",
      "set_rotate_method(\"alltoall\")", "context_parallel(mesh[\"context\"]"},
     {}},
    {"EverySecondLayer",
     Emit::kTorchrun,
     [](RunSpec& r) {
       r.training().checkpointing = Checkpointing::kFull;
       r.training().checkpoint_every = 2;
     },
     {"range(0, len(layers), 2)", "layers[i] = checkpoint_wrapper(layers[i])"},
     {"selective"}},
    {"SelectiveInZero1",
     Emit::kTorchrun,
     [](RunSpec& r) {
       r.training().checkpointing = Checkpointing::kSelective;
       r.parallel.gpus = 2;
       r.parallel.layout = TorchMesh{};
       r.parallel.data_parallel = DataParallel::kZero1;
       r.training().optimizer = Optimizer::kAdamWFused;
     },
     {"context_fn=selective", "DistributedDataParallel(",
      "model, device_ids=[rank_on_host], device_mesh=mesh[\"data\"])",
      "ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, fused=True)"},
     {}},
    {"TensorParallel",
     Emit::kTorchrun,
     [](RunSpec& r) {
       r.parallel.gpus = r.parallel.tensor = 4;
       r.parallel.layout = TorchMesh{};
       r.training().optimizer = Optimizer::kAdamWForLoop;
     },
     {"parallelize_module(layer, mesh[\"tensor\"], {", "foreach=False"},
     {"DistributedDataParallel"}},
    {"InterleavedPipeline",
     Emit::kTorchrun,
     [](RunSpec& r) {
       r.parallel.gpus = r.parallel.pipeline = 4;
       r.parallel.layout = TorchMesh{};
       r.parallel.virtual_stages = 2;
       r.parallel.micro_batches = 8;
       r.parallel.schedule = PipelineSchedule::kInterleaved;
     },
     {"ScheduleInterleaved1F1B(stages, n_microbatches=8", "range(mesh[\"pipeline\"].get_local_rank(), 8, 4)",
      "if 7 in places"},
     {}},
    {"OneStageARank",
     Emit::kTorchrun,
     [](RunSpec& r) {
       r.parallel.gpus = r.parallel.pipeline = 4;
       r.parallel.layout = TorchMesh{};
       r.parallel.micro_batches = 8;
     },
     {"Schedule1F1B(stages[0], n_microbatches=8", "if 3 in places"},
     {}},
    {"ZeRO3",
     Emit::kDeepSpeed,
     [](RunSpec& r) {
       deepspeed(r, DataParallel::kDsZero3);
       r.training().max_grad_norm = 1.0;
       r.parallel.deepspeed().prefetch_bucket_size = 0;
       r.parallel.offload_states = r.parallel.offload_parameters = OffloadTo::kHost;
     },
     {"\"train_micro_batch_size_per_gpu\": 2", "\"gradient_accumulation_steps\": 4", "\"gradient_clipping\": 1",
      "\"bf16\": {\"enabled\": true}", "\"stage\": 3", "\"stage3_prefetch_bucket_size\": 0", "\"offload_optimizer\"",
      "\"offload_param\"", "\"zero_force_ds_cpu_optimizer\": false"},
     {"fp16", "reduce_bucket_size"}},
    {"ZeRO1InFloat16",
     Emit::kDeepSpeed,
     [](RunSpec& r) {
       deepspeed(r, DataParallel::kDsZero1);
       r.precision = Precision::kFp16;
     },
     {"\"stage\": 1", "\"fp16\": {\"enabled\": true}", "\"gradient_clipping\": 0"},
     {"bf16", "offload", "force"}},
    // 16 GPUs: 2 x 2 x 2 leave two replicas, of 2 sequences x 8 micro-batches each.
    {"MegatronLayout",
     Emit::kMegatron,
     [](RunSpec& r) {
       megatron(r);
       r.parallel.tensor = r.parallel.pipeline = r.parallel.context = 2;
       r.parallel.virtual_stages = 2;
       r.parallel.sequence_parallel = true;
       r.parallel.micro_batches = 8;
       r.training().accumulation_steps = 1;
       r.training().checkpointing = Checkpointing::kFull;
     },
     {"--micro-batch-size 2", "--global-batch-size 32", "--seq-length 512", "--bf16", "--tensor-model-parallel-size 2",
      "--sequence-parallel", "--context-parallel-size 2", "--cp-comm-type all_gather",
      "--pipeline-model-parallel-size 2", "--num-virtual-stages-per-pipeline-rank 2", "--use-distributed-optimizer",
      "--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"},
     {"--expert-model-parallel-size", "--num-experts"}},
    {"MegatronModel",
     Emit::kMegatron,
     megatron,
     {"--num-layers 8", "--hidden-size 256", "--ffn-hidden-size 512", "--num-attention-heads 8", "--kv-channels 32",
      "--vocab-size 1000", "--position-embedding-type rope", "--normalization RMSNorm", "--swiglu",
      "--disable-bias-linear", "--attention-backend fused"},
     {"--group-query-attention", "--add-qkv-bias", "--recompute"}},
    {"TrainerAlone",
     Emit::kTrainer,
     [](RunSpec& r) {
       r.training().loop = Loop::kTrainer;
       r.precision = Precision::kAmpBf16;
       r.training().optimizer = Optimizer::kAdamWFused;
       r.training().max_grad_norm = 1.0;
       r.training().checkpointing = Checkpointing::kFull;
     },
     {"per_device_train_batch_size=2", "gradient_accumulation_steps=4", "bf16=True", "optim=\"adamw_torch_fused\"",
      "max_grad_norm=1,", "gradient_checkpointing=True", "\"use_reentrant\": False"},
     {"fsdp", "tf32"}},
    {"TrainerSharded",
     Emit::kTrainer,
     [](RunSpec& r) {
       shard(r);
       r.training().checkpointing = Checkpointing::kFull;
     },
     {"fsdp=True", "\"version\": 2, \"reshard_after_forward\": True", "\"activation_checkpointing\": True",
      "max_grad_norm=0,", "optim=\"adamw_torch\""},
     {"gradient_checkpointing=True"}},
};

class Settings : public ::testing::TestWithParam<SettingsCase> {};

TEST_P(Settings, AreThoseOfTheRun) {
  const SettingsCase& c = GetParam();
  RunSpec run = plain();
  c.change(run);
  const std::string settings = settings_of(llama(), run, c.emit);
  for (const char* words : c.said) EXPECT_THAT(settings, HasSubstr(words));
  for (const char* words : c.not_said) EXPECT_THAT(settings, Not(HasSubstr(words)));
}

INSTANTIATE_TEST_SUITE_P(All, Settings, ::testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

TEST(Settings, WhatHasNoPlaceInThemIsSaidBeside) {
  RunSpec run = plain();
  EXPECT_THAT(beside_settings(run, Emit::kNothing), IsEmpty());
  EXPECT_THAT(beside_settings(run, Emit::kTorchrun), IsEmpty());
  run.training().checkpointing = Checkpointing::kSelective;
  EXPECT_THAT(beside_settings(run, Emit::kDeepSpeed), Contains(HasSubstr("checkpointing is the script's")));
  EXPECT_THAT(beside_settings(run, Emit::kTrainer), Contains(HasSubstr("selective has no argument")));
  EXPECT_THAT(beside_settings(run, Emit::kTrainer), Contains(HasSubstr("a plain loop")));
  run.parallel.gpus = run.parallel.context = 2;
  run.parallel.layout = TorchMesh{};
  EXPECT_THAT(beside_settings(run, Emit::kTrainer), Contains(HasSubstr("say nothing of tp, cp")));
  run.training().optimizer = Optimizer::kMuon;
  EXPECT_THAT(beside_settings(run, Emit::kTrainer), Contains(HasSubstr("no name for the optimizer muon")));
}

TEST(Settings, OfAQuantisedBaseOnTheHostIsSaidHowItIsLoaded) {
  RunSpec run = plain();
  run.training().loop = Loop::kTrainer;
  run.parallel.gpus = 2;
  run.parallel.layout = TorchMesh{};
  run.parallel.data_parallel = DataParallel::kFsdp2;
  run.fine_tuning.quantization = Quantization::kNf4;
  run.fine_tuning.quant_storage = DType::kBFloat16;
  EXPECT_THAT(beside_settings(run, Emit::kTrainer), Contains(HasSubstr("bnb_4bit_quant_storage=torch.bfloat16")));
  EXPECT_THAT(beside_settings(run, Emit::kTrainer), Not(Contains(HasSubstr("device_map"))));
  run.parallel.offload_parameters = run.parallel.offload_states = OffloadTo::kHost;
  EXPECT_THAT(beside_settings(run, Emit::kTrainer), Contains(HasSubstr("device_map={\"\": \"cpu\"}")));
}

TEST(Settings, MegatronBuildsNotEveryModel) {
  const ModelSpec model{.name = "small", .model_type = "distilbert", .architecture = DistilBertSpec{}};
  RunSpec run = plain();
  megatron(run);
  EXPECT_THROW((void)settings_of(model, run, Emit::kMegatron), Error);
}

}  // namespace
}  // namespace memcalc
