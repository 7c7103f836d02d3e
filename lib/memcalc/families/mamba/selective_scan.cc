#include "memcalc/families/mamba/selective_scan.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

Tensor selective_scan(const Tensor& hidden_states, const Tensor& time_step, const Tensor& rates, const Tensor& b,
                      const Tensor& c, Tensor skip, const Tensor& gate, const Tensor& time_bias, Tensor* final_state) {
  const std::int64_t rows = hidden_states.size(0), channels = hidden_states.size(1), tokens = hidden_states.size(2);
  const DType input_dtype = hidden_states.dtype();
  Tensor dt, D = std::move(skip), discrete_A, discrete_B, deltaB_u, ssm_state, scan_output;
  std::vector<Tensor> scan_outputs;
  scan_outputs.reserve(static_cast<std::size_t>(tokens));
  {
    const Tensor bias = unsqueeze(to_dtype(time_bias, time_step.dtype()), 1);
    dt = time_step + bias;
  }
  dt = softplus(dt);
  {
    const Tensor of_states = unsqueeze(unsqueeze(rates, 0), 2), of_tokens = unsqueeze(dt, 3);
    Tensor product = of_states * of_tokens;
    discrete_A = exponential(std::move(product));
  }
  {
    const Tensor of_tokens = unsqueeze(dt, 3), converted = to_dtype(unsqueeze(b, 1), DType::kFloat32);
    discrete_B = of_tokens * converted;
  }
  {
    const Tensor converted = to_dtype(unsqueeze(hidden_states, 3), DType::kFloat32);
    deltaB_u = discrete_B * converted;
  }
  ssm_state = no_grad::zeros(hidden_states.tape(), {rows, channels, rates.size(1)}, input_dtype);
  for (std::int64_t i = 0; i < tokens; ++i) {
    {
      Tensor decayed = select(discrete_A, 2) * ssm_state;
      Tensor next = decayed + select(deltaB_u, 2);
      decayed.reset();
      ssm_state = std::move(next);
    }
    {
      const Tensor converted = to_dtype(ssm_state, input_dtype);
      scan_output = matmul(converted, unsqueeze(select(c, 1), 2));
    }
    scan_outputs.push_back(select(scan_output, 2));
  }
  {
    std::vector<Tensor> columns;
    columns.reserve(scan_outputs.size());
    for (const Tensor& each : scan_outputs) columns.push_back(unsqueeze(each, 2));
    scan_output = concatenate(columns, 2);
  }
  {
    Tensor skipped = hidden_states * unsqueeze(unsqueeze(D, 0), 2);
    Tensor sum = scan_output + skipped;
    skipped.reset();
    scan_output = std::move(sum);
  }
  {
    Tensor activated = silu(gate);
    Tensor gated = scan_output * activated;
    activated.reset();
    scan_output = std::move(gated);
  }
  if (final_state != nullptr) *final_state = ssm_state;
  drop(dt, D, discrete_A, discrete_B, deltaB_u, ssm_state);
  for (Tensor& each : scan_outputs) each.reset();
  return scan_output;
}

}  // namespace memcalc
