#include "memcalc/models/image_text.h"

#include <algorithm>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/families/gemma/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/ministral3/spec.h"
#include "memcalc/families/qwen/spec.h"
#include "memcalc/families/qwen3_moe/spec.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct TextModel {
  bool (*is)(const Architecture& text);
  DecoderPlan (*plan)(const Architecture& text, const RunSpec& run);
};

template <typename Spec>
bool is_of(const Architecture& text) {
  return text.is<Spec>();
}

constexpr TextModel kTextModels[] = {
    {is_of<LlamaSpec>, llama_plan},           {is_of<Qwen2Spec>, qwen2_plan},        {is_of<Qwen3Spec>, qwen3_plan},
    {is_of<GemmaSpec>, gemma_plan},           {is_of<Gemma2Spec>, gemma2_plan},      {is_of<Gemma3Spec>, gemma3_plan},
    {is_of<Ministral3Spec>, ministral3_plan}, {is_of<Qwen3MoeSpec>, qwen3_moe_plan},
};

}  // namespace

DecoderPlan text_plan(const Architecture& text, const RunSpec& run) {
  for (const TextModel& each : kTextModels) {
    if (each.is(text)) return each.plan(text, run);
  }
  throw Error(ErrorCode::kInternal, "a text model without a plan");
}

// A plain loop makes them in the type of the weights that look at them, a dataset for the Trainer has float32.
DType ImageParts::type_of_pixels() const {
  return run_.uses_trainer() || run_.fine_tuning.prepares_for_kbit ? DType::kFloat32 : weights_dtype_of(run_);
}

ModelInput ImageParts::pixel_values(std::int64_t channels) const {
  const ImageSize size = image();
  return {"pixel_values", {all_images(), channels, size.height, size.width}, type_of_pixels(), &Batch::pixel_values};
}

std::vector<ModelInput> ImageParts::inputs_with(std::vector<ModelInput> of_images) const {
  const Shape ids{run_.batch_size, run_.sequence_length};
  std::vector<ModelInput> inputs = {{"input_ids", ids, DType::kInt64, &Batch::input_ids}};
  const ModelInput mask{"attention_mask", ids, DType::kInt64, &Batch::attention_mask};
  // A processor's own order, in which TRL's collator leaves it; the measured batches of others have the images first,
  // and families with more inputs than pixels know them by their places among these.
  const auto is_member = [](const ModelInput& input) { return input.member != nullptr; };
  const bool mask_is_first = run_.uses_trl() && std::all_of(of_images.begin(), of_images.end(), is_member);
  if (run_.passes_mask() && mask_is_first) inputs.push_back(mask);
  for (ModelInput& each : of_images) inputs.push_back(std::move(each));
  if (run_.passes_mask() && !mask_is_first) inputs.push_back(mask);
  if (run_.trains()) inputs.push_back({"labels", ids, DType::kInt64, &Batch::labels});
  return inputs;
}

void check_places(const Tensor& count) {
  const Tensor alike = no_grad::equal(no_grad::multiply(count));
  const Tensor all = reduced(aten::kAny, alike, (1U << alike.rank()) - 1, false, DType::kBool);  // _is_all_true
  read_on_host(all, aten::kAny);
}

Tensor with_features(const Tensor& x, const Tensor& places, const Tensor& features) {
  const Tensor visual_embeds = to_dtype(features, x.dtype());
  Tensor hidden_states = clone(x);
  const Tensor local_this = index_by_mask(hidden_states, 0, places, features.size(0)) + visual_embeds;
  hidden_states = put_by_mask(hidden_states, 0, places, local_this);
  return hidden_states;
}

Tensor placeholder_mask(const Tensor& input_ids) {
  Tensor places = no_grad::equal(input_ids);
  const Tensor count = no_grad::sum(places);
  places = no_grad::unsqueeze(places, -1);
  check_places(count);
  return places;
}

std::unique_ptr<Model> build_image_text(const ImageTextSpec& spec, const RunSpec& run, ModuleBuilder& b,
                                        std::shared_ptr<ImageParts> parts, const ChangePlan& change) {
  Architecture text = spec.text;
  text.set_layers(spec.num_hidden_layers);
  if (!spec.tie_word_embeddings) text.untie();
  DecoderPlan plan = text_plan(text, run);
  if (change != nullptr) change(text, plan);
  // The Trainer's config.use_cache = False is the whole model's; the text model reads its own, text_config.
  RunSpec as_text_reads = run;
  if (!parts->hands_on_use_cache()) as_text_reads.use_cache |= caches_in_trainer(spec, run);
  if (spec.images) {
    plan.images = std::move(parts);
    plan.logits = LogitsChange::kNone;  // ...ForCausalLM caps its logits, ...ForConditionalGeneration does not
    // GemmaModel calls its layers so. (Of the text model alone the stages of a pipeline would be refused for it.)
    plan.position_ids_first |= text.is<GemmaSpec>();
  }
  return std::make_unique<RotaryDecoder>(spec, as_text_reads, b, plan);
}

}  // namespace memcalc
