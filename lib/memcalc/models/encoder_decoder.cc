#include "memcalc/models/encoder_decoder.h"

#include <iterator>

namespace memcalc {

namespace {

constexpr Operator kNewZeros{"aten::new_zeros"}, kClone{"aten::clone"}, kEq{"aten::eq"}, kTied{"tied parameter"};

}  // namespace

void EncoderDecoderCache::move_to(ModelOutput& output) {
  for (std::vector<Tensor>* cache : {&self_attention, &cross_attention}) {
    std::move(cache->begin(), cache->end(), std::back_inserter(output.past_key_values));
    cache->clear();
  }
}

Tensor shift_right(const Tensor& labels) {
  Tape& tape = labels.tape();
  Tensor shifted = tape.empty(labels.shape(), DType::kInt64, kNewZeros);
  tape.scratch(8 * labels.size(0) * (labels.size(1) - 1), kClone);  // labels[..., :-1].clone()
  tape.scratch(labels.elements(), kEq);                             // shifted == -100
  return shifted;
}

Tensor replaced_by(ModuleBuilder& builder, const Tensor& tied) {
  return builder.tape.empty(tied.shape(), builder.dtype, kTied, Category::kWeights);
}

}  // namespace memcalc
