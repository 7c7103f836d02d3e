#include "memcalc/spec/validate.h"

#include <variant>

#include "memcalc/spec/custom_shapes.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {

void validate(const ModelSpec& model, const RunSpec& run) {
  check_bounds(RunRecord{model, run});
  check_rules(model, run);
  if (const auto* layers = model.architecture.get_if<CustomSpec>()) {
    custom::check_shapes(*layers, custom::input_shape(*layers, run), run.batch_size);
  }
}

}  // namespace memcalc
