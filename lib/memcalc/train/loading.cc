// transformers 5.17: modeling_utils.py (_load_pretrained_model, caching_allocator_warmup), core_model_loading.py
// (convert_and_load_state_dict_in_model, MergeModulelist, Concatenate); torch nn/modules/module.py (_apply).
// MIRRORS(torch, "nn/modules/module.py", "2.11.0")
// MIRRORS(transformers, "core_model_loading.py", "5.17.0")
// MIRRORS(transformers, "modeling_utils.py", "5.17.0")
#include "memcalc/train/loading.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "memcalc/models/checkpoint_names.h"
#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/fine_tuning.h"

namespace memcalc {

namespace {

constexpr Operator kWarmup{"caching_allocator_warmup"};
constexpr std::string_view kGateAndUp = ".experts.gate_up_proj";
constexpr std::string_view kDown = ".experts.down_proj";

std::string_view next_part(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view part = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  return part;
}

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

void give_storage(Tape& tape, const Tensor& tensor, const Operator& op) {
  Tensor storage = tape.empty(tensor.shape(), tensor.dtype(), op, Category::kWeights);
  tape.take_storage(tensor, storage);
}

/// The tensors of one expert each, of one of the matrices that a parameter holds.
std::vector<Tensor> expert_tensors(Tape& tape, const Tensor& merged, std::int64_t parts) {
  std::vector<Tensor> tensors;
  const Shape each{merged.size(1) / parts, merged.size(2)};
  for (std::int64_t i = 0; i < merged.size(0); ++i) {
    tensors.push_back(tape.empty(each, merged.dtype(), aten::kToCopy, Category::kWeights));
  }
  return tensors;
}

/// MergeModulelist: the tensors of one expert each die once the caller's variable takes the next ones.
Tensor stacked(Tape& tape, const Tensor& merged, std::int64_t parts) {
  const Shape shape{merged.size(0), merged.size(1) / parts, merged.size(2)};
  return tape.empty(shape, merged.dtype(), aten::kStack, Category::kWeights);
}

/// A layer's matrices: its tensors are sorted by expert, so that those of both parameters have come when the first of
/// these is put together.
void load_experts(Tape& tape, const Tensor& gate_up, const Tensor& down) {
  std::vector<Tensor> down_tensors = expert_tensors(tape, down, 1);
  std::vector<Tensor> gate_tensors = expert_tensors(tape, gate_up, 2);
  std::vector<Tensor> up_tensors = expert_tensors(tape, gate_up, 2);
  Tensor down_storage = stacked(tape, down, 1);
  down_tensors.clear();
  tape.take_storage(down, down_storage);
  Tensor gate = stacked(tape, gate_up, 2);
  gate_tensors.clear();
  Tensor up = stacked(tape, gate_up, 2);
  up_tensors.clear();
  Tensor both = tape.empty(gate_up.shape(), gate_up.dtype(), aten::kCat, Category::kWeights);
  drop(gate, up);
  tape.take_storage(gate_up, both);
}

bool stores_biases_of_experts(const Model& model) {  // gpt-oss: its checkpoint holds the experts together
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const Parameter& parameter) { return parameter.name.ends_with(".experts.gate_up_proj_bias"); });
}

}  // namespace

bool holds_gate_and_up(const Parameter& parameter) { return parameter.name.ends_with(kGateAndUp); }

bool is_merged_expert_matrix(const Model& model, const Parameter& parameter) {
  const bool is_named_so = holds_gate_and_up(parameter) || parameter.name.ends_with(kDown);
  return is_named_so && parameter.tensor.rank() == 3 && !stores_biases_of_experts(model);
}

bool has_merged_experts(const Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [&](const Parameter& parameter) { return is_merged_expert_matrix(model, parameter); });
}

bool loads_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view x = next_part(a);
    const std::string_view y = next_part(b);
    if (x == y) continue;
    if (is_number(x) && is_number(y) && x.size() != y.size()) return x.size() < y.size();
    return x < y;
  }
  return a.empty() && !b.empty();
}

std::vector<std::size_t> loading_order(const Model& model, std::string_view model_type) {
  std::vector<std::string> names;
  names.reserve(model.parameters.size());
  for (const Parameter& parameter : model.parameters) names.push_back(sorted_name_of(model_type, parameter.name));
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return loads_before(names[a], names[b]); });
  return order;
}

BlockId load_on_card(Tape& tape, Model& model, std::string_view model_type) {
  Bytes total = 0;
  for (const Parameter& parameter : model.parameters) total = checked_add(total, parameter.tensor.bytes());
  const BlockId warm_up = tape.memory.allocate(total, kWarmup);
  if (warm_up != kNoBlock) tape.memory.release(warm_up);
  const Parameter* down = nullptr;  // sorted before the layer's gate_up_proj
  for (const std::size_t i : loading_order(model, model_type)) {
    const Parameter& parameter = model.parameters[i];
    if (!is_merged_expert_matrix(model, parameter)) {
      give_storage(tape, parameter.tensor, aten::kToCopy);
    } else if (!holds_gate_and_up(parameter)) {
      down = &parameter;
    } else {
      load_experts(tape, parameter.tensor, down->tensor);
    }
  }
  for (const Tensor& buffer : model.buffers) give_storage(tape, buffer, aten::kEmptyLike);
  return warm_up;
}

void move_to_card(Tape& tape, const Model& model) {
  const auto* program = dynamic_cast<const ProgramModel*>(&model);
  // Those of each parameter that a buffer of a program follows; of none: after all parameters.
  std::multimap<const TensorImpl*, const Tensor*> buffers;
  for (std::size_t i = 0; i < model.buffers.size(); ++i) {
    const Tensor* before = program != nullptr ? program->moved_before(i) : nullptr;
    buffers.emplace(before != nullptr ? before->impl() : nullptr, &model.buffers[i]);
  }
  const auto move_those_after = [&](const TensorImpl* parameter) {
    const auto [begin, end] = buffers.equal_range(parameter);
    for (auto each = begin; each != end; ++each) give_storage(tape, *each->second, aten::kToCopy);
  };
  for (const Parameter& parameter : model.parameters) {
    give_storage(tape, parameter.tensor, aten::kToCopy);
    move_those_after(parameter.tensor.impl());
  }
  move_those_after(nullptr);
}

void prepare_model(Tape& tape, Model& model, const RunSpec& run) {
  apply_fine_tuning(tape, model, run);
  // FSDP takes from the host what it shards (train/parallel/fsdp1.cc, fsdp2_trainer.cc), as DeepSpeed does.
  const bool shards = run.parallel.data_parallel == DataParallel::kFsdp1 ||
                      run.parallel.data_parallel == DataParallel::kFsdp2 ||
                      run.parallel.framework() == Framework::kDeepSpeed;
  if (run.training().loading == ModelLoading::kHost && !shards) move_to_card(tape, model);
}

}  // namespace memcalc
