#include "memcalc/models/model.h"

#include <type_traits>
namespace memcalc {

double dropout_probability(const RunSpec& run, double configured) { return run.dropout.value_or(configured); }

std::unique_ptr<Model> build_model(const ModelSpec& spec, const RunSpec& run, Tape& tape, DType dtype) {
  ModuleBuilder builder(tape, dtype);
  std::unique_ptr<Model> model = std::visit(
      [&](const auto& architecture) {
        using T = std::decay_t<decltype(architecture)>;
        if constexpr (std::is_same_v<T, BertSpec>) {
          return build_bert(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, Gpt2Spec>) {
          return build_gpt2(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, DistilBertSpec>) {
          return build_distilbert(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, BartSpec>) {
          return build_bart(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, WhisperSpec>) {
          return build_whisper(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, T5Spec>) {
          return build_t5(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, VitSpec>) {
          return build_vit(architecture, run, builder);
        } else if constexpr (std::is_same_v<T, TorchvisionSpec>) {
          return build_torchvision(architecture, run, builder);
        } else {
          return build_llama(architecture, run, builder);
        }
      },
      spec.architecture);
  model->parameters = std::move(builder.parameters);
  return model;
}

}  // namespace memcalc
