#include "support/stream.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/run_names.h"
#include "support/paths.h"
#include "support/recorded_file.h"

namespace memcalc::measured {
namespace {

constexpr std::int16_t kSteps = 3;

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t end = line.find(separator);
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

Bytes number_in(std::string_view text, const std::string& path) {
  Bytes value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::kInput, path + ": expected a number, found \"" + std::string(text) + "\"");
  }
  return value;
}

// A reading between two phases: rows of the log before it, and the name of what has just ended.
struct Mark {
  std::size_t rows = 0;
  std::string name;
};

// # [61, "step 0 zero_grad", allocated, reserved, max allocated]
Mark parse_mark(std::string_view line, const std::string& path) {
  line.remove_prefix(line.find('[') + 1);
  const std::size_t comma = line.find(',');
  const std::size_t begin = line.find('"') + 1;
  return {static_cast<std::size_t>(number_in(line.substr(0, comma), path)),
          std::string(line.substr(begin, line.find('"', begin) - begin))};
}

// Which phase and step the events before each mark belong to.
class PhaseOfMark {
 public:
  enum class Place : std::uint8_t { kOutside, kConstruction, kStep };

  void enter(std::string_view name, const std::string& path) {
    place = Place::kStep;
    if (name == "start" || name == "train ended") {
      place = Place::kOutside;  // the recorder's warm-up; the Trainer's last words
      return;
    }
    // The first step of a bare loop has no gradients to drop: what stands there is the optimizer's constructor.
    if (name == "built model and batch" || name == "empty_cache" || name == "fine-tuning set up" ||
        name == "trainer constructed" || name == "prepared" || name == "step 0 zero_grad") {
      place = Place::kConstruction;
      phase = Phase::kBuild;
      return;
    }
    if (name.starts_with("call ")) {  // inference: the two calls, each with what dies after it
      step = static_cast<std::int16_t>(name[5] - '0');
      phase = name.ends_with("dropped") ? Phase::kDelete : Phase::kForward;
      return;
    }
    // Bare loops count their steps; of the Trainer's a step ends with its zero_grad, and one comes before the first.
    if (name.starts_with("step ")) {
      step = static_cast<std::int16_t>(name[5] - '0');
      name.remove_prefix(7);
    } else if (name == "batch") {
      step = batches_++;
      in_forward_ = true;
    }
    phase = phase_of(name, path);
    in_forward_ = in_forward_ && phase == Phase::kForward;
  }

  Place place = Place::kOutside;
  Phase phase = Phase::kBuild;
  std::int16_t step = 0;

 private:
  [[nodiscard]] Phase phase_of(std::string_view name, const std::string& path) const {
    if (name == "batch" || name == "before batch" || name == "forward" || name == "prepare_inputs") {
      return Phase::kForward;
    }
    // What dies between two micro-batches belongs to the first.
    if (name == "before prepare_inputs") return in_forward_ ? Phase::kForward : Phase::kDelete;
    if (name == "backward" || name == "before backward") return Phase::kBackward;
    if (name == "del loss" || name == "training_step" || name == "before clip") return Phase::kDelete;
    if (name == "before zero_grad") return batches_ == 0 ? Phase::kForward : Phase::kOptimizer;
    if (name == "zero_grad") return Phase::kZero;
    if (name == "clip" || name == "before optimizer" || name == "optimizer" || name == "scaler update") {
      return Phase::kOptimizer;
    }
    throw Error(ErrorCode::kInput, path + ": unknown phase \"" + std::string(name) + "\"");
  }

  std::int16_t batches_ = 0;
  bool in_forward_ = false;
};

bool frees_in_a_row(const StreamEvent& a, const StreamEvent& b) {
  return a.is_free && b.is_free && a.phase == b.phase && a.step == b.step;
}

// End of the maximal run of frees that begins at `begin`.
std::size_t end_of_run(const Stream& events, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < events.size() && frees_in_a_row(events[begin], events[end])) ++end;
  return end;
}

// End of the stretch of one phase and step.
std::size_t end_of_stretch(const Stream& events, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < events.size() && events[end].phase == events[begin].phase && events[end].step == events[begin].step) {
    ++end;
  }
  return end;
}

bool is_python(const StreamEvent& event) { return event.label.find(".py:") != std::string::npos; }
bool is_cast(const StreamEvent& event) { return event.label.find("cached_cast") != std::string::npos; }

// Where frees carry no frame of their own, autocast's exit is known by its place. `with_casts`: frees carry the label
// of their allocation (histories of checkpointed runs), so the run must free a cast; otherwise nothing is known.
void mark_autocast_exits_by_place(Stream& events, bool with_casts) {
  for (std::size_t begin = 0; begin < events.size();) {
    const std::size_t end = end_of_stretch(events, begin);
    std::size_t last = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!events[i].is_free) continue;
      const std::size_t run_end = end_of_run(events, i);
      const bool casts = !with_casts || std::any_of(events.begin() + static_cast<std::ptrdiff_t>(i),
                                                    events.begin() + static_cast<std::ptrdiff_t>(run_end), is_cast);
      // The forward pass: the last one of it.
      if (events[i].phase == Phase::kForward && casts) last = i;
      // A recomputation: between its last operator, called from Python, and the first of an autograd node.
      if (events[i].phase == Phase::kBackward && with_casts && casts && i > begin && is_python(events[i - 1]) &&
          run_end < end && !is_python(events[run_end])) {
        events[i].autocast_exit = true;
      }
      i = run_end - 1;
    }
    if (last < end) events[last].autocast_exit = true;
    begin = end;
  }
}

// What tells a run of frees from every other: the how manieth stretch of its phase and step, and the allocations
// before it there.
struct Run {
  std::size_t begin, end;
  Phase phase;
  std::int16_t step;
  std::size_t stretch, allocations;

  [[nodiscard]] bool same_place(const Run& other) const {
    return phase == other.phase && step == other.step && stretch == other.stretch && allocations == other.allocations;
  }
};

std::vector<Run> runs_of(const Stream& events) {
  std::vector<Run> runs;
  std::unordered_map<int, std::size_t> stretches;
  for (std::size_t begin = 0; begin < events.size();) {
    const std::size_t end = end_of_stretch(events, begin);
    const StreamEvent& first = events[begin];
    const std::size_t stretch = stretches[first.step * static_cast<int>(kPhaseCount) + static_cast<int>(first.phase)]++;
    std::size_t allocations = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (!events[i].is_free) {
        ++allocations;
        continue;
      }
      const std::size_t run_end = end_of_run(events, i);
      runs.push_back({i, run_end, first.phase, first.step, stretch, allocations});
      i = run_end - 1;
    }
    begin = end;
  }
  return runs;
}

void sort_run(Stream& events, const Run& run) {
  std::stable_sort(events.begin() + static_cast<std::ptrdiff_t>(run.begin),
                   events.begin() + static_cast<std::ptrdiff_t>(run.end),
                   [](const StreamEvent& a, const StreamEvent& b) { return a.bytes < b.bytes; });
}

std::string label_of(const Event& event) {
  std::string label = event.node != nullptr ? event.node->name : "";
  if (event.op != nullptr) label += (label.empty() ? "" : ">") + std::string(event.op->name);
  return label;
}

}  // namespace

bool same(const StreamEvent& a, const StreamEvent& b) {
  return a.bytes == b.bytes && a.is_free == b.is_free && a.phase == b.phase && a.step == b.step;
}

RecordedHistory read_history_stream(const std::string& path, std::int16_t third_step) {
  std::istringstream file = open_recorded(test::measured_dir() / path);
  std::string line;
  if (!std::getline(file, line)) throw Error(ErrorCode::kInput, path + ": cannot be read");
  const JsonDocument header = JsonDocument::parse(std::string_view(line).substr(2), path);
  RecordedHistory history{.of = measured_row(header.root())};
  const bool trainer = history.of.run.uses_trainer();

  std::vector<Mark> marks;
  while (std::getline(file, line) && line.starts_with('#')) {
    if (line.starts_with("# [")) marks.push_back(parse_mark(line, path));
  }
  const bool with_operators = line.find("\top\t") != std::string::npos;
  // The Trainer has no border between what dies after backward and the optimizer; the older logs mark none.
  if (!with_operators) history.delete_is = Phase::kBackward;
  if (trainer) history.delete_is = Phase::kOptimizer;
  // The logs without operators begin with the 4 bytes that wake the card.
  bool warm_up = marks.front().name != "start";

  PhaseOfMark now;
  std::size_t entered = 0;                      // of marks, by `now`
  std::unordered_map<std::string, Bytes> live;  // by address
  for (std::size_t row = 0; std::getline(file, line); ++row) {
    while (entered == 0 || (entered <= marks.size() && marks[entered - 1].rows <= row)) {
      if (entered < marks.size()) now.enter(marks[entered].name, path);
      ++entered;
    }
    if (entered > marks.size() || now.step > third_step) break;
    const std::vector<std::string_view> fields = split(line, '\t');
    const bool is_free = fields[0] == "free_completed";
    if (!is_free && fields[0] != "alloc") continue;
    if (std::exchange(warm_up, false)) continue;
    StreamEvent event;
    event.is_free = is_free;
    event.phase = now.phase == Phase::kDelete ? history.delete_is : now.phase;
    event.step = now.step == third_step ? kSteps - 1 : now.step;
    event.bytes = number_in(fields[2], path);
    const std::string address(fields[1]);
    if (!is_free) live[address] = event.bytes;
    if (is_free && live.contains(address)) event.bytes = live[address];  // some logs round what is freed
    if (fields.size() > 5) event.label = std::string(fields[4]) + " " + std::string(fields[5]);
    // A tensor that a module makes as it is imported, meanwhile and on the card (torchaudio's kaldi.py), is not the
    // run's.
    if (event.label.find(":<module>:") != std::string::npos) continue;
    event.autocast_exit = is_free && event.label.find("autocast_mode.py:__exit__") != std::string::npos;
    if (now.place == PhaseOfMark::Place::kOutside) continue;
    if (now.place == PhaseOfMark::Place::kConstruction && trainer) continue;
    if (now.step >= kSteps - 1 && now.step != third_step) continue;
    history.last_step = std::max(history.last_step, event.step);
    history.events.push_back(std::move(event));
  }
  // A stack taken at a free while checkpointing's exception is in flight loses the exception: those logs have none.
  const bool checkpointed = history.of.run.checkpointing() != Checkpointing::kNone;
  const bool frames_at_frees = with_operators && !checkpointed;
  if (is_autocast(history.of.run.precision) && !frames_at_frees) {
    mark_autocast_exits_by_place(history.events, with_operators);
  }
  return history;
}

Stream requests_of(const Trace& trace, const RecordedHistory& like) {
  Stream events;
  for (const Event& event : trace.events) {
    if (event.kind == EventKind::kEmptyCache) continue;
    if (event.phase == Phase::kBuild && like.of.run.uses_trainer()) continue;
    if (event.step > like.last_step) continue;
    const Phase phase = event.phase == Phase::kDecode ? Phase::kForward : event.phase;  // the logs mark whole calls
    events.push_back({.is_free = event.kind == EventKind::kFree,
                      .phase = phase == Phase::kDelete ? like.delete_is : phase,
                      .step = std::max<std::int16_t>(event.step, 0),
                      .bytes = trace.blocks[static_cast<std::size_t>(event.block)].requested,
                      .label = label_of(event)});
  }
  return events;
}

Stream read_trace_stream(const std::string& id, bool amp) {
  const std::string path = "traces/" + id + ".trace.tsv";
  std::istringstream file = open_recorded(test::measured_dir() / path);
  std::string line;
  if (!std::getline(file, line)) throw Error(ErrorCode::kInput, path + ": cannot be read");
  Stream events;
  while (std::getline(file, line)) {
    const std::vector<std::string_view> fields = split(line, '\t');
    const Bytes delta = number_in(fields.at(1), path);
    StreamEvent event;
    event.is_free = delta < 0;
    event.step = kSteps - 1;
    event.bytes = delta < 0 ? -delta : delta;
    std::size_t phase = 0;
    while (name_of(static_cast<Phase>(phase)) != fields[0]) {
      if (++phase == kPhaseCount) throw Error(ErrorCode::kInput, path + ": unknown phase \"" + std::string(fields[0]));
    }
    event.phase = static_cast<Phase>(phase);
    event.label = std::string(fields.at(4)) + " " + std::string(fields.at(5));
    events.push_back(std::move(event));
  }
  if (amp) mark_autocast_exits_by_place(events, false);
  return events;
}

Stream steady_blocks_of(const Trace& trace, const ReplayResult& replayed) {
  Stream events;
  Stream zero_grad;
  bool first_batch_done = false;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (event.step != kSteps - 1 || event.kind == EventKind::kEmptyCache) continue;
    if (event.phase == Phase::kForward && !events.empty() && events.back().phase == Phase::kDelete) {
      first_batch_done = true;
    }
    if (first_batch_done && event.phase != Phase::kOptimizer && event.phase != Phase::kZero) continue;
    Stream& into = event.phase == Phase::kZero ? zero_grad : events;
    into.push_back({.is_free = event.kind == EventKind::kFree,
                    .phase = event.phase,
                    .step = event.step,
                    .bytes = replayed.timeline[i].block_bytes,
                    .label = label_of(event)});
  }
  events.insert(events.end(), zero_grad.begin(), zero_grad.end());
  return events;
}

void sort_autocast_exits(Stream& recorded, Stream& predicted) {
  const std::vector<Run> ours = runs_of(predicted);
  for (const Run& run : runs_of(recorded)) {
    const std::span<const StreamEvent> frees(&recorded[run.begin], run.end - run.begin);
    if (!std::any_of(frees.begin(), frees.end(), [](const StreamEvent& event) { return event.autocast_exit; }))
      continue;
    const auto twin = std::find_if(ours.begin(), ours.end(), [&](const Run& each) { return each.same_place(run); });
    if (twin == ours.end()) continue;
    sort_run(recorded, run);
    sort_run(predicted, *twin);
  }
}

}  // namespace memcalc::measured
