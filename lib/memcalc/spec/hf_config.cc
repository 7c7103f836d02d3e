#include "memcalc/spec/hf_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "memcalc/spec/family.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/native_format.h"
#include "memcalc/spec/text_part.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

/// A name that people meet, of transformers or of the hub's own code: the file is right and memcalc is not there.
struct OtherType {
  std::string_view model_type;
  std::string_view why = {};  // empty: nobody has built it yet
};

constexpr std::string_view kSpeechTokens =
    "it trains a second decoder on frames of sound, as many as its labels choose (llama and qwen3 have its backbones)";
constexpr std::string_view kBlockDiffusion =
    "its step holds noised blocks of tokens beside the clean ones (llada and Dream are modelled)";
constexpr std::string_view kMixtureOfDiffusion =
    "its experts are the hub's own code, which was not read (llada and Dream are modelled)";
constexpr std::string_view kStep =
    "its attention (factorised queries, or heads that differ by layer) is no family here";
constexpr std::string_view kRecorded =
    "programs answer at the sizes that they were recorded with ('memcalc models' lists them); python -m memcalc.record "
    "--hf config.json records yours";

constexpr OtherType kOtherTypes[] = {
    {"audio-spectrogram-transformer", kRecorded},
    {"beit", kRecorded},
    {"convnext"},
    {"convnextv2", kRecorded},
    {"csm", kSpeechTokens},
    {"dbrx"},
    {"deberta"},
    {"detr", kRecorded},
    {"diffusion_gemma", kBlockDiffusion},
    {"dinov2", kRecorded},
    {"dinov3_vit", kRecorded},
    {"efficientnet"},
    {"esm", kRecorded},
    {"glm_ocr", kRecorded},
    {"gpt_bigcode"},
    {"gpt_neo"},
    {"hubert", kRecorded},
    {"idefics3", kRecorded},
    {"llada2_moe", kMixtureOfDiffusion},
    {"llada_moe", kMixtureOfDiffusion},
    {"lladamoe", kMixtureOfDiffusion},
    {"longformer"},
    {"mask2former", kRecorded},
    {"mobilenet_v2"},
    {"paddleocr_vl", kRecorded},
    {"parakeet_ctc", kRecorded},
    {"qwen3_asr", kRecorded},
    {"qwen3_tts", kSpeechTokens},
    {"resnet"},
    {"rt_detr", kRecorded},
    {"rt_detr_v2", kRecorded},
    {"sam2", kRecorded},
    {"sam3", kRecorded},
    {"sdar", kBlockDiffusion},
    {"sdar_moe", kBlockDiffusion},
    {"segformer", kRecorded},
    {"siglip", kRecorded},
    {"smolvlm", kRecorded},
    {"step3_text", kStep},
    {"step3_vl", kStep},
    {"step3p5", kStep},
    {"step3p7", kStep},
    {"swin"},
    {"swinv2", kRecorded},
    {"vision-encoder-decoder", kRecorded},
    {"wav2vec2", kRecorded},
    {"zamba2"},
};

const Family& family_named(const JsonObject& config, const std::string& model_type) {
  const Family* const family = find_family(model_type);
  if (family != nullptr && family->read != nullptr) return *family;
  constexpr const char* kAccepted =
      "a model of a family here ('memcalc models' lists them), or its program: python -m memcalc.record --hf "
      "config.json";
  const auto* const other = std::find_if(std::begin(kOtherTypes), std::end(kOtherTypes),
                                         [&](const OtherType& each) { return each.model_type == model_type; });
  if (other != std::end(kOtherTypes)) {
    throw config.error("model_type",
                       other->why.empty() ? model_type + " is not modelled yet; accepted: " + kAccepted
                                          : model_type + " is not modelled: " + std::string(other->why) +
                                                "; in Python memcalc.Model.from_module() takes any torch module",
                       ErrorCode::kUnsupported);
  }
  throw config.error_found("model_type", kAccepted + did_you_mean(model_type, modelled_types()));
}

/// The configuration's own, else that of the text model in it, as GenerationConfig.from_model_config looks for it
/// (transformers 5.17), which takes null for nothing.
bool use_cache_of(const JsonObject& config, const Family& family) {
  if (const std::optional<bool> own = config.nullable_bool("use_cache")) return *own;
  const std::optional<JsonObject> text = config.nullable_object("text_config");
  return (text ? text->nullable_bool("use_cache") : std::nullopt).value_or(family.use_cache_by_default);
}

}  // namespace

void take_as_transformers(ModelSpec& model) {
  const Family* const family = family_of(model);
  if (family != nullptr && family->as_transformers != nullptr) family->as_transformers(model);
}

std::vector<std::string> modelled_types() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    if (family->read != nullptr) names.emplace_back(family->model_type);
  }
  return names;
}

ModelSpec model_from_hf_config(const JsonObject& config, std::string name) {
  if (is_lit_config(config)) return model_from_lit_config(config, std::move(name));
  if (config.has("needed_bytes") && config.has("run")) {
    throw config.error("", "this is a report of memcalc, not a model; accepted: --config with it");
  }
  const std::string whole_type = config.required_string("model_type");
  const std::optional<TextPart> part = text_part_of(config, whole_type);
  const std::string model_type = part ? part->model_type : whole_type;
  const JsonObject read_config = part ? part->config.root() : config;
  const Family& family = family_named(config, model_type);
  HfReader reader(read_config, model_type);
  if (part) reader.assume(part->assumption);
  ModelSpec model;
  model.checkpoint_quantization = checkpoint_quantization(reader, model_type);
  model.name = std::move(name);
  model.model_type = model_type;
  model.architecture = family.read(reader);
  model.use_cache = model.generation_cache = use_cache_of(config, family);
  model.checkpoint_dtype = reader.dtype();
  model.assumptions = reader.assumptions();
  return model;
}

std::string config_name(const JsonObject& config, const std::string& path) {
  // A hub id or the directory that from_pretrained() was given; its last part is the name.
  std::string given = config.nullable_string("_name_or_path").value_or("");
  while (given.ends_with('/')) given.pop_back();
  const std::string last = given.substr(given.rfind('/') + 1);  // npos + 1 == 0
  if (!last.empty() && last != "." && last != "..") return last;
  const fs::path file = fs::path(path).filename();
  if (file != "config.json") return file.stem().string();
  std::error_code status;
  const fs::path directory = fs::absolute(path, status).lexically_normal().parent_path().filename();
  return status || directory.empty() ? file.stem().string() : directory.string();
}

}  // namespace memcalc
