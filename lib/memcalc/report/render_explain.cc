// --explain: every term with its rule, and the largest contributors to the peak.
#include <algorithm>
#include <string_view>

#include "memcalc/models/measured_families.h"
#include "memcalc/report/accounting.h"
#include "memcalc/report/nccl_memory.h"
#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/spec/model_kind.h"

namespace memcalc {
namespace {

constexpr std::size_t kLargestContributors = 20;

class Explanation {
 public:
  Explanation(const Report& report, const RenderOptions& options) : report_(report), options_(options) {}

  [[nodiscard]] std::string render() {
    write_model();
    write_categories();
    write_contributors();
    write_accounting("As usually counted", report_.accounting.classic);
    write_accounting("As PyTorch holds them between steps", report_.accounting.profile);
    write_accounting("For comparison", report_.accounting.alternatives);
    write_device();
    write_flop_rules();
    write_kernels();
    return std::move(out_);
  }

 private:
  void title(std::string_view text) {
    out_ += '\n';
    out_ += options_.color ? "\x1b[1m" + std::string(text) + "\x1b[0m\n" : std::string(text) + "\n";
  }

  // "  name            7.37 GiB  the rule, wrapped under itself"
  void term(std::string_view name, std::string_view value, std::string_view rule, std::size_t name_columns = 18) {
    std::string lead = "  " + pad_right(name, name_columns) + pad_left(value, 10) + "  ";
    const std::size_t indent = columns_of(lead);
    for (const std::string& part : wrap(rule, options_.columns - indent)) {
      out_ += lead + part + "\n";
      lead.assign(indent, ' ');
    }
  }

  /// What answered, which the rest of a report does not say.
  void write_model() {
    const ModelSpec& model = report_.model;
    const bool says_it = model.source.starts_with("recorded from");
    const std::string answered = !is_program(model)
                                     ? "family " + measured_as(model)
                                     : "program " + std::string(says_it ? "" : "recorded from ") + model.source;
    out_ += '\n';
    std::string lead = "model: ";
    for (const std::string& part : wrap(answered, options_.columns - lead.size())) {
      out_ += lead + part + "\n";
      lead.assign(lead.size(), ' ');
    }
  }

  void write_categories() {
    title("The peak, term by term");
    for (const CategoryShare& share : category_shares(report_)) {
      term(share.label, format_bytes(share.bytes), rule_of_category(share.name));
    }
    term("allocated", format_bytes(report_.memory.peak_allocated), "the sum of the above");
  }

  [[nodiscard]] static std::string label_of(Category category) {
    std::string label(name_of(category));
    std::replace(label.begin(), label.end(), '_', ' ');
    return label;
  }

  // A chain that does not fit beside `lead` goes on below its beginning, one operator a line; an operator that is
  // longer than the column begins further left.
  void write_chain(std::string lead, std::string_view chain) {
    const std::size_t indent = columns_of(lead);
    while (!chain.empty()) {
      const bool whole = columns_of(lead) + columns_of(chain) <= options_.columns;
      const std::string_view part = whole ? chain : chain.substr(0, std::min(chain.find('>'), chain.size() - 1) + 1);
      if (columns_of(lead) + columns_of(part) > options_.columns) {
        if (const std::size_t end = lead.find_last_not_of(' '); end != std::string::npos) {
          out_.append(lead, 0, end + 1).append("\n");
        }
        lead.assign(options_.columns - std::min(options_.columns, columns_of(part)), ' ');
      }
      out_.append(lead).append(part).append("\n");
      lead.assign(indent + 1, ' ');
      chain.remove_prefix(part.size());
    }
  }

  void write_contributors() {
    if (report_.contributors.empty()) return;
    title("Largest contributors to the peak");
    const std::size_t shown = std::min(kLargestContributors, report_.contributors.size());
    for (std::size_t i = 0; i < shown; ++i) {
      const PeakContributor& each = report_.contributors[i];
      const std::string size =
          each.blocks == 1 ? "1 block" : std::to_string(each.blocks) + " x " + format_bytes(each.block_bytes);
      write_chain("  " + pad_left(format_bytes(each.total_bytes), 9) + pad_left(size, 17) + "  " +
                      pad_right(label_of(each.category), 18),
                  each.operator_chain);
    }
    if (shown == report_.contributors.size()) return;
    Bytes rest = 0;
    for (std::size_t i = shown; i < report_.contributors.size(); ++i) rest += report_.contributors[i].total_bytes;
    const auto left = static_cast<std::int64_t>(report_.contributors.size() - shown);
    out_ += "  " + pad_left(format_bytes(rest), 9) + "  in " + format_counted(left, "smaller group") + "\n";
  }

  void write_accounting(std::string_view name, const std::vector<AccountingRow>& rows) {
    title(std::string(name) + ": bytes per parameter");
    for (const AccountingRow& row : rows) {
      term(row.name, format_fixed(row.bytes_per_parameter, 1), format_bytes(row.total_bytes) + ": " + row.rule, 26);
    }
  }

  void write_device() {
    title("The card");
    const DeviceSpec& device = report_.device;
    term("reserved", format_bytes(report_.memory.peak_reserved),
         "segments that the caching allocator took from the driver, " +
             std::to_string(report_.memory.segments_at_peak) + " at the peak");
    if (device.context_bytes) {
      term("CUDA context", format_bytes(*device.context_bytes),
           "of a process after its first tensor on " + device.name);
    }
    if (report_.device_used_bytes && !device.context_bytes) {
      term("context and kernels", format_bytes(device.assumed_context->bytes),
           "assumed, give or take " + format_bytes(device.assumed_context->error) + ": " +
               device.assumed_context->source);
    }
    if (report_.device_used_bytes && device.context_bytes) {
      Bytes known = *device.context_bytes + report_.memory.peak_reserved + report_.managed_on_device_bytes;
      if (report_.vllm) {
        term("vLLM", format_bytes(report_.vllm->beside_trainer),
             "at the larger of two instants, while it generates and while the model trains (not validated)");
        known += report_.vllm->beside_trainer;
      }
      if (report_.run.parallel.is_parallel() && device.nccl) {
        const std::int64_t rank = report_.ranks.empty() ? 0 : report_.ranks[report_.largest_rank].first;
        const Communication communication = communication_of(report_.run.parallel, rank);
        const Bytes nccl = nccl_bytes(*device.nccl, communication);
        term("NCCL", format_bytes(nccl),
             "its kernels, and for each communicator (" + std::to_string(communication.communicators.size()) +
                 ") channels and buffers");
        known += nccl;
      }
      term("kernels", format_bytes(*report_.device_used_bytes - known),
           "code and state of the kernels and libraries that such a run loads");
      if (report_.managed_bytes > 0) {
        term("paged states", format_bytes(report_.managed_on_device_bytes),
             "what is on the card of " + format_bytes(report_.managed_bytes) +
                 " of managed memory, in the driver's steps of 128 MiB");
      }
      term("device in use", format_bytes(*report_.device_used_bytes), "the sum of these");
    }
    term("give or take", format_bytes(report_.needed_error),
         "9 of 10 measured runs of this kind are predicted so well, and what is assumed of the card");
    term("memory", format_bytes(device.memory_bytes), "what CUDA reports to torch as total");
  }

  void write_flop_rules() {
    if (total_flops(report_) == 0) return;
    title("How the work is counted");
    term("contraction", format_flops(total_flops(report_.flops[0])),
         "a multiply-add counts 2, as torch.utils.flop_counter counts it");
    write_active_flops();
    term("normalization", format_flops(total_flops(report_.flops[1])), "softmax, layer norm, RMS norm, the loss");
    term("elementwise", format_flops(total_flops(report_.flops[2])), "activations, residual sums, dropout");
    term("movement", format_bytes_moved(report_.flops[3].bytes_moved),
         "embedding, cat, casts, copies: bytes, no FLOPs");
    term("optimizer", format_flops(total_flops(report_.flops[4])), "the update of the weights");
  }

  void write_kernels() {
    if (!report_.time || report_.time->step.costliest.empty()) return;
    title("Kernels that take most of the step");
    constexpr std::size_t kUsualName = 26, kLongestAligned = 34;
    const auto shown_name = [](const CostlyKernel& kernel) {
      return kernel.name.starts_with("aten::") ? kernel.name.substr(6) : kernel.name;
    };
    std::size_t names = kUsualName;
    for (const CostlyKernel& kernel : report_.time->step.costliest) {
      const std::size_t needed = shown_name(kernel).size() + 1;
      if (needed <= kLongestAligned) names = std::max(names, needed);
    }
    for (const CostlyKernel& kernel : report_.time->step.costliest) {
      const double bytes = kernel.bytes / kernel.seconds;
      std::string reached =
          format_fixed(bytes / 1e12, 2) + " of " + format_fixed(kernel.possible_bytes_per_second / 1e12, 2) + " TB/s";
      if (kernel.possible_flops_per_second > 0) {
        reached += ", " + format_fixed(kernel.flops / kernel.seconds / 1e12, 1) + " of " +
                   format_fixed(kernel.possible_flops_per_second / 1e12, 1) + " TFLOP/s";
      }
      term(shown_name(kernel), format_seconds(kernel.seconds),
           format_percent(kernel.seconds, report_.time->step.step_seconds) + " of the step, " +
               format_counted(kernel.calls, "call") + ", " + kernel.shape + ": " + reached,
           names);
    }
  }

  // The well known 6 N of a token: forward 2, backward 4. Of a mixture N is what a token passes through.
  void write_active_flops() {
    if (report_.parameters_active == report_.parameters_total) return;
    const auto real = [](std::int64_t value) { return static_cast<double>(value); };
    const RunSpec& run = report_.run;
    const double tokens = real(run.rows()) * real(run.sequence_length) * real(run.accumulation_steps());
    term("6 N tokens", format_flops(6.0 * real(report_.parameters_active) * tokens),
         "the usual estimate, N being the active parameters: without attention's scores, with the embedding");
    term("grouped_mm", "counted", "torch.utils.flop_counter of PyTorch 2.11 leaves the experts' products out");
  }

  const Report& report_;
  const RenderOptions& options_;
  std::string out_;
};

}  // namespace

std::string render_explanation(const Report& report, const RenderOptions& options) {
  return Explanation(report, options).render();
}

}  // namespace memcalc
