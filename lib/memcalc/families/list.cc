// The families: a line each, in the order of their names: capitals first.
#include <algorithm>

#include "memcalc/spec/custom_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/program.h"

#define MEMCALC_FAMILIES(FAMILY) \
  FAMILY(kDream)                 \
  FAMILY(kAlbert)                \
  FAMILY(kApertus)               \
  FAMILY(kArcee)                 \
  FAMILY(kBamba)                 \
  FAMILY(kBart)                  \
  FAMILY(kBert)                  \
  FAMILY(kBloom)                 \
  FAMILY(kCamembert)             \
  FAMILY(kClip)                  \
  FAMILY(kCohere)                \
  FAMILY(kCohere2)               \
  FAMILY(kDebertaV2)             \
  FAMILY(kDeepseekOcr2Text)      \
  FAMILY(kDeepseekV2)            \
  FAMILY(kDeepseekV3)            \
  FAMILY(kDeepseekV32)           \
  FAMILY(kDeepseekV4)            \
  FAMILY(kDeit)                  \
  FAMILY(kDistilBert)            \
  FAMILY(kDots1)                 \
  FAMILY(kElectra)               \
  FAMILY(kErnie45)               \
  FAMILY(kErnie45Moe)            \
  FAMILY(kExaone4)               \
  FAMILY(kFalcon)                \
  FAMILY(kFalconH1)              \
  FAMILY(kGemma)                 \
  FAMILY(kGemma2)                \
  FAMILY(kGemma3)                \
  FAMILY(kGemma3Text)            \
  FAMILY(kGemma3n)               \
  FAMILY(kGemma3nText)           \
  FAMILY(kGemma4)                \
  FAMILY(kGemma4Text)            \
  FAMILY(kGemma4Unified)         \
  FAMILY(kGemma4UnifiedText)     \
  FAMILY(kGlm)                   \
  FAMILY(kGlm4)                  \
  FAMILY(kGlm4Moe)               \
  FAMILY(kGlm4MoeLite)           \
  FAMILY(kGlmMoeDsa)             \
  FAMILY(kGpt2)                  \
  FAMILY(kGptNeox)               \
  FAMILY(kGptOss)                \
  FAMILY(kGptj)                  \
  FAMILY(kGranite)               \
  FAMILY(kGraniteMoe)            \
  FAMILY(kGraniteMoeHybrid)      \
  FAMILY(kHunyuanV1Dense)        \
  FAMILY(kHunyuanV1Moe)          \
  FAMILY(kHyV3)                  \
  FAMILY(kInternLm2Reward)       \
  FAMILY(kInternVl)              \
  FAMILY(kJamba)                 \
  FAMILY(kKimiK2)                \
  FAMILY(kKimiLinear)            \
  FAMILY(kLfm2)                  \
  FAMILY(kLfm2Moe)               \
  FAMILY(kLitGpt)                \
  FAMILY(kLlada)                 \
  FAMILY(kLlama)                 \
  FAMILY(kLlama4)                \
  FAMILY(kLlama4Text)            \
  FAMILY(kLlava)                 \
  FAMILY(kM2M100)                \
  FAMILY(kMamba)                 \
  FAMILY(kMamba2)                \
  FAMILY(kMarian)                \
  FAMILY(kMbart)                 \
  FAMILY(kMiMoV2Flash)           \
  FAMILY(kMiniCpm3)              \
  FAMILY(kMiniMax)               \
  FAMILY(kMiniMaxM2)             \
  FAMILY(kMiniMaxM3Text)         \
  FAMILY(kMinistral3)            \
  FAMILY(kMistral)               \
  FAMILY(kMistral3)              \
  FAMILY(kMistral4)              \
  FAMILY(kMixtral)               \
  FAMILY(kMllama)                \
  FAMILY(kMllamaTextModel)       \
  FAMILY(kModernBert)            \
  FAMILY(kMpnet)                 \
  FAMILY(kMpt)                   \
  FAMILY(kMt5)                   \
  FAMILY(kMuseGlimmerText)       \
  FAMILY(kNemotron)              \
  FAMILY(kNemotronH)             \
  FAMILY(kNomicBert)             \
  FAMILY(kOlmo)                  \
  FAMILY(kOlmo2)                 \
  FAMILY(kOlmo3)                 \
  FAMILY(kOlmoe)                 \
  FAMILY(kOpt)                   \
  FAMILY(kPaliGemma)             \
  FAMILY(kPegasus)               \
  FAMILY(kPhi)                   \
  FAMILY(kPhi3)                  \
  FAMILY(kQwen2)                 \
  FAMILY(kQwen25Vl)              \
  FAMILY(kQwen2Moe)              \
  FAMILY(kQwen2Reward)           \
  FAMILY(kQwen2Vl)               \
  FAMILY(kQwen3)                 \
  FAMILY(kQwen35)                \
  FAMILY(kQwen35Moe)             \
  FAMILY(kQwen35MoeText)         \
  FAMILY(kQwen35Text)            \
  FAMILY(kQwen3Moe)              \
  FAMILY(kQwen3Next)             \
  FAMILY(kQwen3Vl)               \
  FAMILY(kQwen3VlMoe)            \
  FAMILY(kRoberta)               \
  FAMILY(kSeedOss)               \
  FAMILY(kSmolLm3)               \
  FAMILY(kStableLm)              \
  FAMILY(kStarcoder2)            \
  FAMILY(kT5)                    \
  FAMILY(kTorchvision)           \
  FAMILY(kVit)                   \
  FAMILY(kWhisper)               \
  FAMILY(kXlmRoberta)            \
  FAMILY(kYoutu)

namespace memcalc {

namespace family {
#define MEMCALC_DECLARE(name) extern const Family name;
MEMCALC_FAMILIES(MEMCALC_DECLARE)
#undef MEMCALC_DECLARE
}  // namespace family

namespace {

#define MEMCALC_ADDRESS(name) &family::name,
constexpr const Family* kFamilies[] = {MEMCALC_FAMILIES(MEMCALC_ADDRESS)};
#undef MEMCALC_ADDRESS

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family* find_family(std::string_view model_type) {
  const auto* const found =
      std::lower_bound(std::begin(kFamilies), std::end(kFamilies), model_type,
                       [](const Family* family, std::string_view name) { return family->model_type < name; });
  return found != std::end(kFamilies) && (*found)->model_type == model_type ? *found : nullptr;
}

const Family* family_of(const ModelSpec& model) {
  const bool has_none = model.architecture.is<ProgramSpec>() || model.architecture.is<CustomSpec>();
  return has_none ? nullptr : find_family(model.model_type);
}

SpecialTokens special_tokens_of(std::string_view model_type) {
  const Family* const family = find_family(model_type);
  return family != nullptr ? family->special_tokens : SpecialTokens{};
}

}  // namespace memcalc
