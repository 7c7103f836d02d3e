#include "memcalc/models/linear_states.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr int kColumns = 2;  // of [B, channels, tokens]

/// In training, what the cache holds is an activation as far as autograd saves it.
void own(const Tensor& state) {
  Tape& tape = state.tape();
  if (!tape.modes.grad_enabled) tape.memory.set_category(state.block(), Category::kKeyValueCache);
}

}  // namespace

Tensor LinearStates::update_conv_state(const Tensor& conv_states, std::int64_t kernel) {
  Shape shape = conv_states.shape();
  const std::int64_t tokens = shape[kColumns];
  shape[kColumns] = kernel;
  const Tensor zeros = no_grad::zeros(conv_states.tape(), shape, conv_states.dtype());  // lazy_initialization
  Tensor whole = tokens < kernel ? pad_to(conv_states, shape) : conv_states;
  const std::int64_t before = whole.size(kColumns) - kernel;
  const Tensor last = before == 0 ? slice_whole(whole, kColumns) : slice(whole, kColumns, before, kernel);
  conv_state = copy_in_place(zeros, last);
  own(conv_state);
  return whole;
}

void LinearStates::update_recurrent_state(const Tensor& recurrent_states) {
  const Tensor zeros = no_grad::zeros_like(recurrent_states);  // lazy_initialization
  recurrent_state = copy_in_place(zeros, recurrent_states);
  own(recurrent_state);
}

void LinearStates::keep(KeyValueCache& cache) {
  if (cache.is_filled()) throw refusal(rules::kLinearStatesRead);
  cache.add_layer(std::move(recurrent_state), std::move(conv_state));
}

Tensor create_recurrent_mask(const Batch& batch) {
  const Tensor& mask = batch.attention_mask;
  if (!mask.defined()) return {};
  {
    const Tensor whole = no_grad::all(no_grad::equal(mask));  // torch.all(attention_mask == 1)
    read_on_host(whole, aten::kAll);
  }
  return batch.padded ? no_grad::slice(mask, 1, 0, mask.size(1)) : Tensor();
}

}  // namespace memcalc
