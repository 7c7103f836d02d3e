#include "memcalc/spec/inference.h"

#include "memcalc/spec/family.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

/// Where config.use_cache is on, a forward pass of a decoder keeps keys and values that nobody reads.
bool keeps_cache(const ModelSpec& model) {
  const Family* const family = family_of(model);
  return model.use_cache && (is_decoder(model) || (family != nullptr && family->keeps_cache_in_inference));
}

}  // namespace

void resolve_inference(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                       std::vector<std::string>& assumptions) {
  run.purpose = *options.inference;
  const bool generates = run.inference()->new_tokens > 0 && (is_decoder(model) || is_encoder_decoder(model));
  run.use_cache = generates ? model.generation_cache : keeps_cache(model);
  if (run.inference()->new_tokens > 0) {
    assumptions.emplace_back("every sequence gets all new tokens (generate with min_new_tokens = max_new_tokens), " +
                             std::string(run.inference()->sampling ? "drawn (do_sample=True)" : "greedily"));
    assumptions.emplace_back("special tokens as the configuration class of " + model.model_type +
                             " has them, and a pad token");
  } else if (run.use_cache) {
    assumptions.emplace_back("one forward pass, whose KV cache lives as long as its output (config.use_cache)");
  }
  if (is_autocast(run.precision)) {
    assumptions.emplace_back(
        "one autocast region around all calls: the 16-bit copies of the weights stay between them");
  }
}

bool resolve_generation_cache(const ModelSpec& model, const RunSpec& run, std::vector<std::string>& assumptions) {
  if (!model.generation_cache && run.calls_generate()) {
    assumptions.emplace_back(
        "no KV cache: use_cache of this model's configuration is off, and with it generate() runs all tokens again for "
        "each new one; a config.json with \"use_cache\": true is generate(use_cache=True)");
  }
  return model.generation_cache;
}

}  // namespace memcalc
