// config.json of CLIP, as transformers 5.17 reads it: models/clip.
#include <string>

#include "memcalc/families/clip/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

struct TowerDefaults {
  std::int64_t hidden_size, intermediate_size, num_attention_heads;
};

ClipTower tower(HfReader& config, const TowerDefaults& defaults) {
  ClipTower tower;
  tower.hidden_size = config.size({"hidden_size"}, defaults.hidden_size);
  tower.intermediate_size = config.size({"intermediate_size"}, defaults.intermediate_size);
  tower.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  tower.num_attention_heads = config.size({"num_attention_heads"}, defaults.num_attention_heads);
  tower.hidden_act = config.activation("hidden_act", "quick_gelu");
  tower.attention_dropout = config.probability("attention_dropout", 0);
  config.divides("num_attention_heads", tower.num_attention_heads, "hidden_size", tower.hidden_size);
  config.check_parameter_count([&] {
    return checked_multiply(
        tower.num_hidden_layers,
        checked_add(checked_multiply(4, linear_parameters(tower.hidden_size, tower.hidden_size)),
                    checked_multiply(2, linear_parameters(tower.hidden_size, tower.intermediate_size))));
  });
  return tower;
}

/// Reads `key` of the configuration, which may be absent, and keeps what it assumed.
template <typename Read>
void read_part(HfReader& config, const char* key, const Read& read) {
  const JsonDocument none = JsonDocument::parse("{}", config.json().file());
  const JsonObject part = config.json().nullable_object(key).value_or(none.root());
  HfReader reader(part, std::string("clip ") + key);
  read(reader);
  for (std::string& line : reader.assumptions()) config.assume(std::move(line));
}

Architecture clip(HfReader& config) {
  ClipSpec spec;
  spec.projection_dim = config.size({"projection_dim"}, 512);
  read_part(config, "text_config", [&](HfReader& text) {
    spec.text = tower(text, {.hidden_size = 512, .intermediate_size = 2048, .num_attention_heads = 8});
    spec.vocab_size = text.size({"vocab_size"}, 49408);
    spec.max_position_embeddings = text.size({"max_position_embeddings"}, 77);
    spec.pools_at_highest_id = text.json().nullable_int("eos_token_id").value_or(49407) == 2;
  });
  read_part(config, "vision_config", [&](HfReader& vision) {
    spec.vision = tower(vision, {.hidden_size = 768, .intermediate_size = 3072, .num_attention_heads = 12});
    spec.image_size = vision.size({"image_size"}, 224);
    spec.patch_size = vision.size({"patch_size"}, 32);
    spec.num_channels = vision.size({"num_channels"}, 3);
  });
  return spec;
}

constexpr Task kMeasured[] = {Task::kContrastive};

}  // namespace

const Family kClip = {
    .model_type = "clip",
    .kind = FamilyKind::kContrastive,
    .read = clip,
    .build = build_clip,
    .measured = kMeasured,
};

}  // namespace memcalc::family
