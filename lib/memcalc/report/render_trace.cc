#include "memcalc/report/render_trace.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/report/assemble.h"

namespace memcalc {
namespace {

// Where the snapshot's made-up addresses start; torch's own are of this size.
constexpr Bytes kFirstAddress = Bytes{0x7f0000000000};

class TraceWriter {
 public:
  TraceWriter(const Trace& trace, const ReplayResult& replayed, const TraceOptions& options)
      : trace_(trace), replayed_(replayed), options_(options) {
    if (replayed.timeline.size() != trace.events.size()) {
      throw Error(ErrorCode::kInternal, "render_trace: the replay has no timeline of this trace");
    }
    for (const Event& event : trace.events) last_step_ = std::max(last_step_, event.step);
  }

  [[nodiscard]] std::string tsv() {
    out_ = "# phase\tdelta_bytes\tallocated\treserved\top_chain(outer>inner)\tinner_input_dims\n";
    std::int16_t step = kNoStep;
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const Event& event = trace_.events[i];
      if (!wanted(event)) continue;
      if (options_.all_steps && event.step != step) write_step_mark(event.step);
      step = event.step;
      write_row(event, replayed_.timeline[i]);
    }
    return std::move(out_);
  }

  [[nodiscard]] std::string snapshot() {
    // Written by hand: operator names are identifiers, and a document tree of every event would be a hundred times
    // the text.
    out_ = "{\"segments\": [], \"device_traces\": [[\n";
    addresses_.assign(trace_.blocks.size(), 0);
    Bytes next_address = kFirstAddress;
    bool first = true;
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const Event& event = trace_.events[i];
      if (!event.moves_block()) continue;
      const Bytes size = replayed_.timeline[i].block_bytes;
      Bytes& address = addresses_.at(static_cast<std::size_t>(event.block));
      if (event.kind == EventKind::kAllocate) {
        address = next_address;
        next_address += size;
      }
      // Blocks that live when the window opens come first: the viewer pairs a free with the allocation before it.
      if (!wanted(event) && !alive_at_window(i)) continue;
      if (event.kind == EventKind::kAllocate) {
        write_action("alloc", event, address, size, first);
      } else {
        write_action("free_requested", event, address, size, first);
        write_action("free_completed", event, address, size, first);
      }
    }
    out_ += "\n]]}\n";
    return std::move(out_);
  }

 private:
  static constexpr std::int16_t kNoStep = -2;

  [[nodiscard]] bool wanted(const Event& event) const { return options_.all_steps || event.step == last_step_; }

  // Whether event i, before the window, allocates a block that is still alive when the window opens.
  [[nodiscard]] bool alive_at_window(std::size_t i) {
    if (survivors_.empty()) find_survivors();
    return trace_.events[i].kind == EventKind::kAllocate &&
           survivors_.at(static_cast<std::size_t>(trace_.events[i].block));
  }

  void find_survivors() {
    survivors_.assign(trace_.blocks.size() + 1, false);
    for (const Event& event : trace_.events) {
      if (event.step == last_step_) return;
      if (!event.moves_block()) continue;
      survivors_.at(static_cast<std::size_t>(event.block)) = event.kind == EventKind::kAllocate;
    }
  }

  void number(Bytes value) {
    char buffer[24];
    out_.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  }

  void write_chain(const Event& event) {
    if (event.node != nullptr) out_ += event.node->name;
    if (event.node != nullptr && event.op != nullptr) out_ += '>';
    if (event.op != nullptr) out_ += event.op->name;
  }

  void write_step_mark(std::int16_t step) {
    out_ += step < 0 ? std::string("# construction\n") : "# step " + std::to_string(step) + "\n";
  }

  void write_row(const Event& event, const TimelinePoint& point) {
    if (event.kind == EventKind::kEmptyCache) {
      out_ += "# empty_cache\n";
      return;
    }
    if (event.kind == EventKind::kReturn) return;  // nothing that is allocated changes
    out_.append(name_of(event.phase)).append(event.kind == EventKind::kAllocate ? "\t" : "\t-");
    number(point.block_bytes);
    out_ += '\t';
    number(point.allocated);
    out_ += '\t';
    number(point.reserved);
    out_ += '\t';
    write_chain(event);
    // memcalc keeps no operand shapes per event; the column stays for readers of the form.
    out_ += event.op != nullptr || event.node != nullptr ? "\t[]\n" : "\t\n";
  }

  void write_action(std::string_view action, const Event& event, Bytes address, Bytes size, bool& first) {
    out_.append(first ? "" : ",\n").append("{\"action\": \"").append(action).append("\", \"addr\": ");
    first = false;
    number(address);
    out_ += ", \"size\": ";
    number(size);
    out_ += ", \"stream\": ";
    number(static_cast<Bytes>(trace_.blocks[static_cast<std::size_t>(event.block)].stream));
    out_ += ", \"time_us\": ";
    number(time_++);  // the viewer orders by it; there is no clock in a symbolic run
    out_ += ", \"frames\": [{\"name\": \"";
    write_chain(event);
    out_.append("\", \"filename\": \"").append(name_of(event.phase)).append("\", \"line\": ");
    number(event.step < 0 ? 0 : event.step + 1);
    out_ += "}]}";
  }

  const Trace& trace_;
  const ReplayResult& replayed_;
  const TraceOptions& options_;
  std::int16_t last_step_ = kNoStep;
  std::vector<Bytes> addresses_;  // by block: unique for ever, since only identity matters to the viewer
  std::vector<bool> survivors_;   // by block: alive when the last step begins
  Bytes time_ = 0;
  std::string out_;
};

}  // namespace

std::string render_trace(const Trace& trace, const ReplayResult& replayed, const TraceOptions& options) {
  TraceWriter writer(trace, replayed, options);
  return options.format == TraceFormat::kTsv ? writer.tsv() : writer.snapshot();
}

}  // namespace memcalc
