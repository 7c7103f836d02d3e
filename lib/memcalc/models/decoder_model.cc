#include "memcalc/models/decoder_model.h"

#include "memcalc/models/rotary_decoder.h"
#include "memcalc/models/span_head.h"

namespace memcalc {

DecoderModel::DecoderModel(const RunSpec& run, std::string_view activation) : run_(run) {
  if (!activation.empty()) check_activation_function(activation);
  loss_shifts_labels = run.task == Task::kCausalLm;
}

void DecoderModel::build_head(ModuleBuilder& b, const Embedding& embedding, const HeadSizes& sizes) {
  classifier_ = sequence_classifier(b, run_, sizes.width, sizes.labels);
  if (classifier_) return;
  if (run_.task == Task::kQuestionAnswering) {
    lm_head_ = span_head(b, sizes.width);
    return;
  }
  lm_head_ = language_model_head(b, embedding, sizes.tied, sizes.width, sizes.vocabulary, sizes.bias);
}

ModelOutput DecoderModel::forward(const Batch& batch) {
  ModelOutput output;
  KeyValueCache* cache = self_attention_cache_of(run_, batch, output);
  Tensor hidden_states = decode(batch, cache);
  if (run_.task == Task::kQuestionAnswering) {
    predict_spans(lm_head_, hidden_states, batch, output);
    return output;
  }
  predict(classifier_, lm_head_, hidden_states, batch, output, head_);
  return output;
}

}  // namespace memcalc
