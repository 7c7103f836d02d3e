// config.json of Mamba-2, as transformers 5.17 reads it: models/mamba2.
#include "memcalc/families/mamba2/spec.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

Architecture mamba2(HfReader& config) {
  Mamba2Spec spec;
  spec.vocab_size = config.size({"vocab_size"}, 32768);
  spec.hidden_size = config.size({"hidden_size"}, 4096);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 64, kLayerRange);
  spec.hidden_act = config.activation("hidden_act", "silu");
  spec.residual_in_fp32 = config.flag("residual_in_fp32", true);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  spec.mixer.num_heads = config.size({"num_heads"}, 128);
  spec.mixer.head_dim = config.size({"head_dim"}, 64);
  spec.mixer.state_size = config.size({"state_size"}, 128);
  spec.mixer.n_groups = config.size({"n_groups"}, 8);
  spec.mixer.conv_kernel = config.size({"conv_kernel"}, 4);
  spec.mixer.chunk_size = config.size({"chunk_size"}, 256);
  spec.mixer.conv_bias = config.flag("use_conv_bias", true);
  spec.mixer.projection_bias = config.flag("use_bias", false);
  spec.mixer.output_bias = spec.mixer.projection_bias;
  const std::int64_t width = checked_multiply(config.size({"expand"}, 2), spec.hidden_size);
  if (checked_multiply(spec.mixer.num_heads, spec.mixer.head_dim) != width) {
    throw config.json().error("num_heads", "times head_dim is " + std::to_string(spec.mixer.intermediate_size()) +
                                               "; accepted: hidden_size * expand (" + std::to_string(width) + ")");
  }
  config.divides("n_groups", spec.mixer.n_groups, "num_heads", spec.mixer.num_heads);
  config.check_parameter_count([&] {
    const std::int64_t layer = checked_multiply(3, linear_parameters(spec.hidden_size, width));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size, spec.hidden_size));
  });
  assume_torch_path(config, "mamba-ssm and causal-conv1d");
  return spec;
}

}  // namespace

const Family kMamba2 = {
    .model_type = "mamba2",
    .kind = FamilyKind::kDecoder,
    .read = mamba2,
    .build = build_mamba2,
    .measured = {},
    .dropout_is_module = false,
    .cut_cross_entropy = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
