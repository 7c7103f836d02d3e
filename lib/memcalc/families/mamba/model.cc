// Mamba: transformers models/mamba/modeling_mamba.py, as transformers' own code computes it where mamba-ssm and
// causal-conv1d are not installed: the state space token by token, in Python.
// MIRRORS(transformers, "models/mamba/modeling_mamba.py", "5.17.0")
#include <array>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/families/mamba/selective_scan.h"
#include "memcalc/families/mamba/spec.h"
#include "memcalc/models/causal_convolution.h"
#include "memcalc/models/mamba_decoder.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// MambaMixer
struct MambaMixer {
  std::int64_t state_size, time_step_rank;
  std::string activation;
  CausalConvolution conv1d;
  Linear in_proj, x_proj, dt_proj;
  Tensor A_log, D;
  Linear out_proj;

  MambaMixer(ModuleBuilder& b, const MambaSpec& spec)
      : state_size(spec.state_size),
        time_step_rank(spec.time_step_rank),
        activation(spec.hidden_act),
        conv1d(b, "conv1d", spec.intermediate_size, spec.conv_kernel, spec.use_conv_bias),
        in_proj(b, "in_proj", spec.hidden_size, 2 * spec.intermediate_size, spec.use_bias),
        x_proj(b, "x_proj", spec.intermediate_size, spec.time_step_rank + 2 * spec.state_size, false),
        dt_proj(b, "dt_proj", spec.time_step_rank, spec.intermediate_size),
        A_log(b.parameter_before("A_log", {spec.intermediate_size, spec.state_size}, "conv1d.weight")),
        D(b.parameter_before("D", {spec.intermediate_size}, "conv1d.weight")),
        out_proj(b, "out_proj", spec.intermediate_size, spec.hidden_size, spec.use_bias) {}

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
    return hooked_mixer(*this, x, [&](const Tensor& input) { return mix(input, attention_mask, cache); });
  }

 private:
  [[nodiscard]] Tensor mix(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
    const DType dtype = x.dtype();
    LinearStates states;
    Tensor hidden_states, projected_states, A, hidden_states_B_C, gate, time_step, B, C, time_proj_bias, scan_output;
    Tensor final_state;
    const Locals locals(hidden_states, projected_states, A, hidden_states_B_C, gate, time_step, B, C, time_proj_bias,
                        scan_output, final_state);
    hidden_states = without_padding(x, attention_mask);
    projected_states = transpose(in_proj(hidden_states), 1, 2);
    A = negate(exponential(to_dtype(A_log, DType::kFloat32)));
    if (x.tape().modes.training && cache == nullptr) {
      // mamba_inner_fn returns None; its arguments were made all the same.
      Tensor skip = to_dtype(D, DType::kFloat32);
      Tensor bias = to_dtype(dt_proj.bias, DType::kFloat32);
      drop(skip, bias);
    }
    {
      std::vector<Tensor> halves = split(projected_states, 1, 2);
      hidden_states_B_C = std::move(halves[0]);
      gate = std::move(halves[1]);
    }
    hidden_states_B_C = conv1d(hidden_states_B_C, activation, cache != nullptr ? &states : nullptr);
    hidden_states_B_C = without_padding(transpose(hidden_states_B_C, 1, 2), attention_mask);
    {
      const std::array<std::int64_t, 3> sizes = {time_step_rank, state_size, state_size};
      std::vector<Tensor> parts = split_with_sizes(x_proj(hidden_states_B_C), 2, sizes);
      time_step = std::move(parts[0]);
      B = std::move(parts[1]);
      C = std::move(parts[2]);
    }
    time_step = matmul(dt_proj.weight, transpose(time_step, 1, 2));
    time_proj_bias = to_dtype(dt_proj.bias, DType::kFloat32);
    scan_output = selective_scan(transpose(hidden_states_B_C, 1, 2), time_step, A, B, C, to_dtype(D, DType::kFloat32),
                                 gate, time_proj_bias, cache != nullptr ? &final_state : nullptr);
    if (cache != nullptr) {
      states.update_recurrent_state(final_state);
      states.keep(*cache);
    }
    return out_proj(to_dtype(transpose(scan_output, 1, 2), dtype));
  }
};

}  // namespace

std::unique_ptr<Model> build_mamba(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  if (run.fine_tuning.quantization != Quantization::kNone) {
    throw Error(
        ErrorCode::kUnsupported,
        "quantize: Mamba multiplies by dt_proj.weight itself, for which a packed weight does not serve; accepted: "
        "16-bit weights");
  }
  return std::make_unique<MambaDecoder<MambaMixer, false>>(architecture.as<MambaSpec>(), run, builder);
}

}  // namespace memcalc
