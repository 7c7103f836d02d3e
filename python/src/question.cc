#include "question.h"

#include "memcalc/planning.h"

namespace py = pybind11;

namespace memcalc::python {

Question ask(const std::shared_ptr<const ModelSpec>& model, const std::shared_ptr<const DeviceSpec>& device,
             const py::dict& keywords, bool device_assumed, const SpecRegistry& registry) {
  RunRequest request = read_options(keywords);
  take_versions(request, registry);
  Question question{*model, resolve_request(*model, request), with_card_options(*device, request.card, registry),
                    device_assumed, request.time};
  question.time.host_size = host_size_of(request.card, question.device, registry);
  if (device_assumed) {
    question.run.assumptions.push_back("the card behaves as " + device->name + ": none was named (gpu)");
  }
  return question;
}

Report answer(const Question& question) {
  Report report = estimate(question);
  if (!question.run.run.trains() && !question.device_assumed) {
    report.concurrent_sequences =
        find_largest(question.model, question.run, question.device, {.neighbours = 0}).unhurried;
  }
  return report;
}

}  // namespace memcalc::python
