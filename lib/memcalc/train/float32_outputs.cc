#include "memcalc/train/float32_outputs.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/symbolic/ops/elementwise.h"

namespace memcalc {

void convert_to_float32(ModelOutput& outputs) {
  std::vector<Tensor> replaced;
  const auto convert = [&](Tensor& each) {
    Tensor converted = to_dtype(each, DType::kFloat32);
    replaced.push_back(std::exchange(each, std::move(converted)));
  };
  if (outputs.logits.defined()) convert(outputs.logits);
  Tensor& encoded = outputs.encoder_last_hidden_state;
  if (encoded.defined() && is_half(encoded.dtype())) convert(encoded);
  for (std::size_t i = 0; i + outputs.cached < outputs.others.size(); ++i) {
    if (is_half(outputs.others[i].dtype())) convert(outputs.others[i]);
  }
  for (Tensor& each : replaced) each.reset();
}

}  // namespace memcalc
