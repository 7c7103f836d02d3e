#include "memcalc/spec/software_used.h"

#include <string_view>

#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

bool is_of_bitsandbytes(Optimizer optimizer) {
  if (is_of_torchao(optimizer)) return false;
  const std::string_view name = name_of(optimizer);
  return name.ends_with("-bnb") || name.ends_with("-8bit") || name.starts_with("paged-") || name.starts_with("lion") ||
         name.starts_with("ademamix");
}

}  // namespace

bool uses_bitsandbytes(const RunSpec& run) {
  switch (run.fine_tuning.quantization) {
    case Quantization::kNf4:
    case Quantization::kNf4Double:
    case Quantization::kInt8: return true;
    default: return run.trains() && is_of_bitsandbytes(run.training().optimizer);
  }
}

bool uses_torchao(const RunSpec& run) {
  if (!run.trains()) return false;
  const Training& training = run.training();
  return training.float8 != Float8::kNone || training.offload_optimizer || is_of_torchao(training.optimizer);
}

}  // namespace memcalc
