// config.json of Mamba, as transformers 5.17 reads it: models/mamba.
#include "memcalc/families/mamba/spec.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

Architecture mamba(HfReader& config) {
  MambaSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50280);
  spec.hidden_size = config.size({"hidden_size"}, 768);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 32, kLayerRange);
  spec.state_size = config.size({"state_size"}, 16);
  spec.conv_kernel = config.size({"conv_kernel"}, 4);
  spec.hidden_act = config.activation("hidden_act", "silu");
  spec.use_bias = config.flag("use_bias", false);
  spec.use_conv_bias = config.flag("use_conv_bias", true);
  spec.residual_in_fp32 = config.flag("residual_in_fp32", true);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.intermediate_size = checked_multiply(config.size({"expand"}, 2), spec.hidden_size);
  const bool named = config.json().has("time_step_rank") && !config.json().is_string("time_step_rank");
  spec.time_step_rank = named ? config.size({"time_step_rank"}, 0) : (spec.hidden_size + 15) / 16;  // "auto"
  config.check_parameter_count([&] {
    const std::int64_t layer = checked_multiply(3, linear_parameters(spec.hidden_size, spec.intermediate_size));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size, spec.hidden_size));
  });
  config.only_flag("use_mambapy", false);
  assume_torch_path(config, "mamba-ssm and causal-conv1d");
  return spec;
}

}  // namespace

const Family kMamba = {
    .model_type = "mamba",
    .kind = FamilyKind::kDecoder,
    .read = mamba,
    .build = build_mamba,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .has_no_attention = true,
    .cut_cross_entropy = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
