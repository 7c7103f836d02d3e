// memcalc's event stream against recorded ones, event by event: 12 allocator histories and 181 more with operators
// (requested bytes from the model's construction through three steps) and 17 traces (block bytes of a steady step).
// A failure prints the first event that differs, with both operators and what is around it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/alloc/replay.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/train/step.h"
#include "support/history.h"
#include "support/measured_case.h"
#include "support/paths.h"
#include "support/stream.h"

namespace memcalc::measured {
namespace {

enum class Expected : std::uint8_t {
  kEqual,      // every event, in order
  kHashOrder,  // the same once the frees at autocast's exit are sorted (sort_autocast_exits says why)
  kShare,      // at least this share of the events; a floor, so that it can only rise
};
using enum Expected;

struct Expectation {
  const char* file;
  Expected expected = kEqual;
  double share = 1;
  // The Trainer shuffles its dataset, half of which is padded. Where the third batch happened to hold no padding the
  // fourth, which does, stands for it: memcalc asks what a run with padding needs.
  std::int16_t third_step = 2;
};

// PrintTo: what GoogleTest shows instead of bytes.
void PrintTo(const Expectation& expectation, std::ostream* out) { *out << expectation.file; }

// clang-format off
constexpr Expectation kHistories[] = {
    {"allocator/bert-large-2l-amp-fp16", kHashOrder},
    {"allocator/bert-large-2l-fp32"},
    {"allocator/bert-large-b4-s512-amp-fp16", kHashOrder},
    {"allocator/bert-large-b4-s512-fp32"},
    {"allocator/bert-large-b4-s512-fp32-ckpt"},
    {"allocator/gpt2-2l-bf16"},
    {"allocator/llama-3.2-1b-2l-amp-bf16"},
    {"allocator/llama-3.2-1b-2l-bf16"},
    {"allocator/llama-3.2-1b-b4-s2048-bf16-ckpt"},
    {"allocator/mixtral-8x0.3b-2l-bf16"},
    {"allocator/qwen3-0.6b-b4-s1024-bf16"},
    {"allocator/t5-base-2l-fp32"},
    {"histories/bare-bert-base-2l-b144-s512-amp-bf16", kHashOrder},
    {"histories/bare-bert-large-2l-amp-bf16-lora-qv-dropout", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-ckpt", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-clip-accum2", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-eager", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-freeze-emb-1", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-fused", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-lora", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-nodrop", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-opt-adafactor", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-opt-adamw-8bit", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-opt-rmsprop", kHashOrder},
    {"histories/bare-bert-large-2l-amp-fp16-padding", kHashOrder},
    {"histories/bare-bert-large-2l-b5-s200-amp-bf16", kHashOrder},
    {"histories/bare-bert-large-2l-bf16-clip"},
    {"histories/bare-bert-large-2l-fp16"},
    {"histories/bare-bert-large-2l-fp32-ckpt"},
    {"histories/bare-bert-large-2l-fp32-eager-padding"},
    {"histories/bare-bert-large-2l-fp32-for"},
    {"histories/bare-bert-large-2l-fp32-freeze-base"},
    {"histories/bare-bert-large-2l-fp32-fused"},
    {"histories/bare-bert-large-2l-fp32-lora-seqcls"},
    {"histories/bare-bert-large-2l-fp32-nf4-lora"},
    {"histories/bare-bert-large-2l-fp32-opt-adafactor-hf-relative"},
    {"histories/bare-bert-large-2l-fp32-opt-adafactor-torch"},
    {"histories/bare-bert-large-2l-fp32-opt-adafactor"},
    {"histories/bare-bert-large-2l-fp32-opt-adagrad-for"},
    {"histories/bare-bert-large-2l-fp32-opt-adagrad"},
    {"histories/bare-bert-large-2l-fp32-opt-adam"},
    {"histories/bare-bert-large-2l-fp32-opt-adamax"},
    {"histories/bare-bert-large-2l-fp32-opt-adamw-8bit"},
    {"histories/bare-bert-large-2l-fp32-opt-adamw-amsgrad"},
    {"histories/bare-bert-large-2l-fp32-opt-adamw-bnb"},
    {"histories/bare-bert-large-2l-fp32-opt-adamw-for"},
    {"histories/bare-bert-large-2l-fp32-opt-adamw-fused"},
    {"histories/bare-bert-large-2l-fp32-opt-adamw"},
    {"histories/bare-bert-large-2l-fp32-opt-lion-8bit"},
    {"histories/bare-bert-large-2l-fp32-opt-lion"},
    {"histories/bare-bert-large-2l-fp32-opt-muon"},
    {"histories/bare-bert-large-2l-fp32-opt-nadam"},
    {"histories/bare-bert-large-2l-fp32-opt-paged-adamw-8bit"},
    {"histories/bare-bert-large-2l-fp32-opt-paged-adamw"},
    {"histories/bare-bert-large-2l-fp32-opt-paged-lion-8bit"},
    {"histories/bare-bert-large-2l-fp32-opt-paged-lion"},
    {"histories/bare-bert-large-2l-fp32-opt-radam"},
    {"histories/bare-bert-large-2l-fp32-opt-rmsprop-8bit"},
    {"histories/bare-bert-large-2l-fp32-opt-rmsprop"},
    {"histories/bare-bert-large-2l-fp32-opt-sgd-wd"},
    {"histories/bare-bert-large-2l-fp32-opt-sgd"},
    {"histories/bare-bert-large-2l-fp32-opt-sgdm-8bit"},
    {"histories/bare-bert-large-2l-fp32-opt-sgdm"},
    {"histories/bare-bert-large-2l-fp32-padding"},
    {"histories/bare-bert-large-2l-fp32-sgd"},
    {"histories/bare-bert-large-2l-fp32-sgdm"},
    {"histories/bare-bert-large-2l-tf32"},
    {"histories/bare-bert-large-mlm-2l-amp-bf16", kHashOrder},
    {"histories/bare-bert-large-mlm-2l-fp32"},
    {"histories/bare-custom-cnn-amp-bf16-i64", kHashOrder},
    {"histories/bare-custom-cnn-amp-fp16-i64", kHashOrder},
    {"histories/bare-custom-cnn-bf16-i64"},
    {"histories/bare-custom-cnn-fp32-i224"},
    {"histories/bare-custom-cnn-fp32-i64"},
    {"histories/bare-custom-convnet-amp-bf16", kHashOrder},
    {"histories/bare-custom-convnet-amp-fp16", kHashOrder},
    {"histories/bare-custom-convnet-bf16"},
    {"histories/bare-custom-convnet-fp32-ckpt"},
    {"histories/bare-custom-convnet-fp32"},
    {"histories/bare-custom-decoder-amp-bf16", kHashOrder},
    {"histories/bare-custom-decoder-bf16"},
    {"histories/bare-custom-decoder-fp32"},
    {"histories/bare-custom-encoder-amp-bf16", kHashOrder},
    {"histories/bare-custom-encoder-amp-fp16-s100", kHashOrder},
    {"histories/bare-custom-encoder-bf16"},
    {"histories/bare-custom-encoder-fp32-ckpt"},
    {"histories/bare-custom-encoder-fp32"},
    {"histories/bare-custom-grouped_decoder-amp-bf16-ckpt", kHashOrder},
    {"histories/bare-custom-grouped_decoder-amp-bf16", kHashOrder},
    {"histories/bare-custom-grouped_decoder-bf16-ckpt"},
    {"histories/bare-custom-grouped_decoder-bf16"},
    {"histories/bare-custom-grouped_decoder-fp32"},
    {"histories/bare-custom-mlp-amp-bf16", kHashOrder},
    {"histories/bare-custom-mlp-bf16"},
    {"histories/bare-custom-mlp-fp32"},
    {"histories/bare-custom-patches-amp-bf16", kHashOrder},
    {"histories/bare-custom-patches-bf16"},
    {"histories/bare-custom-patches-fp32"},
    {"histories/bare-custom-patches-tf32"},
    {"histories/bare-custom-tagger-amp-bf16", kHashOrder},
    {"histories/bare-custom-tagger-bf16"},
    {"histories/bare-custom-tagger-fp32"},
    // Kernels of width 1 over a sequence: which engine cuDNN picks, and so its workspace, is not known.
    {"histories/bare-custom-text_cnn-amp-bf16", kShare, 0.991},
    {"histories/bare-custom-text_cnn-amp-fp16-s100", kShare, 0.977},
    {"histories/bare-custom-text_cnn-bf16", kShare, 0.989},
    {"histories/bare-custom-text_cnn-fp32"},
    {"histories/bare-deepseek-v2-groups-2l-amp-bf16"},
    {"histories/bare-deepseek-v2-groups-2l-bf16"},
    {"histories/bare-deepseek-v2-groups-2l-bf16-eager"},
    {"histories/bare-deepseek-v2-groups-2l-fp32-ckpt"},
    {"histories/bare-deepseek-v2-small-2l-bf16"},
    {"histories/bare-deepseek-v2-small-2l-fp32"},
    {"histories/bare-deepseek-v3-small-2l-amp-bf16"},
    {"histories/bare-deepseek-v3-small-2l-bf16"},
    {"histories/bare-deepseek-v3-small-2l-bf16-ckpt"},
    {"histories/bare-deepseek-v3-small-2l-fp32"},
    {"histories/bare-gemma-2b-2l-bf16"},
    {"histories/bare-gemma2-2b-2l-bf16"},
    {"histories/bare-gemma2-2b-2l-bf16-eager"},
    {"histories/bare-gemma3-1b-2l-amp-bf16-p2"},
    {"histories/bare-gemma3-1b-2l-bf16-eager-pad"},
    {"histories/bare-gemma3-1b-2l-bf16-lora"},
    {"histories/bare-gpt-oss-small-2l-amp-bf16", kHashOrder},
    {"histories/bare-gpt-oss-small-2l-bf16-ckpt"},
    {"histories/bare-gpt-oss-small-2l-bf16-eager"},
    {"histories/bare-gpt-oss-small-2l-bf16-pad"},
    {"histories/bare-gpt-oss-small-2l-bf16-s77-b3"},
    {"histories/bare-gpt-oss-small-2l-fp32"},
    {"histories/bare-gpt2-2l-amp-bf16-ckpt", kHashOrder},
    {"histories/bare-gpt2-2l-amp-bf16-eager", kHashOrder},
    {"histories/bare-gpt2-2l-amp-bf16-lora-dropout", kHashOrder},
    {"histories/bare-gpt2-2l-amp-bf16-padding", kHashOrder},
    {"histories/bare-gpt2-2l-bf16-eager"},
    {"histories/bare-gpt2-2l-bf16-padding"},
    {"histories/bare-gpt2-2l-fp32"},
    {"histories/bare-gpt2-2l-fp32-ckpt"},
    {"histories/bare-gpt2-2l-fp32-eager"},
    {"histories/bare-llama-3.2-1b-2l-amp-bf16-ckpt", kHashOrder},
    {"histories/bare-llama-3.2-1b-2l-amp-bf16-liger", kHashOrder},
    {"histories/bare-llama-3.2-1b-2l-amp-bf16-lora", kHashOrder},
    {"histories/bare-llama-3.2-1b-2l-amp-bf16-padding"},
    {"histories/bare-llama-3.2-1b-2l-amp-fp16"},
    {"histories/bare-llama-3.2-1b-2l-bf16-ckpt"},
    {"histories/bare-llama-3.2-1b-2l-bf16-eager"},
    {"histories/bare-llama-3.2-1b-2l-bf16-eager-padding"},
    {"histories/bare-llama-3.2-1b-2l-bf16-freeze-layer0"},
    {"histories/bare-llama-3.2-1b-2l-bf16-liger"},
    {"histories/bare-llama-3.2-1b-2l-bf16-liger-ckpt", kShare, 0.99},
    {"histories/bare-llama-3.2-1b-2l-bf16-lora"},
    {"histories/bare-llama-3.2-1b-2l-bf16-lora-ckpt"},
    {"histories/bare-llama-3.2-1b-2l-bf16-lora-dropout-base-ckpt"},
    {"histories/bare-llama-3.2-1b-2l-bf16-lora-qv"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-adafactor-torch"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-adafactor"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-adagrad"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-adamw-8bit"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-adamw-for"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-lion-8bit"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-lion"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-muon"},
    {"histories/bare-llama-3.2-1b-2l-bf16-opt-rmsprop"},
    {"histories/bare-llama-3.2-1b-2l-bf16-padding-ckpt"},
    {"histories/bare-llama-3.2-1b-2l-bf16-padding"},
    {"histories/bare-llama-3.2-1b-2l-bf16-padding-ckpt"},
    {"histories/bare-llama-3.2-1b-2l-bf16-s77-b3"},
    {"histories/bare-llama-3.2-1b-2l-fp32"},
    {"histories/bare-llama-3.2-1b-2l-fp32-eager"},
    {"histories/bare-llama-3.2-1b-2l-fp32-liger", kShare, 0.99},
    {"histories/bare-llama-3.2-1b-2l-fp32-lora"},
    {"histories/bare-llama-3.2-1b-2l-fp32-padding"},
    {"histories/bare-mistral-7b-2l-bf16"},
    {"histories/bare-mistral-7b-2l-bf16-win"},
    {"histories/bare-mixtral-8x0.3b-2l-amp-bf16"},
    {"histories/bare-mixtral-8x0.3b-2l-bf16-ckpt"},
    {"histories/bare-mixtral-8x0.3b-2l-bf16-eager"},
    {"histories/bare-mixtral-8x0.3b-2l-bf16-s77-b3"},
    {"histories/bare-mixtral-8x0.3b-2l-fp16"},
    {"histories/bare-mixtral-8x0.3b-2l-fp32"},
    {"histories/bare-olmo2-2l-bf16"},
    {"histories/bare-opt-125m-2l-amp-fp16-350m", kHashOrder},
    {"histories/bare-opt-125m-2l-bf16"},
    {"histories/bare-opt-125m-2l-fp32-pad"},
    {"histories/bare-phi-2-2l-bf16"},
    {"histories/bare-phi3-2l-bf16"},
    {"histories/bare-pythia-410m-2l-amp-fp16-seq-pad", kHashOrder},
    {"histories/bare-pythia-410m-2l-bf16-lora"},
    {"histories/bare-pythia-410m-2l-fp32-eager"},
    {"histories/bare-qwen2.5-0.5b-2l-bf16-lora"},
    {"histories/bare-qwen3-0.6b-2l-bf16-liger"},
    {"histories/bare-qwen3-0.6b-2l-bf16-win-ckpt"},
    {"histories/bare-qwen3-moe-1b-2l-amp-bf16"},
    {"histories/bare-qwen3-moe-1b-2l-bf16"},
    {"histories/bare-qwen3-moe-1b-2l-bf16-ckpt"},
    {"histories/bare-qwen3-moe-1b-2l-bf16-s1200-pad"},
    {"histories/bare-qwen3-moe-1b-2l-fp32"},
    {"histories/bare-roberta-large-mlm-2l-amp-bf16", kHashOrder},
    {"histories/bare-roberta-large-mlm-2l-b3-s77-fp32-padding"},
    {"histories/bare-roberta-large-mlm-2l-fp32"},
    {"histories/bare-smollm2-2l-bf16"},
    {"histories/bare-t5-base-2l-fp32-lora"},
    {"histories/bare-tinyllama-1.1b-2l-amp-bf16-nf4-kbit-ckpt", kHashOrder},
    // Columns of outliers are split off by value; docs/not-modelled.md, LLM.int8.
    {"histories/bare-tinyllama-1.1b-2l-bf16-int8-lora", kShare, 0.957},
    {"histories/bare-tinyllama-1.1b-2l-bf16-nf4-dq-kbit"},
    {"histories/bare-tinyllama-1.1b-2l-bf16-nf4-dq-lora"},
    {"histories/bare-tinyllama-1.1b-2l-bf16-nf4-lora"},
    {"histories/bare-tinyllama-2l-fp16"},
    {"histories/bare-bert-large-2l-amp-fp16-ckpt-selective", kHashOrder},
    {"histories/bare-bert-large-2l-fp32-offload-act"},
    {"histories/bare-bert-large-4l-fp32-ckpt-every-2"},
    {"histories/bare-llama-3.2-1b-2l-amp-bf16-offload-act", kHashOrder},
    {"histories/bare-llama-3.2-1b-2l-bf16-offload-act"},
    {"histories/bare-llama-3.2-1b-4l-bf16-ckpt-every-2"},
    // Recorded with the KV cache, to which recomputed layers append again; memcalc leaves it out and says so.
    {"histories/bare-llama-3.2-1b-2l-bf16-ckpt-selective", kShare, 0.95},
    {"histories/bare-llama-3.2-1b-2l-fp32-ckpt-selective", kShare, 0.95},
    {"histories/trainer-bert-large-2l-amp-bf16", kHashOrder},
    {"histories/trainer-bert-large-2l-amp-fp16", kHashOrder},
    {"histories/trainer-bert-large-2l-amp-fp16-accum2", kHashOrder},
    {"histories/trainer-bert-large-2l-amp-fp16-adamw_torch", kHashOrder},
    {"histories/trainer-bert-large-2l-amp-fp16-eager", kHashOrder},
    {"histories/trainer-bert-large-2l-amp-fp16-padding", kHashOrder, 1, 3},
    {"histories/trainer-bert-large-2l-amp-fp16-padding-ckpt", kHashOrder, 1, 3},
    {"histories/trainer-bert-large-2l-amp-fp16-sgd", kHashOrder},
    {"histories/trainer-bert-large-2l-b1x4-amp-fp16-ckpt", kHashOrder},
    {"histories/trainer-bert-large-2l-b5-s200-amp-fp16", kHashOrder},
    {"histories/trainer-bert-large-2l-bf16"},
    {"histories/trainer-bert-large-2l-fp32"},
    {"histories/trainer-bert-large-2l-fp32-accum2"},
    {"histories/trainer-bert-large-2l-fp32-adamw_torch"},
    {"histories/trainer-bert-large-2l-fp32-ckpt"},
    {"histories/trainer-bert-large-2l-fp32-noclip"},
    {"histories/trainer-bert-large-2l-fp32-opt-adafactor"},
    {"histories/trainer-bert-large-2l-fp32-opt-adagrad"},
    {"histories/trainer-bert-large-2l-fp32-opt-adamw_bnb_8bit"},
    {"histories/trainer-bert-large-2l-fp32-opt-lion_32bit"},
    {"histories/trainer-bert-large-2l-fp32-opt-lion_8bit"},
    {"histories/trainer-bert-large-2l-fp32-opt-paged_adamw_32bit"},
    {"histories/trainer-bert-large-2l-fp32-opt-paged_adamw_8bit"},
    {"histories/trainer-bert-large-2l-fp32-opt-paged_lion_8bit"},
    {"histories/trainer-bert-large-2l-fp32-opt-rmsprop"},
    {"histories/trainer-bert-large-2l-fp32-opt-sgd"},
    {"histories/trainer-bert-large-2l-fp32-padding", kEqual, 1, 3},
    {"histories/trainer-bert-large-mlm-2l-amp-bf16-ckpt", kHashOrder},
    {"histories/trainer-bert-large-mlm-2l-amp-fp16", kHashOrder},
    {"histories/trainer-deepseek-v3-small-2l-amp-bf16"},
    {"histories/trainer-gemma2-2b-2l-fp32-pad"},
    {"histories/trainer-gemma3-1b-2l-fp32-ckpt"},
    {"histories/trainer-gpt-oss-small-2l-bf16"},
    {"histories/trainer-gpt2-2l-amp-bf16", kHashOrder},
    {"histories/trainer-gpt2-2l-amp-bf16-ckpt", kHashOrder},
    {"histories/trainer-gpt2-2l-amp-fp16-padding", kHashOrder, 1, 3},
    {"histories/trainer-gpt2-2l-b3-s500-amp-fp16", kHashOrder},
    {"histories/trainer-gpt2-2l-bf16"},
    {"histories/trainer-gpt2-2l-bf16-padding", kEqual, 1, 3},
    {"histories/trainer-gpt2-2l-fp32"},
    {"histories/trainer-gpt2-2l-fp32-padding", kEqual, 1, 3},
    {"histories/trainer-llama-3.2-1b-2l-amp-bf16"},
    {"histories/trainer-llama-3.2-1b-2l-amp-bf16-ckpt", kHashOrder},
    {"histories/trainer-llama-3.2-1b-2l-amp-bf16-opt-adafactor", kHashOrder},
    {"histories/trainer-llama-3.2-1b-2l-amp-bf16-padding"},
    {"histories/trainer-llama-3.2-1b-2l-bf16"},
    {"histories/trainer-llama-3.2-1b-2l-bf16-accum2"},
    {"histories/trainer-llama-3.2-1b-2l-bf16-ckpt"},
    {"histories/trainer-llama-3.2-1b-2l-bf16-liger"},
    {"histories/trainer-llama-3.2-1b-2l-bf16-padding"},
    {"histories/trainer-llama-3.2-1b-2l-fp32"},
    {"histories/trainer-llama-3.2-1b-2l-fp32-ckpt"},
    {"histories/trainer-llama-3.2-1b-2l-fp32-padding"},
    {"histories/trainer-mistral-7b-2l-bf16"},
    {"histories/trainer-mixtral-8x0.3b-2l-amp-bf16"},
    {"histories/trainer-olmo2-2l-amp-bf16"},
    {"histories/trainer-opt-125m-2l-fp32-eager"},
    {"histories/trainer-phi-2-2l-amp-bf16", kHashOrder},
    {"histories/trainer-phi3-2l-fp32-part"},
    {"histories/trainer-qwen2.5-0.5b-2l-bf16-pad"},
    {"histories/trainer-qwen3-moe-1b-2l-amp-fp16"},
    {"histories/trainer-qwen3-moe-1b-2l-bf16"},
    {"histories/trainer-roberta-large-mlm-2l-amp-bf16", kHashOrder},
    {"histories/trainer-roberta-large-mlm-2l-amp-fp16-padding", kHashOrder, 1, 3},
    {"histories/trainer-roberta-large-mlm-2l-fp32"},
    {"histories/trainer-smollm2-2l-amp-bf16"},
    {"histories/trainer-tinyllama-2l-amp-fp16"},
};

constexpr Expectation kTraces[] = {
    {"bert-large-2l-trace-amp-fp16", kHashOrder},
    {"bert-large-2l-trace-fp32"},
    {"bert-large-2l-trace-fp32-ckpt"},
    {"bert-large-2l-trace-fp32-eager"},
    {"gpt2-2l-trace-amp-bf16", kHashOrder},
    {"gpt2-2l-trace-bf16"},
    {"mixtral-8x0.3b-2l-trace-bf16"},
    // LlamaUnderAutocastIsEqualWithTheLoggedSegments, below, says why.
    {"llama-3.2-1b-2l-trace-amp-bf16", kShare, 0.981},
    {"llama-3.2-1b-2l-trace-bf16"},
    {"llama-3.2-1b-2l-trace-bf16-accum2-clip"},
    {"llama-3.2-1b-2l-trace-bf16-ckpt"},
    {"llama-3.2-1b-2l-trace-fp32"},
    {"gemma3-1b-2l-trace-bf16"},
    {"pythia-410m-2l-trace-bf16"},
    {"qwen2.5-0.5b-2l-trace-bf16"},
    {"qwen3-0.6b-2l-trace-bf16"},
    {"t5-base-2l-trace-fp32"},
};
// clang-format on

void expect_as_stated(const Expectation& stated, Stream recorded, Stream predicted) {
  const Comparison raw = compare(recorded, predicted);
  ::testing::Test::RecordProperty("share_raw", std::to_string(raw.share()));
  if (stated.expected == kEqual) {
    EXPECT_TRUE(raw.equal()) << raw.matching << " of " << raw.events << " events match\n" << raw.first_difference;
    return;
  }
  sort_autocast_exits(recorded, predicted);
  const Comparison sorted = compare(recorded, predicted);
  ::testing::Test::RecordProperty("share_sorted", std::to_string(sorted.share()));
  EXPECT_GE(sorted.share(), stated.share) << sorted.matching << " of " << sorted.events << " events match\n"
                                          << sorted.first_difference;
  if (stated.expected == kHashOrder) {
    EXPECT_TRUE(sorted.equal()) << sorted.first_difference;
  }
}

std::string test_name(const ::testing::TestParamInfo<Expectation>& info) {
  std::string name = info.param.file;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.' || c == '/'; }, '_');
  return name;
}

class HistoryStream : public ::testing::TestWithParam<Expectation> {};

TEST_P(HistoryStream, RequestsAreThoseOfTheRecordedRun) {
  const Expectation& stated = GetParam();
  const RecordedHistory history = read_history_stream(std::string(stated.file) + ".history.tsv", stated.third_step);
  ASSERT_GT(history.events.size(), 150U) << "the reader lost the events";
  EXPECT_TRUE(stated.expected != kHashOrder || is_autocast(history.of.run.precision))
      << "without autocast nothing excuses another order";
  const SymbolicRun run = run_symbolically(history.of.spec, history.of.run, *history.of.device);
  expect_as_stated(stated, history.events, requests_of(run.trace, history));
}

INSTANTIATE_TEST_SUITE_P(All, HistoryStream, ::testing::ValuesIn(kHistories), test_name);

SymbolicRun run_of_trace(const std::string& id) {
  std::ifstream rows(test::measured_dir() / "single_gpu.jsonl");
  for (std::string row; std::getline(rows, row);) {
    const JsonDocument document = JsonDocument::parse(row, "single_gpu.jsonl");
    const JsonObject case_json = document.root().required_object("case");
    if (case_json.required_string("id") != id) continue;
    const MeasuredCase of = measured_case(case_json, Loop::kBare);
    return run_symbolically(of.spec, of.run, measured_device());
  }
  throw Error(ErrorCode::kInput, "single_gpu.jsonl has no row of " + id);
}

class TraceStream : public ::testing::TestWithParam<Expectation> {};

TEST_P(TraceStream, BlocksOfTheSteadyStepAreThoseOfTheRecordedOne) {
  const std::string id = GetParam().file;
  const SymbolicRun run = run_of_trace(id);
  const ReplayResult replayed =
      replay(run.trace, {.placement = &*measured_device().placement, .record_timeline = true});
  const bool amp = id.find("-amp-") != std::string::npos;
  expect_as_stated(GetParam(), read_trace_stream(id, amp), steady_blocks_of(run.trace, replayed));
}

INSTANTIATE_TEST_SUITE_P(All, TraceStream, ::testing::ValuesIn(kTraces), test_name);

// The one trace that differs does so in the size of 13 blocks: two free blocks of one size tie, and their addresses
// decide which keeps 1 MiB that is not split off. With the segments where the driver put them it is equal.
TEST(TraceStreams, LlamaUnderAutocastIsEqualWithTheLoggedSegments) {
  const SymbolicRun run = run_of_trace("llama-3.2-1b-2l-trace-amp-bf16");
  const std::vector<Bytes> segments = segment_addresses_of(read_history("llama-3.2-1b-2l-amp-bf16"));
  CachingAllocator allocator(SegmentPlacer::from_log(segments));
  (void)allocator.allocate(4);  // the recorder's warm-up, which took the first segment
  ReplayResult replayed;
  std::vector<CachingAllocator::Handle> handles(run.trace.blocks.size());
  for (const Event& event : run.trace.events) {
    TimelinePoint& point = replayed.timeline.emplace_back();
    if (event.kind == EventKind::kEmptyCache) {
      allocator.empty_cache();
      continue;
    }
    const auto block = static_cast<std::size_t>(event.block);
    const bool allocates = event.kind == EventKind::kAllocate;
    if (allocates) handles[block] = allocator.allocate(run.trace.blocks[block].requested);
    point.block_bytes = allocator.size_of(handles[block]);
    if (!allocates) allocator.free(handles[block]);
  }
  const Stream recorded = read_trace_stream("llama-3.2-1b-2l-trace-amp-bf16", true);
  EXPECT_EQ(compare(recorded, steady_blocks_of(run.trace, replayed)).first_difference, "");
}

std::set<std::string> files_in(const std::string& directory, const std::string& suffix) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::measured_dir() / directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(suffix)) names.insert(directory + "/" + name.substr(0, name.size() - suffix.size()));
  }
  return names;
}

TEST(Streams, EveryRecordedFileIsCompared) {
  std::set<std::string> compared;
  for (const Expectation& each : kHistories) compared.insert(each.file);
  for (const Expectation& each : kTraces) compared.insert("traces/" + std::string(each.file));
  std::set<std::string> files = files_in("histories", ".history.tsv");
  files.merge(files_in("traces", ".trace.tsv"));
  files.merge(files_in("allocator", ".history.tsv"));
  // A family that memcalc does not model.
  files.erase("allocator/resnet50-b8-fp32");
  EXPECT_THAT(compared, ::testing::ContainerEq(files));
}

// sort_autocast_exits forgives the order within the marked run of frees, nothing else.
StreamEvent event(char kind, Bytes bytes, bool exit = false) {
  StreamEvent result;
  result.is_free = kind == '-';
  result.phase = Phase::kForward;
  result.bytes = bytes;
  result.autocast_exit = exit;
  return result;
}

TEST(AutocastExits, OnlyTheirOrderIsForgiven) {
  const Stream recorded = {event('+', 8), event('-', 1),       event('-', 2),
                           event('+', 8), event('-', 3, true), event('-', 4)};
  Stream ours = {event('+', 8), event('-', 1), event('-', 2), event('+', 8), event('-', 4), event('-', 3)};
  const auto equal_when_sorted = [&](Stream predicted) {
    Stream sorted = recorded;
    sort_autocast_exits(sorted, predicted);
    return compare(sorted, predicted).equal();
  };
  EXPECT_FALSE(compare(recorded, ours).equal());
  EXPECT_TRUE(equal_when_sorted(ours));
  std::swap(ours[1], ours[2]);
  EXPECT_FALSE(equal_when_sorted(ours)) << "a run without autocast's exit";
  std::swap(ours[1], ours[2]);
  ours[4].bytes = 5;
  EXPECT_FALSE(equal_when_sorted(ours)) << "another size";
}

TEST(Compare, CountsWhatMatchesAndShowsWhereItParts) {
  const Stream recorded = {event('+', 1), event('+', 2), event('-', 1), event('+', 3), event('-', 3)};
  const Stream predicted = {event('+', 1), event('-', 1), event('+', 3), event('+', 4), event('-', 3), event('-', 4)};
  const Comparison comparison = compare(recorded, predicted);
  EXPECT_EQ(comparison.events, 6U);
  EXPECT_EQ(comparison.matching, 4U);
  EXPECT_THAT(comparison.first_difference, ::testing::HasSubstr("event 1 of 5 recorded, 6 predicted"));
  EXPECT_THAT(comparison.first_difference, ::testing::HasSubstr("recorded:  0 forward +2"));
  EXPECT_TRUE(compare(recorded, recorded).equal());
}

}  // namespace
}  // namespace memcalc::measured
