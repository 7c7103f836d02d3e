#include "memcalc/cost/trained_python.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

// transformers 5.17: instructions of Python 3.12 that forward with labels adds for a layer (tests/measured/
// python_counts.jsonl, "train"; most under 3.11, which runs 1.04 times as many), over the operators that memcalc has of
// it in bfloat16. An encoder-decoder's layer is one of both sides. Not counted: families whose layers take another way
// without a card (scans), and those that nobody ran. A copy of another's code has its number; torchvision's is the
// median of whole networks (82 of Swin to 174 of ResNet-18).
constexpr auto kInstructions = std::to_array<std::pair<std::string_view, int>>({
    {"albert", 153},
    {"apertus", 43},
    {"arcee", 62},
    {"bart", 153},
    {"bert", 244},
    {"bloom", 72},
    {"camembert", 244},
    {"cohere", 61},
    {"cohere2", 72},
    {"deberta-v2", 86},
    {"deepseek_v2", 53},
    {"deepseek_v3", 44},
    {"deepseek_v32", 45},
    {"deepseek_v4", 30},
    {"deit", 190},
    {"distilbert", 228},
    {"dots1", 43},
    {"electra", 244},
    {"ernie4_5", 54},
    {"ernie4_5_moe", 51},
    {"exaone4", 55},
    {"falcon", 64},
    {"gemma", 57},
    {"gemma2", 46},
    {"gemma3_text", 40},
    {"glm", 57},
    {"glm4", 47},
    {"glm4_moe", 42},
    {"glm4_moe_lite", 44},
    {"gpt2", 123},
    {"gpt_neox", 94},
    {"gpt_oss", 39},
    {"gptj", 54},
    {"granite", 61},
    {"granitemoe", 47},
    {"hunyuan_v1_dense", 51},
    {"hunyuan_v1_moe", 49},
    {"hy_v3", 44},
    {"kimi_k2", 44},
    {"lfm2", 82},
    {"lfm2_moe", 47},
    {"llama", 63},
    {"llama4_text", 67},
    {"m2m_100", 150},
    {"marian", 153},
    {"mbart", 153},
    {"mimo_v2_flash", 42},
    {"minicpm3", 51},
    {"minimax_m2", 42},
    {"minimax_m3_vl_text", 37},
    {"ministral3", 68},
    {"mistral", 63},
    {"mixtral", 49},
    {"modernbert", 78},
    {"mpnet", 117},
    {"mpt", 87},
    {"mt5", 80},
    {"nemotron", 84},
    {"nomic_bert", 102},
    {"olmo", 81},
    {"olmo2", 49},
    {"olmo3", 53},
    {"olmoe", 46},
    {"opt", 132},
    {"pegasus", 153},
    {"phi", 77},
    {"phi3", 66},
    {"qwen2", 65},
    {"qwen2_moe", 56},
    {"qwen3", 52},
    {"qwen3_moe", 44},
    {"roberta", 244},
    {"seed_oss", 62},
    {"smollm3", 73},
    {"stablelm", 91},
    {"starcoder2", 107},
    {"t5", 80},
    {"torchvision", 145},
    {"vit", 190},
    {"whisper", 114},
    {"xlm-roberta", 244},
    {"youtu", 51},
});

}  // namespace

double instructions_per_trained_operator(std::string_view model_type, double of_call) {
  constexpr double kMedian = 63;
  const auto* const found = std::lower_bound(kInstructions.begin(), kInstructions.end(), model_type,
                                             [](const auto& row, std::string_view name) { return row.first < name; });
  if (found != kInstructions.end() && found->first == model_type) return found->second;
  return of_call > 0 ? of_call : kMedian;
}

double instructions_with_adapters(double of_family, const KernelList& kernels, const RunSpec& run) {
  const std::optional<Lora>& lora = run.fine_tuning.lora;
  if (!lora || run.fine_tuning.unsloth) return of_family;
  // peft 0.21, tuners/lora/layer.py, Linear.forward(): 763 under Python 3.11 of LLaMA, BERT and GPT-2 alike, which runs
  // 1.04 times as many as 3.12. Two products, the scaling and the sum.
  constexpr double kOfAdapter = 731;
  const bool in_16_bits = run.precision == Precision::kBf16 || run.precision == Precision::kFp16;
  const double own = in_16_bits && !lora->in_base_dtype ? 6 : 4;  // two conversions, into the adapters' type and back
  double operators = 0, adapters = 0;
  for (const Kernel& kernel : kernels) {
    if ((kernel.phase != Phase::kForward && !kernel.recomputed) || kernel.kind == KernelKind::kPartOfPrevious ||
        is_of_autocast(kernel) || is_around_model(kernel)) {
      continue;
    }
    ++operators;
    const auto* product = kernel.as<work::Product>();
    if (product != nullptr && product->n == lora->rank && product->batch == 1) ++adapters;
  }
  if (operators <= 0) return of_family;
  const double others = operators - own * adapters;
  return (of_family * others + kOfAdapter * adapters) / operators;
}

}  // namespace memcalc
