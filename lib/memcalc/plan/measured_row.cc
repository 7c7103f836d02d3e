#include "memcalc/plan/measured_row.h"

#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/run_record.h"
#include "memcalc/train/loop_pipeline.h"

namespace memcalc {

NamedConfigs::NamedConfigs(const JsonDocument& document) : document_(document) {
  (void)document.root().required_object("models");
}

bool NamedConfigs::has(const std::string& name) const {
  return document_ && document_->root().required_object("models").has(name);
}

ModelSpec NamedConfigs::model(const std::string& name, const ArchitectureChanges& changes) const {
  const JsonObject entry = document_.value().root().required_object("models").required_object(name);
  ModelSpec model = model_from_hf_config(entry.required_object("config"), name);
  ArchitectureChanges rest = changes;
  if (rest.layers) set_layers(model, *std::exchange(rest.layers, std::nullopt));
  if (rest.tie == false) {
    model = untied(std::move(model));
    rest.tie.reset();
  }
  if (!rest.empty()) {
    throw Error(ErrorCode::kUnsupported,
                name + ": of a model of the models file only layers and tie=false can change, not " + rest.text());
  }
  model.reference = name;
  model.changes = changes;
  return model;
}

RunRequest request_of_row(const JsonObject& row) {
  RunRequest request = request_from(row.required_object("run"));
  if (const std::optional<std::string> gpu = row.optional_string("gpu")) request.gpu = *gpu;
  return request;
}

Question question_of(const RunRequest& request, const SpecRegistry& registry, const NamedConfigs& configs) {
  Question question{.model = configs.has(request.model)
                                 ? with_images(configs.model(request.model, request.changes), request)
                                 : model_of(request, registry),
                    .time = request.time};
  if (!request.changes.tie) take_as_transformers(question.model);
  RunRequest asked = request;
  take_versions(asked, registry);
  question.run = resolve_request(question.model, asked);
  question.device = device_of(request, registry);
  question.device_assumed = question.device.reference.empty();
  return question;
}

}  // namespace memcalc
