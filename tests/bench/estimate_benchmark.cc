// How long one estimate takes (model construction, three symbolic steps, allocator replay, report): by model, and
// that it is flat in batch, sequence and width and linear in layers.
//
//   build/bench/bin/estimate_benchmark --benchmark_filter=Model
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <variant>

#include "memcalc/families/gpt2/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/memcalc.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

/// BERT-large, --bs 4 --fp16 --seq 512 in the Trainer: the README's command.
RunSpec bert_run() {
  RunSpec run;
  run.task = Task::kSequenceClassification;
  run.batch_size = 4;
  run.sequence_length = 512;
  run.precision = Precision::kAmpFp16;
  run.training().max_grad_norm = 1.0;
  return run;
}

/// A decoder in bf16, weights and all, in the Trainer.
RunSpec decoder_run(std::int64_t sequence_length) {
  RunSpec run;
  run.task = Task::kCausalLm;
  run.batch_size = 1;
  run.sequence_length = sequence_length;
  run.precision = Precision::kBf16;
  run.training().max_grad_norm = 1.0;
  return run;
}

void measure(benchmark::State& state, const ModelSpec& model, const RunSpec& run) {
  const DeviceSpec device = registry().device("h100-sxm");
  for (auto _ : state) benchmark::DoNotOptimize(estimate(model, run, device));
}

void Model_bert_large(benchmark::State& state) { measure(state, registry().model("bert-large"), bert_run()); }
void Model_llama_3_8b(benchmark::State& state) { measure(state, registry().model("llama-3-8b"), decoder_run(2048)); }
void Model_gpt2(benchmark::State& state) { measure(state, registry().model("gpt2"), decoder_run(1024)); }
BENCHMARK(Model_bert_large)->Unit(benchmark::kMicrosecond);
BENCHMARK(Model_llama_3_8b)->Unit(benchmark::kMicrosecond);
BENCHMARK(Model_gpt2)->Unit(benchmark::kMicrosecond);

/// A GPT of a trillion parameters on 3,072 A100 under Megatron, as Narayanan et al. 2021 (arXiv 2104.04473, table 1)
/// trained it: tensor parallel 8, 64 stages, two a rank, 512 micro-batches, every layer recomputed.
void Trillion_on_3072(benchmark::State& state) {
  ModelSpec model = registry().model("gpt2");
  auto& gpt = model.architecture.change<Gpt2Spec>();
  gpt = {.vocab_size = 51200,
         .n_embd = 25600,
         .n_layer = 128,
         .n_head = 160,
         .n_positions = 2048,
         .n_inner = 102400,
         .activation_function = "gelu_new"};
  RunOptions options{.batch_size = 1, .sequence_length = 2048, .precision = Precision::kBf16};
  options.checkpointing = Checkpointing::kFull;
  options.gpus = 3072;
  options.framework = Framework::kMegatron;
  options.parallel = {.nodes = 384, .tensor = 8, .pipeline = 64, .schedule = PipelineSchedule::kInterleaved};
  options.parallel.sequence_parallel = true;
  options.parallel.virtual_stages = 2;
  options.parallel.micro_batches = 512;
  measure(state, model, resolve(model, options).run);
}
BENCHMARK(Trillion_on_3072)->Unit(benchmark::kMillisecond);

void Flat_in_batch(benchmark::State& state) {
  RunSpec run = decoder_run(2048);
  run.batch_size = state.range(0);
  measure(state, registry().model("llama-3-8b"), run);
}
BENCHMARK(Flat_in_batch)->RangeMultiplier(8)->Range(1, 4096)->Unit(benchmark::kMicrosecond);

void Flat_in_sequence(benchmark::State& state) {
  measure(state, registry().model("llama-3-8b"), decoder_run(state.range(0)));
}
BENCHMARK(Flat_in_sequence)->RangeMultiplier(4)->Range(128, 8192)->Unit(benchmark::kMicrosecond);

void Flat_in_width(benchmark::State& state) {
  ModelSpec model = registry().model("llama-3-8b");
  auto& llama = model.architecture.change<LlamaSpec>();
  llama.hidden_size = state.range(0);
  llama.head_dim = llama.hidden_size / llama.num_attention_heads;
  llama.intermediate_size = 4 * llama.hidden_size;
  measure(state, model, decoder_run(2048));
}
BENCHMARK(Flat_in_width)->RangeMultiplier(4)->Range(1024, 65536)->Unit(benchmark::kMicrosecond);

void Linear_in_layers(benchmark::State& state) {
  ModelSpec model = registry().model("llama-3-8b");
  model.architecture.change<LlamaSpec>().num_hidden_layers = state.range(0);
  measure(state, model, decoder_run(2048));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(Linear_in_layers)
    ->RangeMultiplier(2)
    ->Range(16, 512)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace memcalc

BENCHMARK_MAIN();
