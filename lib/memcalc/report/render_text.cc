// The text that a person reads: the verdict first, then what fills the memory, then what was assumed. 80 columns.
#include <algorithm>
#include <string_view>
#include <utility>

#include "memcalc/report/accounting.h"
#include "memcalc/report/opaque_calls.h"
#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/report/vllm_on_card.h"

namespace memcalc {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kNameColumns = 18;
constexpr std::size_t kBytesColumns = 10;
constexpr std::size_t kHostColumns = 24;
constexpr std::string_view kGreen = "\x1b[1;32m";
constexpr std::string_view kYellow = "\x1b[1;33m";
constexpr std::string_view kRed = "\x1b[1;31m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kCyan = "\x1b[36m";
constexpr std::string_view kReset = "\x1b[0m";

class TextRenderer {
 public:
  TextRenderer(const Report& report, const RenderOptions& options) : report_(report), options_(options) {}

  // On a screen stands what a person reads first and what was asked for by an option, not what belongs to every run.
  [[nodiscard]] std::string render() {
    const bool whole = !is_screen();
    write_verdict();
    write_remedies();
    write_setting();
    write_weights();
    write_categories();
    write_totals();
    write_vllm();
    write_ranks();
    if (whole) write_phases();
    write_stages();
    write_epoch();
    write_cache();
    write_concurrency();
    if (whole) write_accounting();
    if (whole) write_flops();
    if (report_.time) whole ? write_time(*report_.time) : write_speed(*report_.time);
    if (report_.training) write_training(*report_.training);
    if (whole) write_host_memory();
    if (whole) write_cards();
    if (options_.explain) out_ += render_explanation(report_, options_);
    if (report_.config) {
      write_list(report_.config->file + ", read as " + report_.config->program, lines_of(*report_.config));
    }
    if (whole) {
      write_list("Assumed", report_.assumptions);
      write_list("Not modelled", report_.not_modelled);
    } else {
      write_count_of_notes();
    }
    line();
    for (const std::string& part : wrap("Profile: " + report_.profile, options_.columns)) line(part);
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool is_screen() const { return !options_.details && !options_.explain; }

  // How much --details would say, and what of it nobody has compared with a card.
  void write_count_of_notes() {
    const std::vector<std::string>& assumed = report_.assumptions;
    const auto unproven = std::count_if(assumed.begin(), assumed.end(), [](const std::string& each) {
      return each.find("not validated") != std::string::npos || each.find("not been measured") != std::string::npos;
    });
    std::string text = format_counted(static_cast<std::int64_t>(assumed.size()), "assumption");
    if (unproven > 0) text += " (" + std::to_string(unproven) + " not validated)";
    text += " and " + format_counted(static_cast<std::int64_t>(report_.not_modelled.size()), "limit") +
            " of this answer: --details lists them, with phases, FLOPs and the host";
    line();
    for (const std::string& part : wrap(text, options_.columns)) line(part);
    if (report_.opaque.empty()) return;
    const std::string opaque =
        "Opaque in a step: " + text_of(report_.opaque) + "; what they hold inside is not counted";
    for (const std::string& part : wrap(opaque, options_.columns)) line(part);
  }

  [[nodiscard]] std::string painted(std::string_view text, std::string_view color) const {
    if (!options_.color) return std::string(text);
    return std::string(color).append(text).append(kReset);
  }

  // No line ends in blanks: they would show in diffs and wrap in narrow terminals.
  void line(std::string_view text = {}) { out_.append(text.substr(0, text.find_last_not_of(' ') + 1)).append("\n"); }

  void title(std::string_view left, std::string_view right = {}) {
    line();
    if (right.empty()) return line(painted(left, kBold));
    line(painted(pad_right(left, options_.columns - columns_of(right)), kBold).append(right));
  }

  [[nodiscard]] static std::string_view color_of(Verdict verdict) {
    if (verdict == Verdict::kFits) return kGreen;
    return verdict == Verdict::kTooClose ? kYellow : kRed;
  }

  [[nodiscard]] static std::string fit_words(const FitRow& row) {
    switch (row.verdict) {
      case Verdict::kFits: return "fits, " + format_bytes(row.headroom_bytes) + " free";
      case Verdict::kTooClose: return "too close to call, give or take " + format_bytes(row.needed_error);
      case Verdict::kDoesNotFit: break;
    }
    return "does NOT fit, " + format_bytes(-row.headroom_bytes) + " short";
  }

  void write_verdict() {
    Verdict best = report_.verdict;
    if (report_.device_assumed) {
      for (const FitRow& row : report_.other_gpus) best = std::min(best, row.verdict);
    }
    for (const std::string& part : wrap(verdict_text(report_), options_.columns)) {
      line(painted(part, color_of(best)));
    }
  }

  void write_remedies() {
    if (report_.remedies.empty()) return;
    title(heading_of(report_.remedies));
    for (const std::string& each : lines_of(report_.remedies, options_.columns)) line(each);
  }

  void write_setting() {
    line();
    for (const std::string& part : wrap(report_.model.name + ": " + parameters_of(report_), options_.columns))
      line(part);
    write_words(setting_of(report_));
    if (report_.device_assumed) line("behaviour of " + report_.device.name + " assumed: no GPU was named");
  }

  // Words in as few lines as hold them, with a mark between two.
  void write_words(const std::vector<std::string>& words, const std::string& indent = {}) {
    const std::string separator = options_.unicode ? " · " : ", ";
    std::string current = indent;
    bool begins = true;
    for (const std::string& word : words) {
      if (!begins && columns_of(current) + columns_of(separator) + columns_of(word) > options_.columns) {
        line(current);
        current = indent;
        begins = true;
      }
      current += (begins ? "" : separator) + word;
      begins = false;
    }
    line(current);
  }

  void write_weights() {
    if (!report_.weights) return;
    title("Weights on disk", format_counted(report_.weights->parameters, "parameter"));
    for (const std::string& part : wrap(weights_summary(*report_.weights), options_.columns - 2)) line("  " + part);
    write_items(weights_notes(*report_.weights));
  }

  void write_categories() {
    const Bytes peak = report_.memory.peak_allocated;
    title("Memory at the peak", format_bytes(peak) + " allocated");
    std::vector<CategoryShare> shares = category_shares(report_);
    std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    const Bytes largest = shares.front().bytes;
    // name, bytes, percent and the gaps between them take 44 columns; the largest category fills the rest.
    const std::size_t bar_columns = options_.columns > 60 ? options_.columns - 44 : 16;
    const auto write = [&](std::string_view label, Bytes bytes) {
      const double fraction = static_cast<double>(bytes) / static_cast<double>(std::max<Bytes>(largest, 1));
      line("  " + pad_right(label, kNameColumns) + pad_left(format_bytes(bytes), kBytesColumns) +
           pad_left(format_percent(static_cast<double>(bytes), static_cast<double>(peak)), 10) + "  " +
           painted(bar(fraction, bar_columns, options_.unicode), kCyan));
    };
    constexpr Bytes kSmallest = 200;  // of a screen: a share of the peak
    Bytes rest = 0;
    for (const CategoryShare& share : shares) {
      if (share.bytes == 0) continue;
      if (is_screen() && share.bytes < peak / kSmallest) {
        rest = checked_add(rest, share.bytes);
      } else {
        write(share.label, share.bytes);
      }
    }
    if (rest > 0) write("other", rest);
    for (const std::string& part : wrap("at " + instant_of(report_), options_.columns - 2)) line("  " + part);
  }

  void total(std::string_view name, Bytes bytes, std::string_view note) {
    std::string start = "  " + pad_right(name, kNameColumns) + pad_left(format_bytes(bytes), kBytesColumns) + "  ";
    for (const std::string& part : wrap(note, options_.columns - start.size())) {
      line(start + part);
      start.assign(start.size(), ' ');
    }
  }

  void write_totals() {
    const ReplayResult& memory = report_.memory;
    title("What the card sees");
    total("allocated", memory.peak_allocated, "torch.cuda.max_memory_allocated()");
    total("reserved", memory.peak_reserved, "torch.cuda.max_memory_reserved()");
    if (report_.managed_bytes > 0) {
      total("paged states", report_.managed_bytes, "managed memory, on the card or the host; not in the above");
    }
    if (report_.device_used_bytes) {
      std::string note = "nvidia-smi: reserved + context + kernels";
      if (!report_.ranks.empty()) note += " + NCCL";
      if (report_.managed_bytes > 0) note += " + paged states";
      if (report_.vllm) note += " + vLLM";
      total("device in use", *report_.device_used_bytes, note);
    }
    if (is_screen()) return;
    total("lower bound", memory.exact_peak, "of any allocator: the requests alone");
    total("fragmentation", fragmentation_bytes(report_),
          "reserved, never handed out at once (" +
              format_percent(static_cast<double>(fragmentation_bytes(report_)),
                             static_cast<double>(memory.peak_reserved)) +
              ")");
  }

  // Of vLLM beside the model that trains.
  void write_vllm() {
    if (!report_.vllm) return;
    const VllmMemory& vllm = *report_.vllm;
    title("vLLM on the same card", "not validated");
    total("asks for", vllm.requested, "--vllm-utilization " + format_share(report_.run.training().vllm.utilization));
    total("weights", vllm.weights, "its own, in 16 bits");
    total("activations", vllm.activations, "of a batch of 4,096 tokens, estimated");
    total("KV cache", vllm.cache,
          format_count(vllm.cached_tokens) + " tokens, " + format_bytes(vllm.cache_per_token) + " each");
    total("generating", vllm.while_generating, "of the card: the trainer and vLLM");
    total("training", vllm.while_training,
          report_.run.training().vllm.sleeps ? "of the card: vLLM sleeps" : "of the card: the trainer and vLLM");
    const UtilizationRange& range = vllm.utilization;
    if (range.least <= range.most) {
      write_items({"--vllm-utilization from " + format_share(range.least) + " (one sequence of " +
                   format_count(vllm.max_length) + " tokens) to " + format_share(range.most) + " lets both run; " +
                   format_share(range.least_for_all) + " holds " + format_counted(vllm.sequences, "completion") +
                   " at once"});
    }
    write_items(vllm.notes);
  }

  // Which rank all of this is of, and what the others need.
  void write_ranks() {
    if (report_.ranks.empty()) return;
    const RankRow& largest = report_.ranks[report_.largest_rank];
    title("Ranks", std::to_string(report_.run.parallel.gpus) + " " + plural(report_.run.parallel.gpus, "GPU"));
    if (report_.ranks.size() == 1) {
      for (const std::string& part : wrap("all alike", options_.columns - 2)) line("  " + part);
      return;
    }
    const std::string words = "this is the largest: " + words_of(largest);
    for (const std::string& part : wrap(words, options_.columns - 2)) line("  " + part);
    if (!options_.per_rank) return;
    line("  " + pad_right("", kHostColumns) + pad_left("allocated", 11) + pad_left("reserved", 11) +
         pad_left("in use", 11) + "  peak in");
    for (const RankRow& row : report_.ranks) {
      const std::string in_use = row.device_used_bytes ? format_bytes(*row.device_used_bytes) : "-";
      line("  " + pad_right(row.name, kHostColumns) + pad_left(format_bytes(row.peak_allocated), 11) +
           pad_left(format_bytes(row.peak_reserved), 11) + pad_left(in_use, 11) + "  " +
           std::string(name_of(row.peak_phase)));
      if (!row.holds.empty()) {
        for (const std::string& part : wrap(row.holds, options_.columns - 4)) line("    " + part);
      }
    }
  }

  void write_stages() {
    if (report_.stages.empty()) return;
    title("Stages of the job");
    line("  " + pad_right("", 10) + pad_left("allocated", 11) + pad_left("reserved", 11) + pad_left("host", 11));
    for (const StageRow& row : report_.stages) {
      const std::string host = row.host_bytes > 0 ? format_bytes(row.host_bytes) : "-";
      line("  " + pad_right(row.name, 10) + pad_left(format_bytes(row.peak_allocated), 11) +
           pad_left(format_bytes(row.peak_reserved), 11) + pad_left(host, 11) + (row.is_largest ? "  the peak" : ""));
    }
    for (const StageRow& row : report_.stages) {
      if (row.is_largest) write_items({"less in " + row.name + ": " + row.lowered_by});
      if (row.host_bytes > 0) write_items({row.name + ", on the host: " + row.host_rule});
    }
  }

  void write_epoch() {
    if (!report_.epoch) return;
    const EpochMemory& epoch = *report_.epoch;
    title("Batches as long as the data makes them");
    const auto step = [](std::int64_t number) { return "step " + format_count(number + 1); };
    std::string simulated;
    if (epoch.simulated < epoch.steps) {
      simulated = ", of which " + format_count(epoch.simulated) + " are simulated: the first and the longest";
    }
    line("  " + format_counted(epoch.steps, "step") + simulated);
    line("  peak in " + step(epoch.peak_step) + ": a micro-batch of " + format_count(epoch.peak_rows) + " x " +
         format_count(epoch.peak_columns) + " tokens");
    line("  an average step has " + format_counted(epoch.average_samples, "sample") + ", " +
         format_count(epoch.average_tokens) + " tokens with their padding");
    line("  reserved " + format_bytes(epoch.reserved_after_first_step) + " after the first step, " +
         format_bytes(epoch.reserved_at_end) + " after the last");
    line(epoch.growing_steps == 0 ? "  it does not grow behind the first step"
                                  : "  it grows in " + format_counted(epoch.growing_steps, "step") + " more, last in " +
                                        step(epoch.last_growing_step));
    if (!epoch.retrying_steps) return;
    const double share = static_cast<double>(*epoch.retrying_steps) / static_cast<double>(epoch.simulated);
    line(*epoch.retrying_steps == 0
             ? "  no step has to give segments back and ask again"
             : "  " + format_counted(*epoch.retrying_steps, "step") + " (" + format_fixed(100 * share, 1) +
                   " %) give segments back and ask again, which is slow");
  }

  void write_phases() {
    title("Peak of each phase");
    std::string peaks;
    for (const PhasePeak& each : phase_peaks(report_)) {
      const std::string peak = std::string(each.label) + " " + format_bytes(each.bytes);
      if (peaks.size() + 3 + peak.size() > kColumns) {
        line(peaks);
        peaks.clear();
      }
      peaks += (peaks.empty() ? "  " : "   ") + peak;
    }
    line(peaks);
  }

  void write_concurrency() {
    if (!report_.concurrent_sequences) return;
    const std::int64_t most = *report_.concurrent_sequences;
    title("Concurrency");
    line(most == 0 ? "  not even one sequence fits on " + report_.device.name
                   : "  up to " + format_counted(most, "such sequence") + " at once " + (most == 1 ? "fits" : "fit") +
                         " on " + report_.device.name);
  }

  void write_cache() {
    if (!report_.kv_cache) return;
    const KeyValueCacheSize& cache = *report_.kv_cache;
    title("KV cache", format_bytes(cache.bytes));
    line("  " + format_bytes(cache.bytes_per_token) + " for each token of a sequence");
    for (const std::string& note : notes_of(cache)) line("  " + note);
  }

  [[nodiscard]] static std::string cell(const AccountingRow* row) {
    if (row == nullptr) return pad_left("-", 9) + pad_left("", 12);
    return pad_left(format_fixed(row->bytes_per_parameter, 1), 9) + pad_left(format_bytes(row->total_bytes), 12);
  }

  void write_accounting() {
    const Accounting& accounting = report_.accounting;
    const std::vector<AccountingLine> lines = accounting_lines(accounting);
    std::size_t names = kNameColumns;  // "quantisation constants" needs more
    for (const AccountingLine& each : lines) names = std::max(names, each.name.size() + 1);
    const std::string_view what = "Bytes per parameter", headings = "as usually counted     as PyTorch holds them";
    const std::size_t gap = std::min(names - kNameColumns + 10, kColumns - what.size() - headings.size());
    title(std::string(what) + std::string(gap, ' ').append(headings));
    for (const AccountingLine& each : lines) {
      const bool nothing = (each.classic == nullptr || each.classic->total_bytes == 0) &&
                           (each.profile == nullptr || each.profile->total_bytes == 0);
      if (!nothing) line("  " + pad_right(each.name, names) + cell(each.classic) + "    " + cell(each.profile));
    }
    const AccountingRow classic = total_of(accounting.classic);
    const AccountingRow profile = total_of(accounting.profile);
    line("  " + pad_right("total", names) + cell(&classic) + "    " + cell(&profile));
  }

  void write_flops() {
    if (total_flops(report_) == 0) return;
    title(report_.run.trains() ? "Work of one step" : "Work of one call", format_flops(total_flops(report_)));
    line("  " + pad_right("", 14) + pad_left("forward", 13) + pad_left("backward", 13) + pad_left("recomputed", 13) +
         pad_left("optimizer", 12) + pad_left("moved", 11));
    for (const FlopRow& row : report_.flops) {
      if (total_flops(row) == 0 && row.bytes_moved == 0) continue;
      const auto figure = [](double flops) { return flops == 0 ? std::string("-") : format_flops(flops); };
      line("  " + pad_right(name_of(row.operator_class), 14) + pad_left(figure(row.forward), 13) +
           pad_left(figure(row.backward), 13) + pad_left(figure(row.recomputation), 13) +
           pad_left(figure(row.optimizer), 12) + pad_left(format_bytes_moved(row.bytes_moved), 11));
    }
  }

  void write_training(const TrainingRun& run) {
    title("Whole training");
    for (const auto& [name, value] : training_lines(run, report_.run.parallel.gpus)) write_wrapped(name, value);
  }

  void write_wrapped(std::string_view name, std::string_view value) {
    const std::vector<std::string> parts = wrap(value, options_.columns - 26);
    for (std::size_t i = 0; i < parts.size(); ++i) line("  " + pad_right(i == 0 ? name : "", 24) + parts[i]);
  }

  void write_time(const Throughput& time) {
    const StepTime& step = time.step;
    title(title_of(time), format_seconds(step.step_seconds));
    if (!time.of_call) {
      line("  " + pad_right("forward", 14) + pad_left(format_seconds(step.forward_seconds), kBytesColumns) +
           "   backward " + format_seconds(step.backward_seconds) + "   optimizer " +
           format_seconds(step.optimizer_seconds));
    }
    for (const auto& [name, seconds] : time_classes(step)) {
      line("  " + pad_right(name, 14) + pad_left(format_seconds(seconds), kBytesColumns) +
           pad_left(format_percent(seconds, step.step_seconds), 9) + "  " +
           painted(bar(seconds / step.step_seconds, 24, options_.unicode), kCyan));
    }
    for (const auto& [name, value] : rates_of(time, report_.run.parallel.gpus)) write_wrapped(name, value);
  }

  // The time on a screen: a line.
  void write_speed(const Throughput& time) {
    title(title_of(time), format_seconds(time.step.step_seconds));
    std::vector<std::string> words;
    if (!time.lacks.empty()) words.push_back("without " + time.lacks);
    if (time.generation) {
      words.push_back("first token after " + format_seconds(time.generation->prefill_seconds));
      if (time.generation->token_seconds > 0) {
        words.push_back(format_seconds(time.generation->token_seconds) + " each later token");
      }
    }
    for (const auto& [name, value] : rates_of(time, report_.run.parallel.gpus)) {
      if (name.ends_with("/s")) words.push_back(value + " " + name);
      if (name == "MFU") words.push_back(name + " " + value.substr(0, value.find(" of ")));
    }
    if (const Bound bound = time.step.bound(); bound != Bound::kCard) {
      words.push_back(bound == Bound::kFirstCalls ? "bound by first calls (--details)"
                                                  : "bound by the " + std::string(name_of(bound)));
    }
    if (const HostRange& hosts = time.step.hosts; hosts.most_seconds > hosts.least_seconds) {
      words.push_back(format_seconds(hosts.least_seconds) + " to " + format_seconds(hosts.most_seconds) +
                      " on measured hosts");
    }
    if (time.generation_steps > 0) {
      words.push_back(format_seconds(time.step.generating_step_seconds) + " with a generation, " +
                      format_seconds(time.step.other_step_seconds) + " without");
    }
    if (time.error && time.error->runs > 0) {
      std::string runs = time.rates_from.empty() ? "such runs" : "such runs on an H100 or H200";
      if (!time.error->published.empty()) runs = "published runs " + time.error->published;
      words.push_back("nine in ten " + runs + " within " + format_percent(time.error->p90, 1));
    }
    write_words(words, "  ");
  }

  // A batch of a few KiB is nothing that a person needs to read about.
  void write_host_memory() {
    const HostMemory& host = report_.host_memory;
    if (host.total < kMiB) return;
    title("Host memory", format_bytes(host.pinned) + " pinned");
    for (const HostMemoryRow& row : host.rows) {
      line("  " + pad_right(row.name, kHostColumns) + pad_left(format_bytes(row.bytes), kBytesColumns));
      for (const std::string& part : wrap(row.rule, options_.columns - 4)) line("    " + part);
    }
  }

  void write_cards() {
    if (report_.other_gpus.empty()) return;
    title("On common cards");
    for (const FitRow& row : report_.other_gpus) {
      line("  " + pad_right(row.gpu, kNameColumns) + pad_left(format_bytes(row.memory_bytes), kBytesColumns) + "  " +
           painted(fit_words(row), color_of(row.verdict)));
    }
  }

  void write_list(std::string_view name, const std::vector<std::string>& entries) {
    if (entries.empty()) return;
    title(name);
    write_items(entries);
  }

  void write_items(const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      std::string_view lead = "  - ";
      for (const std::string& part : wrap(entry, options_.columns - lead.size())) {
        line(std::string(lead) + part);
        lead = "    ";
      }
    }
  }

  const Report& report_;
  const RenderOptions& options_;
  std::string out_;
};

}  // namespace

std::string render_text(const Report& report, const RenderOptions& options) {
  return TextRenderer(report, options).render();
}

}  // namespace memcalc
