// A model that a script makes anew of a configuration, where none is named whose weights it reads: --config_name,
// --model_type, --config_overrides of transformers' examples/pytorch/language-modeling.
// MIRRORS(transformers, "configuration_utils.py", "5.17.0")
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/config_files/example_scripts.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

/// Names of a size in the configurations, and the option that says it.
struct Size {
  std::string_view names;
  std::string_view flag;
};
constexpr Size kSizes[] = {
    {"n_layer n_layers num_layers num_hidden_layers", "--layers"},
    {"n_embd hidden_size d_model dim", "--hidden"},
    {"n_head n_heads num_heads num_attention_heads", "--heads"},
    {"num_key_value_heads", "--kv-heads"},
    {"head_dim d_kv", "--head-dim"},
    {"n_inner intermediate_size d_ff hidden_dim ffn_dim", "--ffn"},
    {"n_positions max_position_embeddings", "--max-positions"},
    {"vocab_size", "--vocab"},
};

bool has_word(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = words_of(words, " ");
  return std::find(all.begin(), all.end(), word) != all.end();
}

/// A boolean as update_from_string reads it, which is not as the parser of arguments does: "t" is none.
std::optional<bool> truth_of(std::string_view text) {
  const std::string lower = ascii_lower(text);
  if (lower == "true" || lower == "1" || lower == "y" || lower == "yes") return true;
  if (lower == "false" || lower == "0" || lower == "n" || lower == "no") return false;
  return std::nullopt;
}

/// PreTrainedConfig.update_from_string: "n_embd=10,resid_pdrop=0.2,tie_word_embeddings=false"
void read_overrides(Section& section) {
  constexpr std::string_view kKey = "config_overrides";
  constexpr std::string_view kNumbers =
      "bos_token_id eos_token_id pad_token_id initializer_range layer_norm_eps layer_norm_epsilon rms_norm_eps";
  for (const std::string& each : section.texts(kKey)) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos) section.wrong(kKey, "sizes of the configuration, as n_embd=1024,n_layer=48");
    const std::string name = each.substr(0, equals), value = each.substr(equals + 1);
    const auto* const size =
        std::find_if(std::begin(kSizes), std::end(kSizes), [&](const Size& one) { return has_word(one.names, name); });
    if (size != std::end(kSizes)) {
      if (!is_digits(value)) section.wrong(kKey, name + " with a whole number");
      section.set(kKey, size->flag, value);
    } else if (name == "tie_word_embeddings") {
      const auto is_tied = truth_of(value);
      if (!is_tied) section.wrong(kKey, name + " with true or false");
      section.set(kKey, *is_tied ? "--tie" : "--no-tie");
    } else if (!has_word(kNumbers, name)) {
      section.refuse(kKey, name + " of the configuration is told by --model FILE with a config.json of its own");
    }
  }
}

}  // namespace

void read_fresh_model(Section& section, const ExampleScript* script) {
  Account& account = section.account();
  const auto name = section.text("config_name");
  const auto type = section.text("model_type");
  const bool has_overrides = section.has("config_overrides");
  if (const auto model = section.text("model_name_or_path")) {
    if (type) section.irrelevant("model_type", "the model that is named says it");
    if (name && *name == *model) section.irrelevant("config_name", "the model's own");
    if (name && *name != *model) {
      section.refuse("config_name", "weights beside another configuration are told by --model FILE, of the latter");
    }
    if (has_overrides) section.refuse("config_overrides", "the script takes none beside model_name_or_path");
    return;
  }
  const bool makes_one = script != nullptr && script->makes_models;
  const bool takes_overrides = makes_one && script->takes_overrides;
  if (!takes_overrides && has_overrides) {
    section.refuse("config_overrides", makes_one ? "the script has no such argument"
                                                 : "sizes of a model are told by --layers, --hidden, …");
  }
  if (name) {
    section.set("config_name", "--model", *name);
    if (type) section.irrelevant("model_type", "config_name says it");
    if (takes_overrides && has_overrides)
      section.refuse("config_overrides", "the script takes none beside config_name");
  } else if (type && makes_one) {
    section.set("model_type", "--arch", *type);
    if (takes_overrides) read_overrides(section);
  } else {
    if (type) section.irrelevant("model_type", "a model that is read says it");
    return;
  }
  account.note(
      "the model is made anew: its vocabulary is the configuration's, and grows where the tokenizer has more words "
      "(--vocab)");
}

}  // namespace memcalc::config
