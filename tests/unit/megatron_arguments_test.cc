// spec/config_files/megatron.cc: arguments of Megatron-LM's scripts, as its examples have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/config_answers.h"

namespace memcalc {
namespace {

using test::refusal_of;
using test::text_of;
using test::use_of;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}
ConfigFile read(const std::string& line) { return read_command_line(split(line), {}); }
std::string refused(const std::string& line) {
  return refusal_of([&] { (void)read(line); });
}

// examples/gpt3/train_gpt3_175b_distributed.sh
const std::string kGpt3 =
    "torchrun --nproc_per_node 8 --nnodes 16 --master_addr localhost pretrain_gpt.py --num-layers 96 --hidden-size "
    "12288 "
    "--num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 --attention-backend auto "
    "--micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 --weight-decay 0.1 --init-method-std 0.006 "
    "--clip-grad 1.0 --fp16 --lr 6.0e-5 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --data-path d "
    "--vocab-file v --merge-file m --split 949,50,1 --log-interval 100 --save c --eval-iters 10 --no-load-optim";

TEST(MegatronArguments, OfGpt3AreAGpt2OfItsSizes) {
  const ConfigFile file = config_beside(read(kGpt3), {});
  EXPECT_EQ(file.program, "Megatron-LM core_r0.14.0");
  EXPECT_EQ(
      text_of(file.options),
      "--framework megatron --clip-grad 1.0 --vocab 50257 --arch gpt2 --layers 96 --hidden 12288 --heads "
      "96 --ffn 49152 --max-positions 2048 --seq 2048 --tp 8 --pp 16 --precision fp16 --bs 1 --gpus 128 --nodes 16 "
      "--micro-batches 1536");
  EXPECT_EQ(use_of(file, "no_load_optim"), "irrelevant");
}

TEST(MegatronArguments, OfMixtralHaveMegatronsDefaults) {
  // examples/mixtral/train_mixtral_8x7b_distributed.sh
  const ConfigFile file = config_beside(
      read("torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --use-mcore-models --disable-bias-linear "
           "--seq-length "
           "4096 --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
           "--num-attention-heads 32 --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm "
           "--position-embedding-type rope --swiglu --untie-embeddings-and-output-weights --group-query-attention "
           "--num-query-groups 8 --no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000 "
           "--num-experts 8 "
           "--moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
           "--overlap-param-gather --overlap-grad-reduce --tokenizer-type Llama2Tokenizer --tokenizer-model t "
           "--micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --clip-grad 1.0 --bf16 --tensor-model-parallel-size "
           "1 "
           "--pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --use-distributed-optimizer "
           "--sequence-parallel"),
      {});
  const std::string options = text_of(file.options);
  EXPECT_THAT(options, HasSubstr("--vocab 32000 --arch mixtral --layers 32 --hidden 4096 --heads 32 --ffn 14336"));
  EXPECT_THAT(options, HasSubstr("--kv-heads 8 --head-dim 128"));
  EXPECT_THAT(options, HasSubstr("--pp 4 --ep 8 --parallel megatron-dist --precision bf16"));
  EXPECT_THAT(options, HasSubstr("--gpus 32 --nodes 4 --micro-batches 32"));  // 32 GPUs / 4 stages: 8 replicas
  EXPECT_THAT(options, HasSubstr("moe-grouped-gemm=true,moe-permute-fusion=false,moe-router-dtype=none,"
                                 "moe-token-dispatcher-type=alltoall"));
  EXPECT_THAT(options, HasSubstr("overlap-grad-reduce"));
  EXPECT_THAT(options, Not(HasSubstr("--sp")));  // arguments.py: not of one rank
}

TEST(MegatronArguments, TheGlobalBatchIsSharedOutOverTheGpusThatAreTyped) {
  const std::string line =
      "python pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
      "--max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 --bf16";
  EXPECT_THAT(text_of(config_beside(read(line), {}).options), HasSubstr("--accum 16"));
  const std::vector<ConfigOption> typed = {{"--gpus", "8", ""}};
  EXPECT_THAT(text_of(config_beside(read(line), typed).options), HasSubstr("--accum 2"));
  const std::vector<ConfigOption> list = {{"--bs", "1,2,4", ""}};  // of a sweep: each has a number of its own
  const ConfigFile swept = config_beside(read(line), list);
  EXPECT_THAT(text_of(swept.options), Not(HasSubstr("--accum")));
  for (const auto& [batch, accumulated] : {std::pair{"1", "64"}, std::pair{"2", "32"}, std::pair{"4", "16"}}) {
    const std::vector<ConfigOption> one = {{"--bs", batch, ""}};
    EXPECT_EQ(micro_batches_of(swept, one)->text, accumulated);
  }
  const std::vector<ConfigOption> too_many = {{"--gpus", "32", ""}};
  EXPECT_THAT(refusal_of([&] { (void)config_beside(read(line), too_many); }),
              HasSubstr("/global_batch_size: 64 samples are no multiple of the 128 of a micro-batch on all replicas"));
}

TEST(MegatronArguments, OfT5AndBertAreTheirOwnModels) {
  const std::string bert =
      "python pretrain_bert.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 "
      "--max-position-embeddings 512 --micro-batch-size 4 --global-batch-size 32 --fp16";
  EXPECT_THAT(text_of(read(bert).options), HasSubstr("--vocab 30524 --arch bert --hidden 1024 --heads 16 --ffn 4096"));
  const std::string t5 =
      "python pretrain_t5.py --encoder-num-layers 12 --decoder-num-layers 12 --hidden-size 768 --num-attention-heads "
      "12 "
      "--kv-channels 64 --ffn-hidden-size 3072 --encoder-seq-length 512 --decoder-seq-length 128 "
      "--max-position-embeddings 512 --micro-batch-size 64 --vocab-extra-ids 100 --tokenizer-type BertWordPieceCase "
      "--bf16 --transformer-impl transformer_engine";
  EXPECT_THAT(text_of(read(t5).options), HasSubstr("--vocab 29098 --arch t5"));
  EXPECT_THAT(text_of(read(t5).options), HasSubstr("--head-dim 64 --seq 512 --target-seq 128"));
}

TEST(MegatronArguments, WhatIsNotModelledIsRefused) {
  const std::string base =
      "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
      "--max-position-embeddings 64 --micro-batch-size 1 ";
  EXPECT_THAT(refused(base + "--fp8-format hybrid"), HasSubstr("/fp8_format: FP8 under Megatron is not modelled"));
  EXPECT_THAT(refused(base + "--num-experts 64"), HasSubstr("/num_experts: other mixtures than of 8 experts"));
  EXPECT_THAT(refused(base + "--multi-latent-attention"), HasSubstr("latent attention is told by --model"));
  EXPECT_THAT(refused(base + "--position-embedding-type mrope"), HasSubstr("positions of the type mrope"));
}

// megatron/training/tokenizer/tokenizer.py
TEST(MegatronArguments, TheTokenizerSaysHowManyWordsThereAre) {
  const std::string base =
      "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
      "--max-position-embeddings 64 --micro-batch-size 1 ";
  const auto words = [&](const std::string& more) { return text_of(config_beside(read(base + more), {}).options); };
  EXPECT_THAT(words("--vocab-size 51200 --vocab-extra-ids 100"), HasSubstr("--vocab 50257"));
  EXPECT_EQ(use_of(read(base + "--vocab-size 51200"), "vocab_size"), "irrelevant");
  EXPECT_THAT(words("--tokenizer-type NullTokenizer --vocab-size 128 --vocab-extra-ids 100"), HasSubstr("--vocab 129"));
  EXPECT_THAT(words("--tokenizer-type TikTokenizer"), HasSubstr("--vocab 131072"));
  EXPECT_THAT(words("--tokenizer-type TikTokenizer --vocab-size 1000"), HasSubstr("--vocab 1000"));
  EXPECT_THAT(words("--tokenizer-type Llama2Tokenizer --vocab-size 1000"), HasSubstr("--vocab 32000"));
  EXPECT_THAT(words("--tokenizer-type SentencePieceTokenizer --vocab-size 1000 --vocab-extra-ids 100"),
              HasSubstr("--vocab 1100"));
}

TEST(MegatronArguments, WordsThatNothingSaysAreAskedFor) {
  const std::string line =
      "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
      "--max-position-embeddings 64 --micro-batch-size 1 --tokenizer-type HuggingFaceTokenizer";
  EXPECT_THAT(refusal_of([&] { (void)config_beside(read(line), {}); }),
              HasSubstr("/tokenizer_type: how many words HuggingFaceTokenizer has is not known; accepted: --vocab N"));
  const std::vector<ConfigOption> typed = {{"--vocab", "128256", ""}};
  EXPECT_THAT(text_of(config_beside(read(line), typed).options), Not(HasSubstr("--vocab")));
  const ConfigFile without = read_command_line(split(line), {"tokenizer_type"});
  EXPECT_THAT(refusal_of([&] { (void)config_beside(without, {}); }), HasSubstr("accepted: --vocab N"));
}

TEST(MegatronArguments, ValuesBehindAnEqualsSignAreTheSame) {
  const ConfigFile file = read(
      "python train.py --num-layers=12 --hidden-size=768 --num-attention-heads=12 --seq-length=1024 "
      "--max-position-embeddings=1024 --micro-batch-size=4 --no-load-optim");
  EXPECT_EQ(file.program, "Megatron-LM core_r0.14.0");
  EXPECT_EQ(use_of(file, "no_load_optim"), "irrelevant");
}

TEST(MegatronArguments, LayersAndTokensHaveTwoNamesEach) {
  const std::string t5 =
      text_of(read("python pretrain_t5.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 512 "
                   "--decoder-seq-length 128 --max-position-embeddings 512 --micro-batch-size 4")
                  .options);
  EXPECT_THAT(t5, HasSubstr("--arch t5"));
  EXPECT_THAT(t5, HasSubstr("--layers 12"));
  EXPECT_THAT(t5, HasSubstr("--seq 512 --target-seq 128"));
  const std::string gpt =
      text_of(read("python pretrain_gpt.py --encoder-num-layers 12 --hidden-size 768 --num-attention-heads 12 "
                   "--encoder-seq-length 512 --max-position-embeddings 512 --micro-batch-size 4")
                  .options);
  EXPECT_THAT(gpt, HasSubstr("--arch gpt2 --layers 12"));
  EXPECT_THAT(gpt, HasSubstr("--seq 512"));
}

TEST(MegatronArguments, WhatIsMissingIsSaid) {
  const std::string line = "python pretrain_gpt.py --hidden-size 64 --num-attention-heads 4 --seq-length 64 ";
  EXPECT_THAT(refused(line + "--max-position-embeddings 64 --micro-batch-size 1"),
              HasSubstr("/num_layers: it is missing"));
  EXPECT_THAT(refused(line + "--max-position-embeddings 64 --num-layers 2"),
              HasSubstr("/micro_batch_size: it is missing"));
}

TEST(MegatronArguments, FormsOfAGptAreNotModelledOfBertAndT5) {
  const std::string bert =
      "python pretrain_bert.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
      "--max-position-embeddings 64 --micro-batch-size 1 ";
  const std::string t5 =
      "python pretrain_t5.py --encoder-num-layers 2 --hidden-size 64 --num-attention-heads 4 --encoder-seq-length 64 "
      "--decoder-seq-length 16 --max-position-embeddings 64 --micro-batch-size 1 ";
  for (const std::string& base : {bert, t5}) {
    for (const std::string key : {"position-embedding-type relative", "use-rotary-position-embeddings",
                                  "group-query-attention", "qk-layernorm", "add-qkv-bias", "num-experts 8"}) {
      std::string name = key.substr(0, key.find(' '));
      std::replace(name.begin(), name.end(), '-', '_');
      EXPECT_THAT(refused(base + "--" + key), HasSubstr("/" + name)) << key;
    }
    EXPECT_EQ(refused(base + "--position-embedding-type learned_absolute"), "no error");
  }
  EXPECT_THAT(refused(bert + "--kv-channels 32"), HasSubstr("/kv_channels"));
  EXPECT_EQ(refused(bert + "--kv-channels 16"), "no error");
}

TEST(MegatronArguments, VirtualStagesCountTheEmbeddingAndTheLossWhereTheyAreToldTo) {
  const std::string line =
      "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 30 --hidden-size 64 --num-attention-heads 4 "
      "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --pipeline-model-parallel-size 4 "
      "--num-layers-per-virtual-pipeline-stage 2 ";
  EXPECT_THAT(
      text_of(read(line + "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split").options),
      HasSubstr("--virtual-stages 4"));
  EXPECT_THAT(refused(line), HasSubstr("a number that divides the layers of a stage"));
}

TEST(MegatronArguments, RecomputedActivationsTakeThePlaceOfTheGranularity) {
  const std::string base =
      "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
      "--max-position-embeddings 64 --micro-batch-size 1 --recompute-granularity full ";
  EXPECT_THAT(text_of(read(base).options), HasSubstr("--checkpointing full"));
  EXPECT_THAT(text_of(read(base + "--recompute-activations").options), HasSubstr("--checkpointing selective"));
}

TEST(MegatronArguments, WhatIsLeftOutIsApproximated) {
  const ConfigFile file = read(
      "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
      "--max-position-embeddings 64 --micro-batch-size 1 --empty-unused-memory-level 1 --overlap-grad-reduce");
  EXPECT_EQ(use_of(file, "empty_unused_memory_level"), "approximated");
  EXPECT_EQ(use_of(file, "overlap_grad_reduce"), "approximated");
  EXPECT_THAT(text_of(file.options), Not(HasSubstr("overlap-grad-reduce")));
}

TEST(MegatronArguments, AModelsConfigIsNone) {
  const test::Written file(R"({"architectures": ["GPT2LMHeadModel"], "num_attention_heads": 12})", "config.json");
  EXPECT_THAT(file.refusal(), HasSubstr("it is a model's config.json; accepted: --model FILE"));
}

}  // namespace
}  // namespace memcalc
