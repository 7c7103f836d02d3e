#include "memcalc/spec/inference.h"

#include "memcalc/spec/family.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

/// Where config.use_cache is on, generate() has a cache, and a forward pass of a decoder keeps keys and values that
/// nobody reads.
bool keeps_cache(const ModelSpec& model, bool generates) {
  if (!model.use_cache) return false;
  const Family* const family = family_of(model);
  return is_decoder(model) || (generates && is_encoder_decoder(model)) ||
         (family != nullptr && family->keeps_cache_in_inference);
}

}  // namespace

void resolve_inference(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                       std::vector<std::string>& assumptions) {
  run.purpose = *options.inference;
  run.use_cache = keeps_cache(model, run.inference()->new_tokens > 0);
  if (!model.use_cache && run.inference()->new_tokens > 0) {
    assumptions.emplace_back(
        "no KV cache: use_cache of this model's configuration is off, and with it generate() runs all tokens again for "
        "each new one; a config.json with \"use_cache\": true is generate(use_cache=True)");
  }
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

}  // namespace memcalc
