#include "memcalc/train/swapped_blocks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/quantized.h"

namespace memcalc {

namespace {

constexpr std::int64_t kLeastBlocks = 4;  // fewer are no list of blocks: Z-Image's refiners

/// flux_models.py and flux2_models.py, enable_block_swap.
void split_swapped(BlockList& first, BlockList& second, std::int64_t asked) {
  if (second.blocks == 2 * first.blocks) {
    first.swapped = asked / 2;
    second.swapped = (asked - first.swapped) * 2;
    return;
  }
  const double share = static_cast<double>(second.blocks) / static_cast<double>(first.blocks);
  first.swapped = std::llrint(static_cast<double>(asked) / (1.0 + share / 2.0));  // round(): half to even
  second.swapped = std::llrint(static_cast<double>(first.swapped) * share);
  if (2 * first.blocks < second.blocks) {
    for (; first.swapped >= 1 && first.swapped > first.blocks - 2; --first.swapped) second.swapped += 2;
  } else {
    for (; second.swapped >= 2 && second.swapped > second.blocks - 2; second.swapped -= 2) ++first.swapped;
  }
  if (first.swapped == 0 && second.swapped == 0) ++(second.blocks >= first.blocks ? second : first).swapped;
}

/// "attn.to_q" of "blocks.3.attn.to_q" in block 3 of "blocks"; empty where it is in none of the list.
std::string name_in_block(const std::string& module, const BlockList& list, std::int64_t block) {
  const std::string path = list.path + "." + std::to_string(block) + ".";
  return module.starts_with(path) ? module.substr(path.size()) : std::string();
}

/// A block is swapped with that which begins the step on the host in its stead; only weights that both have, of one
/// shape, change places (the last block of SD3 has others), and only linear layers'.
void mark_swapped(Model& model, const std::vector<BlockList>& lists) {
  std::unordered_map<std::string, const FineTunedLinear*> by_name;
  for (const auto& layer : model.linear_layers) by_name.emplace(layer->name, layer.get());
  for (const BlockList& list : lists) {
    const std::int64_t first = list.blocks - list.swapped;
    for (const auto& layer : model.linear_layers) {
      for (std::int64_t block = first; block < list.blocks; ++block) {
        const std::string name = name_in_block(layer->name, list, block);
        if (name.empty()) continue;
        const auto partner = by_name.find(list.path + "." + std::to_string(block - first) + "." + name);
        layer->is_swapped = partner != by_name.end() && partner->second->in_features == layer->in_features &&
                            partner->second->out_features == layer->out_features;
        break;
      }
    }
  }
}

/// musubi-tuner's FP8_OPTIMIZATION_TARGET_KEYS and …EXCLUDE_KEYS by the names of diffusers' classes: layers of the
/// blocks but for norms and modulations; FLUX.1's modulations stand in its norms.
bool is_scaled(const std::string& name, const std::vector<std::string>& layer_paths) {
  if (name.find("norm") != std::string::npos || name.find("odulation") != std::string::npos) return false;
  return std::any_of(layer_paths.begin(), layer_paths.end(),
                     [&](const std::string& path) { return name.starts_with(path + "."); });
}

void check_mostly_linear(const Model& model) {
  std::int64_t all = 0, linear = 0;
  for (const Parameter& each : model.parameters) all += each.tensor.elements();
  for (const auto& layer : model.linear_layers) linear += layer->in_features * layer->out_features;
  if (linear * 10 < all * 9) throw refusal(rules::kFp8BaseLayers);
}

/// nn.Module._apply: children in their order, then the module's own tensors.
struct MovedModule {
  std::vector<std::pair<std::string, MovedModule>> children;
  std::vector<std::size_t> own;

  MovedModule& child(std::string_view name) {
    const auto found =
        std::find_if(children.begin(), children.end(), [&](const auto& each) { return each.first == name; });
    return found != children.end() ? found->second : children.emplace_back(std::string(name), MovedModule()).second;
  }
  void add_to(std::vector<std::size_t>& order) const {
    for (const auto& [name, module] : children) module.add_to(order);
    order.insert(order.end(), own.begin(), own.end());
  }
};

std::vector<std::size_t> moving_order(const std::vector<Parameter>& parameters) {
  MovedModule root;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::string_view rest = parameters[i].name;
    MovedModule* module = &root;
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      module = &module->child(rest.substr(0, dot));
      rest.remove_prefix(dot + 1);
    }
    module->own.push_back(i);
  }
  std::vector<std::size_t> order;
  root.add_to(order);
  return order;
}

}  // namespace

std::vector<BlockList> block_lists(const std::vector<std::string>& layer_paths, std::int64_t asked) {
  std::vector<BlockList> lists;
  std::map<std::string, std::set<std::string>> blocks;
  for (const std::string& path : layer_paths) {
    const std::size_t dot = path.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string list = path.substr(0, dot);
    if (blocks[list].empty()) lists.push_back({list, 0, 0});
    blocks[list].insert(path.substr(dot + 1));
  }
  for (BlockList& each : lists) each.blocks = static_cast<std::int64_t>(blocks[each.path].size());
  std::erase_if(lists, [](const BlockList& each) { return each.blocks < kLeastBlocks; });
  if (lists.empty() || lists.size() > 2) throw refusal(rules::kBlocksToSwap);
  if (lists.size() == 2) {
    split_swapped(lists[0], lists[1], asked);
  } else {
    lists[0].swapped = asked;
  }
  const std::int64_t least = lists.size() == 2 ? 2 : 1;
  for (const BlockList& each : lists) {
    if (each.swapped <= each.blocks - least) continue;
    throw refusal(rules::kSwapLeavesBlocks, {std::to_string(asked), std::to_string(each.swapped),
                                             std::to_string(each.blocks), each.path, std::to_string(least)});
  }
  return lists;
}

void load_denoiser(Tape& tape, Model& model, const RunSpec& run) {
  const Quantization kind = run.fine_tuning.quantization;
  const std::vector<std::string> layer_paths = model.layer_paths.value_or(std::vector<std::string>());
  if (is_fp8_base(kind)) check_mostly_linear(model);
  if (run.fine_tuning.blocks_to_swap > 0) {
    const std::vector<BlockList> lists = block_lists(layer_paths, run.fine_tuning.blocks_to_swap);
    mark_swapped(model, lists);
  }
  std::vector<FineTunedLinear*> weights(model.parameters.size());
  for (const auto& layer : model.linear_layers) {
    weights[layer->first_parameter] = layer.get();
    if (!is_fp8_base(kind) || (kind == Quantization::kFp8Scaled && !is_scaled(layer->name, layer_paths))) continue;
    layer->quantized.kind = kind;
    layer->quantized.out_features = layer->out_features;
    layer->quantized.in_features = layer->in_features;
    layer->quantized.dtype = layer->quantized.source_dtype = weights_dtype_of(run);
  }
  const auto put = [&](const Tensor& tensor, const Shape& shape, DType dtype) {
    Tensor storage = tape.empty(shape, dtype, aten::kToCopy, Category::kWeights);
    tape.take_storage(tensor, storage);
  };
  Bytes swapped = 0;
  for (const std::size_t i : moving_order(model.parameters)) {
    const Tensor& parameter = model.parameters[i].tensor;
    FineTunedLinear* const layer = weights[i];
    if (layer != nullptr && is_fp8_base(layer->quantized.kind)) {
      parameter.impl()->dtype = DType::kUInt8;
      tape.autograd.set_trainable(parameter, false);
      if (kind == Quantization::kFp8Scaled) {
        const Shape scales{layer->out_features, fp8_scales_of_row(layer->in_features)};
        layer->quantized.scales.push_back(
            tape.empty(scales, layer->quantized.dtype, aten::kToCopy, Category::kWeights));
      }
    }
    if (layer != nullptr && layer->is_swapped) {
      swapped = checked_add(swapped, parameter.bytes());
      put(parameter, {0}, parameter.dtype());
    } else {
      put(parameter, parameter.shape(), parameter.dtype());
    }
  }
  for (const Tensor& buffer : model.buffers) put(buffer, buffer.shape(), buffer.dtype());
  if (run.fine_tuning.blocks_to_swap == 0) return;
  tape.memory.empty_cache();  // _clean_memory_on_device
  // Each swapped block leaves the card once and comes back once, in the forward pass and in backward.
  model.not_modelled.push_back(fmt::format(
      "the time that blocks take to change places: {:.1f} GiB cross PCIe to the card in a step, and as much "
      "back, beside the computation",
      static_cast<double>(checked_multiply(swapped, 2)) / (1 << 30)));
}

}  // namespace memcalc
