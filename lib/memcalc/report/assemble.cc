#include "memcalc/report/assemble.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memcalc/base/kept_vector.h"
#include "memcalc/cost/missing_rates.h"
#include "memcalc/report/accounting.h"
#include "memcalc/report/epoch.h"
#include "memcalc/report/host_memory.h"
#include "memcalc/report/nccl_memory.h"
#include "memcalc/report/opaque_calls.h"
#include "memcalc/report/packed_weights_note.h"
#include "memcalc/report/quantity.h"
#include "memcalc/report/stages.h"
#include "memcalc/report/throughput.h"
#include "memcalc/report/versions_used.h"
#include "memcalc/report/vllm_on_card.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/train/optimizers/offload.h"

namespace memcalc {
namespace {

// The framework whose behaviour the symbolic step reproduces.

// Of blocks that are alike. Names are compared by address, so no string is built per block.
struct LiveBlocks {
  const Operator* node = nullptr;
  const Operator* op = nullptr;
  Bytes bytes = 0;
  Category category = Category::kTemporaries;

  [[nodiscard]] bool operator==(const LiveBlocks&) const = default;
};

struct HashOfLiveBlocks {
  std::size_t operator()(const LiveBlocks& blocks) const {
    constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: spreads what differs in few bits
    std::uint64_t hash = std::hash<const Operator*>()(blocks.op);
    hash = hash * kMix + std::hash<const Operator*>()(blocks.node);
    hash = hash * kMix + static_cast<std::uint64_t>(blocks.bytes);
    return static_cast<std::size_t>((hash * kMix + static_cast<std::uint64_t>(blocks.category)) * kMix >> 32U);
  }
};

using BlockCounts = std::unordered_map<LiveBlocks, std::int64_t, HashOfLiveBlocks>;

BlockCounts live_blocks(const Trace& trace, std::size_t event_index) {
  constexpr std::int32_t kDead = -1;
  KeptVector<std::int32_t> born(trace.blocks.size(), kDead);  // event that allocated the block, while it lives
  const std::span<const Event> events(trace.events.data(), std::min(event_index + 1, trace.events.size()));
  std::int32_t number = 0;
  for (const Event& event : events) {  // their blocks are ones of the trace, which was replayed
    if (event.moves_block()) {
      born[static_cast<std::size_t>(event.block)] = event.kind == EventKind::kAllocate ? number : kDead;
    }
    ++number;
  }
  BlockCounts counts;
  for (std::size_t block = 0; block < born.size(); ++block) {
    if (born[block] == kDead) continue;
    const Event& event = events[static_cast<std::size_t>(born[block])];
    ++counts[{event.node, event.op, trace.blocks[block].requested, trace.blocks[block].category}];
  }
  return counts;
}

// Blocks that no operator made: parameters, inputs.
std::string origin_of(const LiveBlocks& block) {
  if (block.op != nullptr || block.node != nullptr) return chain_of({.op = block.op, .node = block.node});
  if (block.category == Category::kWeights) return "parameter";
  if (block.category == Category::kInputs) return "input";
  return "python";
}

/// The framework's own buffers, of one rank, for each parameter that it holds a part of.
Accounting account_held(const SymbolicRun& symbolic, std::int64_t parameters) {
  Accounting accounting;
  for (const HeldRow& row : symbolic.held) {
    const double each = static_cast<double>(row.bytes) / static_cast<double>(std::max<std::int64_t>(parameters, 1));
    accounting.profile.push_back({row.name, each, row.bytes, row.rule});
  }
  accounting.classic = accounting.profile;
  return accounting;
}

void fill_parameters(const SymbolicRun& symbolic, const RunSpec& run, Report& report) {
  AccountingInput input{.weights_dtype = weights_dtype_of(run), .precision = run.precision, .infers = !run.trains()};
  if (run.trains()) {
    input.optimizer = optimizer_on_card(run.training());
    input.loop = run.training().loop;
    input.offloads = run.training().offload_optimizer;
  }
  for (const ParameterInfo& parameter : symbolic.parameters) {
    if (parameter.packing != Quantization::kNone || parameter.is_swapped) {
      const std::string how = parameter.is_swapped ? "host" : std::string(name_of(parameter.packing));
      input.add_packed(how, parameter.elements, parameter.packed);
      continue;
    }
    const OptimizedTensor tensor{parameter.shape, parameter.dtype, parameter.is_embedding};
    if (run.trains() && parameter.trainable) {
      input.add_trainable(tensor);
    } else {
      input.add_frozen(tensor);
    }
  }
  if (run.fine_tuning.quantization == Quantization::kNf4Double) {
    input.constants = checked_add(input.constants, kSharedMapBytes);
  }
  input.reference = symbolic.reference_bytes;
  input.autocast_copies = report.memory.categories_at_peak[static_cast<std::size_t>(Category::kAutocastCopies)];
  report.parameters_total = input.parameters;
  report.parameters_trainable = run.trains() ? input.trainable_parameters : input.parameters;
  report.parameters_active = input.parameters - symbolic.inactive_parameters;
  report.accounting = account(input);
  if (!symbolic.held.empty()) report.accounting = account_held(symbolic, input.parameters);
  if (symbolic.parameters_of_model > 0) {
    report.parameters_total = symbolic.parameters_of_model;
    report.parameters_trainable = symbolic.trainable_of_model;
    report.parameters_active = symbolic.parameters_of_model - symbolic.inactive_parameters;
  }
}

void fill_weights(const SymbolicRun& symbolic, Report& report) {
  if (report.model.weights == nullptr) return;
  std::vector<ParameterShape> parameters;
  for (const ParameterInfo& each : symbolic.parameters) {
    const auto& dims = each.shape.dims;
    parameters.push_back({each.name, {dims.begin(), dims.begin() + each.shape.rank}, each.elements});
  }
  report.weights = compare_weights(*report.model.weights, report.model.model_type, parameters);
}

void fill_flops(const KernelList& kernels, Report& report) {
  for (std::size_t i = 0; i < kOperatorClassCount; ++i) report.flops[i].operator_class = static_cast<OperatorClass>(i);
  for (const Kernel& kernel : kernels) {
    FlopRow& row = report.flops.at(static_cast<std::size_t>(kernel.operator_class));
    const double repeats = static_cast<double>(kernel.repeats) * kernel.share;
    const double flops = kernel.flops * repeats;
    row.bytes_moved += kernel.bytes * repeats;
    if (kernel.recomputed) {
      row.recomputation += flops;
    } else if (kernel.phase == Phase::kBackward) {
      row.backward += flops;
    } else if (kernel.phase == Phase::kOptimizer) {
      row.optimizer += flops;
    } else {
      row.forward += flops;
    }
  }
}

struct DeviceUse {
  std::optional<Bytes> bytes;
  Bytes error = 0;  // of what is assumed in it
};

// Device memory in use = reserved + context + loaded kernels + NCCL: as measured on the card, else as it is assumed.
DeviceUse device_used(const DeviceSpec& device, const RunSpec& run, const SymbolicRun& symbolic, Bytes reserved) {
  const KernelList& kernels = symbolic.kernels;
  // Measured on the H100: cuDNN's attention adds 16 MiB, whatever else runs; 16-bit kernels alone add nothing.
  const bool cudnn = std::any_of(kernels.begin(), kernels.end(), [](const Kernel& k) {
    return std::string_view(k.op->name).find("cudnn") != std::string_view::npos;
  });
  const auto& loaded = cudnn ? device.kernel_bytes_with_cudnn : device.kernel_bytes;
  DeviceUse use;
  if (device.context_bytes && loaded) {
    use.bytes = checked_add(reserved, checked_add(*device.context_bytes, *loaded));
  } else if (device.assumed_context) {
    use = {checked_add(reserved, device.assumed_context->bytes), device.assumed_context->error};
  }
  if (!use.bytes || !run.parallel.is_parallel()) return use;
  if (!device.nccl) return {};
  const Bytes nccl = nccl_bytes(*device.nccl, communication_of(run.parallel, symbolic.rank));
  *use.bytes = checked_add(*use.bytes, nccl);
  // What NCCL takes for the network between hosts is not known.
  if (device.nccl_assumed || run.parallel.nodes > 1) use.error = checked_add(use.error, nccl);
  return use;
}

// Managed memory lies on the card as long as there is room; the driver sends what finds none to the host. It gives
// the card to it in steps of 128 MiB (measured on the H200: paged optimizers, 0.4 to 2.6 GiB).
Bytes managed_on_device(const DeviceSpec& device, Bytes managed, Bytes used) {
  constexpr Bytes kStep = Bytes{128} << 20;
  const Bytes wanted = checked_multiply(ceil_div(managed, kStep), kStep);
  return std::min(wanted, std::max<Bytes>(device.memory_bytes - used, 0));
}

void tell_what_is_assumed(Report& report) {
  const DeviceSpec& device = report.device;
  const bool parallel = report.run.parallel.is_parallel();
  report.assumptions.insert(report.assumptions.end(), device.assumptions.begin(), device.assumptions.end());
  if (!report.device_used_bytes) {
    report.assumptions.push_back(
        fmt::format("what a process takes of {} beside the allocator's memory is not known: reserved memory alone is "
                    "compared with the card's",
                    device.name));
    return;
  }
  if (!device.context_bytes) {
    report.assumptions.push_back(fmt::format("context and kernels on {} take {}, give or take {} ({})", device.name,
                                             format_bytes(device.assumed_context->bytes),
                                             format_bytes(device.assumed_context->error),
                                             device.assumed_context->source));
  }
  const Profile& profile = report.run.profile;
  const Version& torch = profile.version(Software::kTorch);
  const CudaArchitecture architecture = architecture_of(device);
  if (is_cuda(device) && architecture < profile.oldest_architecture) {
    const WheelArchitecture& other = profile.wheel_of_older;
    const bool has_other = other.oldest != CudaArchitecture::kNone && other.oldest <= architecture;
    report.assumptions.push_back(fmt::format(
        "PyTorch's own wheels of CUDA {}.{} have no kernels for {} (compute capability {}.{}): it has to be built from "
        "source{}",
        profile.cuda.major, profile.cuda.minor, device.name, device.compute_capability_major,
        device.compute_capability_minor,
        has_other ? fmt::format(", or CUDA {}.{}'s taken", other.cuda.major, other.cuda.minor) : ""));
  }
  if (!device.measured_torch.empty() && version_of(device.measured_torch) != torch) {
    report.assumptions.push_back(fmt::format("context and kernels on {} take what they take with torch {}, not {}",
                                             device.name, device.measured_torch, text_of(torch)));
  }
  if (parallel && (device.nccl_assumed || report.run.parallel.nodes > 1)) {
    report.assumptions.push_back(fmt::format("NCCL takes on {} what it takes on an H100{}", device.name,
                                             report.run.parallel.nodes > 1 ? " within a host" : ""));
  }
}

void fill_fit(const SymbolicRun& symbolic, Report& report) {
  const Bytes reserved = report.memory.peak_reserved;
  const DeviceUse use = device_used(report.device, report.run, symbolic, reserved);
  report.device_used_bytes = use.bytes;
  report.managed_bytes = symbolic.managed_bytes;
  report.managed_on_device_bytes =
      managed_on_device(report.device, report.managed_bytes, report.device_used_bytes.value_or(reserved));
  if (report.device_used_bytes) *report.device_used_bytes += report.managed_on_device_bytes;
  if (report.run.shares_card_with_vllm()) {
    report.vllm = vllm_on_card(report.model, report.run, report.device, symbolic,
                               {.at_peak = report.needed(), .memory = report.memory});
    if (report.device_used_bytes) *report.device_used_bytes += report.vllm->beside_trainer;
  }
  report.needed_error = error_of(report.model, report.run, report.device, reserved, use.error);
  report.verdict = verdict_of(report.needed(), report.needed_error, report.device.usable_bytes());
  if (!report.starts()) report.verdict = Verdict::kDoesNotFit;
  tell_what_is_assumed(report);
  if (!report.device.validated) {
    report.assumptions.push_back("memory behaviour of " + report.device.name + " follows from its specification; " +
                                 "it has not been measured by this project");
  }
  if (!is_cuda(report.device)) {
    report.not_modelled.push_back("the kernels and the allocator of " + report.device.name +
                                  ", which is no CUDA device: a CUDA card's are assumed");
  }
}

void fill_peak(const Trace& trace, Report& report) {
  if (report.memory.peak_event >= trace.events.size()) return;  // an empty trace has no instant
  const Event& event = trace.events[report.memory.peak_event];
  report.peak_operator = chain_of(event);
  report.peak_phase = event.phase;
  report.peak_step = event.step;
  report.contributors = contributors_at(trace, report.memory.peak_event);
}

}  // namespace

std::string_view untimed_call(const RunSpec& run) {
  if (run.trains()) return {};
  if (run.parallel.offload_parameters != OffloadTo::kNowhere)
    return "weights are copied from the host as they are used";
  if (is_prequantized(run.fine_tuning.quantization)) return "kernels that multiply packed weights were not measured";
  return {};
}

namespace {

// Why no time is given: a rate that it needs is not known.
std::string untimed(const KernelList& kernels, const RunSpec& run, const DeviceSpec& device) {
  const std::string_view what = run.trains() ? "the time of a step" : "the time of a call";
  const std::vector<std::string> missing =
      device.rates == nullptr ? std::vector<std::string>{} : missing_rates(kernels, device);
  if (const std::string_view reason = untimed_call(run); missing.empty() && !reason.empty()) {
    return fmt::format("{}: {}", what, reason);
  }
  if (missing.empty()) return std::string(what);
  return fmt::format("{}: not known of {}: {}", what, device.name, fmt::join(missing, ", "));
}

void say_what_is_left_out_between_steps(const RunSpec& run, std::vector<std::string>& not_modelled) {
  std::vector<std::string_view> left_out;
  if (!run.training().evaluation) left_out.emplace_back("evaluation");
  if (!run.generates()) left_out.emplace_back("generation");
  if (run.uses_vllm()) {
    if (run.shares_card_with_vllm())
      not_modelled.emplace_back(
          "vLLM's CUDA graphs and libraries, which it counts into what it asks for, and which stay while it sleeps");
    if (run.training().vllm.mode == VllmMode::kServer) {
      not_modelled.emplace_back(
          "steps after the third: each sends its weights on new streams, whose buffers PyTorch keeps for streams that "
          "come again after 16 steps, so that reserved memory grows until the card is full");
    }
  }
  if (run.training().saving == ModelSaving::kNone) left_out.emplace_back("checkpoint saving");
  if (left_out.empty()) return;
  std::string text(left_out.front());
  for (std::size_t i = 1; i < left_out.size(); ++i) {
    text.append(i + 1 == left_out.size() ? " and " : ", ").append(left_out[i]);
  }
  not_modelled.push_back(text + " between steps");
}

}  // namespace

std::string chain_of(const Event& event) {
  std::string chain = event.node != nullptr ? event.node->name : "";
  if (event.op == nullptr) return chain;
  if (!chain.empty()) chain += '>';
  return chain + event.op->name;
}

std::vector<PeakContributor> contributors_at(const Trace& trace, std::size_t event_index) {
  // One operator may be defined in several files: blocks whose chains read the same are one row.
  std::map<std::tuple<Category, std::string, Bytes>, std::int64_t> counts;
  for (const auto& [each, blocks] : live_blocks(trace, event_index)) {
    counts[{each.category, origin_of(each), each.bytes}] += blocks;
  }
  std::vector<PeakContributor> rows;
  for (const auto& [row, blocks] : counts) {
    const auto& [category, chain, bytes] = row;
    rows.push_back({category, chain, blocks, bytes, checked_multiply(blocks, bytes)});
  }
  // Addresses may differ between two runs of the program: the printed order must not depend on them.
  std::sort(rows.begin(), rows.end(), [](const PeakContributor& a, const PeakContributor& b) {
    return std::tie(b.total_bytes, a.category, a.operator_chain, b.block_bytes) <
           std::tie(a.total_bytes, b.category, b.operator_chain, a.block_bytes);
  });
  return rows;
}

/// FunctionsManual.cpp, svd_backward: with singular values alone nothing is subtracted.
bool differentiates_singular_vectors(const KernelList& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const Kernel& kernel) {
    return kernel.node != nullptr && std::string_view(kernel.node->name) == aten::kSvd.node.name &&
           std::string_view(kernel.op->name) == aten::kSub.name;
  });
}

Report assemble(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, const SymbolicRun& symbolic,
                ReplayResult memory, const std::optional<StepTime>& time) {
  Report report{.model = model, .run = run, .device = device, .memory = std::move(memory)};
  report.versions = versions_used(model, run);
  report.profile = versions_text(report.versions);
  report.assumptions = notes_on_packed_weights(symbolic, model, run, device);
  report.leading_assumptions = static_cast<std::int64_t>(report.assumptions.size());
  report.assumptions.insert(report.assumptions.end(), symbolic.assumptions.begin(), symbolic.assumptions.end());
  report.assumptions.insert(report.assumptions.end(), model.assumptions.begin(), model.assumptions.end());
  report.not_modelled = symbolic.not_modelled;
  if (is_program(model)) report.opaque = opaque_calls(symbolic.kernels);
  if (!report.opaque.empty()) {
    report.not_modelled.push_back(fmt::format(
        "inside of {} in a step, which the operator table does not have, or not with these arguments: memory "
        "that they hold for a moment or keep for backward beside their tensors",
        text_of(report.opaque)));
  }
  if (is_program(model) && differentiates_singular_vectors(symbolic.kernels)) {
    report.assumptions.emplace_back(
        "gradients of singular vectors (torch.linalg.svd): on a card peaks were up to 18 % off what is told here");
  }
  report.not_modelled.emplace_back("other processes and the display on the same card");
  if (run.trains()) say_what_is_left_out_between_steps(run, report.not_modelled);
  if (!time) report.not_modelled.push_back(untimed(symbolic.kernels, run, device));
  for (std::string& note : substituted_types(symbolic.kernels, device)) report.assumptions.push_back(std::move(note));
  if (time && !device.rates->unsaid.empty()) {
    report.assumptions.push_back(fmt::format("the file of {} lacks rates of {}: its datasheet and an H100's stand in",
                                             device.name, fmt::join(device.rates->unsaid, ", ")));
  }
  if (const std::string part = untimed_part(run); time && !part.empty()) {
    report.not_modelled.push_back("the time of " + part + ", which the time of a step lacks");
  }
  if (run.expandable_segments) report.not_modelled.emplace_back("retries of the allocator when the card is full");
  report.kv_cache = symbolic.kv_cache;
  fill_parameters(symbolic, run, report);
  fill_weights(symbolic, report);
  fill_peak(symbolic.trace, report);
  fill_flops(symbolic.kernels, report);
  fill_fit(symbolic, report);
  report.epoch = epoch_of(symbolic, report.memory);
  if (time) set_time(report, *time);
  report.host_memory = host_memory_of(symbolic, run);
  report.stages = stages_of(symbolic, run, report.memory, report.model.checkpoint_dtype);
  if (report.epoch && report.peak_phase == Phase::kEvaluation) {  // behind a step that is simulated
    const auto behind = static_cast<std::size_t>(report.peak_step);
    report.peak_step = static_cast<int>(symbolic.data_steps.simulated[behind].number);
  } else if (report.epoch) {
    report.peak_step = static_cast<int>(report.epoch->peak_step);
  }
  return report;
}

}  // namespace memcalc
