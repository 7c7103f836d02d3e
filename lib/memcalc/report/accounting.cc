// The rules and their sources:
//   classic  mixed precision as in the ZeRO paper (Rajbhandari et al. 2020, section 3.1) and Megatron-LM's
//            theoretical_memory_usage.py: 18 bytes with float32 gradients.
//   profile  torch.optim and torch.amp of PyTorch 2.11: docs/categories.md.
#include "memcalc/report/accounting.h"

#include <algorithm>
#include <string>
#include <utility>

#include "memcalc/report/quantity.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/train/optimizers/offload.h"

namespace memcalc {
namespace {

AccountingRow row(std::string name, std::int64_t bytes_per_parameter, std::int64_t parameters, std::string rule) {
  return {std::move(name), static_cast<double>(bytes_per_parameter), checked_multiply(bytes_per_parameter, parameters),
          std::move(rule)};
}

AccountingRow row_per(std::int64_t parameters, std::string name, Bytes total, std::string rule) {
  const auto count = static_cast<double>(std::max<std::int64_t>(parameters, 1));
  return {std::move(name), static_cast<double>(total) / count, total, std::move(rule)};
}

// What the optimizer holds for each trainable parameter.
void add_states(const AccountingInput& in, std::vector<AccountingRow>& rows) {
  const OptimizerRule& rule = rule_of(in.optimizer);
  rows.push_back(row_per(in.trainable_parameters, "optimizer states", in.states.tensors, rule.states));
  if (in.host_states > 0) {
    rows.back().rule = "of tensors under 4096 elements; the others' " + std::to_string(in.host_states) +
                       " bytes are in host memory: " + rule.states;
  }
  if (in.states.managed == 0) return;
  rows.push_back(row_per(in.trainable_parameters, "paged states", in.states.managed,
                         "in managed memory, outside PyTorch's allocator: the driver moves it between card and host"));
}

std::vector<AccountingRow> classic_mixed(const AccountingInput& in) {
  std::vector<AccountingRow> rows = {
      row("weights", 2, in.parameters, "a 16-bit copy of each weight for the forward and the backward pass"),
      row("master weights", 4, in.parameters, "the float32 weights that the optimizer updates"),
      row("gradients", 4, in.trainable_parameters, "one float32 gradient for each trainable parameter")};
  if (in.infers) {
    rows.resize(2);  // the weights alone: 6 bytes
  } else {
    add_states(in, rows);
  }
  return rows;
}

std::string how_stored(const AccountingInput& in) {
  if (in.weights.size() == 1) return "each parameter in " + in.weights.front().how;
  std::string parts;
  for (const StoredWeights& each : in.weights) {
    parts += (parts.empty() ? "" : ", ") + format_count(each.parameters) + " in " + each.how;
  }
  return parts.empty() ? "none" : parts;
}

// Each tensor in the bytes in which it is stored.
std::vector<AccountingRow> uniform(const AccountingInput& in) {
  Bytes weights = 0;
  for (const StoredWeights& each : in.weights) weights = checked_add(weights, each.bytes);
  std::vector<AccountingRow> rows = {row_per(in.parameters, "weights", weights, how_stored(in))};
  if (in.constants > 0) {
    rows.push_back(row_per(in.parameters, "quantisation constants", in.constants,
                           "the scales of the packed weights' blocks or rows, and the numbers that codes stand for"));
  }
  if (in.reference > 0) {
    rows.push_back(row_per(in.parameters, "reference model", in.reference, "a second model, which does not train"));
  }
  if (in.infers) return rows;
  rows.push_back(row_per(in.trainable_parameters, "gradients", in.gradients,
                         in.weights.size() == 1 ? "one gradient in the weight's dtype, " + in.weights.front().how
                                                : "one gradient for each trainable parameter, in its dtype"));
  add_states(in, rows);
  return rows;
}

// What lives on the device beside the large tensors: a few bytes, but without them the simulation would not be met.
void add_small_rows(const AccountingInput& in, std::vector<AccountingRow>& rows) {
  if (in.states.scalars > 0) {
    rows.push_back(row_per(in.parameters, rule_of(in.optimizer).scalars, in.states.scalars,
                           "4 bytes on the card for each of " + std::to_string(in.trainable_tensors) + " " +
                               plural(in.trainable_tensors, "tensor")));
  }
  if (in.states.tables > 0) {
    const OptimizerRule& rule = rule_of(in.optimizer);
    rows.push_back(row_per(in.parameters, rule.tables, in.states.tables, rule.tables_note));
  }
  if (in.precision == Precision::kAmpFp16) {
    rows.push_back(
        row_per(in.parameters, "loss scaler", 8, "scale and growth counter of torch.amp.GradScaler, 4 bytes each"));
  }
}

std::vector<AccountingRow> profile_rows(const AccountingInput& in) {
  std::vector<AccountingRow> rows = uniform(in);
  if (in.infers) {
    if (in.autocast_copies > 0) {
      rows.push_back(
          row_per(in.parameters, "autocast copies", in.autocast_copies,
                  "16-bit copies of the weights of matrix products and convolutions, kept while the autocast "
                  "region lasts; embeddings and norms have none"));
    }
    return rows;
  }
  add_small_rows(in, rows);
  if (is_autocast(in.precision) && in.weights_dtype == DType::kFloat32) {
    rows.push_back(row("autocast copies", 0, in.parameters,
                       "16-bit copies of the weights exist only inside a step, from a weight's first use until its "
                       "last backward; nothing is held between steps"));
  }
  return rows;
}

// What people compare with. 8-bit AdamW: two one-byte moments (Dettmers et al. 2022), without its block scales.
std::vector<AccountingRow> alternatives(const AccountingInput& in) {
  const bool mixed = is_autocast(in.precision) && in.weights_dtype == DType::kFloat32;
  const std::int64_t size = size_of(in.weights_dtype);
  return {row("inference", mixed ? 6 : size, in.parameters,
              mixed ? "no gradients, no states: a 16-bit copy beside the float32 weights"
                    : "no gradients, no states: the weights alone"),
          row("AdamW states", 2 * size, in.trainable_parameters, "two moments in the weight's dtype"),
          row("8-bit AdamW states", 2, in.trainable_parameters, "two moments of one byte each"),
          row("SGD with momentum states", size, in.trainable_parameters, "one buffer in the weight's dtype"),
          row("SGD states", 0, in.trainable_parameters, "none")};
}

}  // namespace

void AccountingInput::add_weights(const std::string& how, std::int64_t elements, Bytes bytes) {
  parameters = checked_add(parameters, elements);
  const auto same = std::find_if(weights.begin(), weights.end(), [&](const auto& each) { return each.how == how; });
  StoredWeights& group = same != weights.end() ? *same : weights.emplace_back(StoredWeights{.how = how});
  group.parameters = checked_add(group.parameters, elements);
  group.bytes = checked_add(group.bytes, bytes);
}

void AccountingInput::add_frozen(const OptimizedTensor& tensor) {
  add_weights(std::string(name_of(tensor.dtype)), tensor.shape.elements(), tensor.bytes());
}

void AccountingInput::add_packed(const std::string& how, std::int64_t elements, const PackedBytes& packed) {
  add_weights(how, elements, packed.weight);
  constants = checked_add(constants, packed.constants);
}

void AccountingInput::add_trainable(const OptimizedTensor& tensor) {
  add_frozen(tensor);
  trainable_parameters = checked_add(trainable_parameters, tensor.shape.elements());
  gradients = checked_add(gradients, tensor.bytes());
  ++trainable_tensors;
  const StateBytes held = rule_of(optimizer).state_bytes(tensor, loop);
  if (!offloads || !is_offloaded(tensor.shape.elements())) return states.add(held);
  host_states = checked_add(host_states, checked_add(held.tensors, held.scalars));
}

Accounting account(const AccountingInput& input) {
  // Packed weights have no 16-bit copies beside float32 ones.
  const bool mixed = is_autocast(input.precision) && input.weights_dtype == DType::kFloat32 && input.constants == 0;
  Accounting accounting;
  accounting.classic = mixed ? classic_mixed(input) : uniform(input);
  accounting.profile = profile_rows(input);
  accounting.alternatives = alternatives(input);
  return accounting;
}

AccountingRow total_of(const std::vector<AccountingRow>& rows) {
  AccountingRow total{.name = "total"};
  for (const AccountingRow& each : rows) {
    total.bytes_per_parameter += each.bytes_per_parameter;
    total.total_bytes = checked_add(total.total_bytes, each.total_bytes);
  }
  return total;
}

}  // namespace memcalc
