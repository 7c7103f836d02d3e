// config.json of ViT and DeiT, as transformers 5.17 reads it: models/vit, models/deit.
#include "memcalc/families/vit/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

VitSpec vit_or_deit(HfReader& config, bool deit) {
  VitSpec spec;
  spec.is_deit = deit;
  spec.hidden_size = config.size({"hidden_size"}, 768);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 12);
  spec.intermediate_size = config.size({"intermediate_size"}, 3072);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.hidden_dropout_prob = config.probability("hidden_dropout_prob", 0.0);
  spec.attention_probs_dropout_prob = config.probability("attention_probs_dropout_prob", 0.0);
  spec.image_size = config.size({"image_size"}, 224);
  spec.patch_size = config.size({"patch_size"}, 16);
  spec.num_channels = config.size({"num_channels"}, 3);
  spec.qkv_bias = config.flag("qkv_bias", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.check_parameter_count([&] {
    return checked_multiply(spec.num_hidden_layers, layer_parameters(spec.hidden_size, spec.intermediate_size, 2));
  });
  return spec;
}

Architecture vit(HfReader& config) { return vit_or_deit(config, /*deit=*/false); }

Architecture deit(HfReader& config) { return vit_or_deit(config, /*deit=*/true); }

// "ViTModel", which DeiTModel shares.
constexpr Renaming kVitRenamings[] = {{"encoder.layer.", "layers."},
                                      {"attention.query", "q_proj"},
                                      {"attention.key", "k_proj"},
                                      {"attention.value", "v_proj"},
                                      {"attention.output.dense", "attention.o_proj"},
                                      {"intermediate.dense", "mlp.fc1"},
                                      {"output.dense", "mlp.fc2"}};

}  // namespace

const Family kVit = {
    .model_type = "vit",
    .kind = FamilyKind::kImages,
    .read = vit,
    .build = build_vit,
    .size_keys = kImageKeys,
    .measured = kImageClassifier,
    .renamings = kVitRenamings,
    .dropout_is_module = false,
};

const Family kDeit = {
    .model_type = "deit",
    .kind = FamilyKind::kImages,
    .read = deit,
    .build = build_vit,
    .size_keys = kImageKeys,
    .measured = kImageClassifier,
    .renamings = kVitRenamings,
    .dropout_is_module = false,
};

}  // namespace memcalc::family
