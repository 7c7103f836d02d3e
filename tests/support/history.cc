#include "support/history.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "support/paths.h"
#include "support/recorded_file.h"

namespace memcalc::measured {
namespace {

constexpr std::string_view kSuffix = ".history.tsv.gz";

// Where a parse error is reported.
struct Position {
  const std::string& path;
  std::size_t line = 0;

  [[nodiscard]] Error error(const std::string& message) const {
    return {ErrorCode::kInput, path + ":" + std::to_string(line) + ": " + message};
  }
};

Bytes number_in(std::string_view text, const Position& position) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  Bytes value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end == text.data()) {
    throw position.error("expected a number, found \"" + std::string(text) + "\"");
  }
  return value;
}

// Cuts the text before `separator` off the front of `rest`.
std::string_view take_until(std::string_view& rest, char separator) {
  const std::size_t length = std::min(rest.find(separator), rest.size());
  const std::string_view field = rest.substr(0, length);
  rest.remove_prefix(std::min(length + 1, rest.size()));
  return field;
}

// The number that follows `"key": ` in the header.
Bytes header_number(std::string_view header, const std::string& key, const Position& position) {
  const std::string quoted = "\"" + key + "\": ";
  const std::size_t found = header.find(quoted);
  if (found == std::string_view::npos) throw position.error("the header lacks " + quoted);
  return number_in(header.substr(found + quoted.size()), position);
}

struct RowMark {
  std::size_t rows = 0;  // rows of the log before the mark, of whatever action
  Mark mark;
};

// [events so far, "phase just ended", allocated, reserved, max allocated]
RowMark parse_mark(std::string_view text, const Position& position) {
  RowMark result;
  Mark& mark = result.mark;
  result.rows = static_cast<std::size_t>(number_in(take_until(text, ','), position));
  take_until(text, '"');
  mark.name = take_until(text, '"');
  take_until(text, ',');
  mark.allocated = number_in(take_until(text, ','), position);
  mark.reserved = number_in(take_until(text, ','), position);
  mark.max_allocated = number_in(text, position);
  if (mark.name.starts_with("step ")) {
    mark.step = static_cast<std::int16_t>(mark.name[5] - '0');
    const std::string phase = mark.name.substr(7);
    if (phase == "zero_grad") {
      mark.phase = Phase::kZero;
    } else if (phase == "forward") {
      mark.phase = Phase::kForward;
    } else if (phase == "backward") {
      mark.phase = Phase::kBackward;
    } else if (phase == "optimizer") {
      mark.phase = Phase::kOptimizer;
    } else {
      throw position.error("unknown phase \"" + mark.name + "\"");
    }
  }
  return result;
}

// Turns the rows of the log into requests and segments.
class RowReader {
 public:
  RowReader(History& history, std::vector<RowMark> marks) : history_(history), marks_(std::move(marks)) {}

  void read(std::string_view line, const Position& position) {
    pass_marks();
    ++rows_;
    const std::string_view action = take_until(line, '\t');
    const Bytes address = number_in(take_until(line, '\t'), position);
    const Bytes size = number_in(take_until(line, '\t'), position);
    if (number_in(line, position) != 0) throw position.error("a second stream is not modelled");
    if (action == "alloc") {
      if (!live_.emplace(address, history_.block_count).second) throw position.error("the address is in use");
      sizes_.push_back(size);
      push(EventKind::kAllocate, history_.block_count++, address);
    } else if (action == "free_requested") {
      const auto found = live_.find(address);
      if (found == live_.end()) throw position.error("free of an address that is not in use");
      push(EventKind::kFree, found->second, address);
      live_.erase(found);
      requested_ = address;
    } else if (action == "free_completed") {
      // Of one stream nothing has to be waited for: the block is reusable in the same call.
      if (requested_ != address) throw position.error("free_completed does not follow its free_requested");
    } else if (action == "segment_alloc") {
      history_.segments.push_back({address, size});
    } else if (action != "segment_free" && action != "snapshot") {
      throw position.error("unknown action \"" + std::string(action) + "\"");
    }
  }

  void finish() { pass_marks(); }

 private:
  void push(EventKind kind, std::int32_t block, Bytes address) {
    const bool ended = next_mark_ == marks_.size();
    Request request;
    request.kind = kind;
    request.phase = ended ? Phase::kOptimizer : marks_[next_mark_].mark.phase;
    request.step = ended ? std::int16_t{2} : marks_[next_mark_].mark.step;
    request.block = block;
    request.requested = block < 0 ? 0 : sizes_[static_cast<std::size_t>(block)];
    request.address = address;
    history_.requests.push_back(request);
  }

  void pass_marks() {
    for (; next_mark_ < marks_.size() && marks_[next_mark_].rows <= rows_; ++next_mark_) {
      Mark mark = marks_[next_mark_].mark;
      // The log shows empty_cache only by the segments that it returned, if any.
      if (mark.name == "empty_cache") push(EventKind::kEmptyCache, -1, 0);
      mark.requests = history_.requests.size();
      history_.marks.push_back(std::move(mark));
    }
  }

  History& history_;
  std::vector<RowMark> marks_;
  std::size_t next_mark_ = 0;
  std::size_t rows_ = 0;
  Bytes requested_ = -1;                          // address of the last free_requested
  std::unordered_map<Bytes, std::int32_t> live_;  // address -> block
  std::vector<Bytes> sizes_;
};

}  // namespace

std::string history_directory() { return (test::measured_dir() / "allocator").string(); }

std::vector<std::string> history_ids() {
  std::vector<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator(history_directory())) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kSuffix)) ids.push_back(name.substr(0, name.size() - kSuffix.size()));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

History read_history(const std::string& id) {
  const std::string path = history_directory() + "/" + id + ".history.tsv";
  std::istringstream file = open_recorded(path);
  Position position{path};
  if (!file) throw position.error("cannot be read");
  History history;
  history.id = id;

  std::string line;
  std::vector<RowMark> marks;
  while (std::getline(file, line) && line.starts_with('#')) {
    ++position.line;
    if (position.line == 1) {
      history.recorded_id = JsonDocument::parse(std::string_view(line).substr(2), path).root().required_string("id");
      history.peak_allocated = header_number(line, "peak_allocated", position);
      history.peak_reserved = header_number(line, "peak_reserved", position);
    } else if (line.starts_with("# [")) {
      marks.push_back(parse_mark(std::string_view(line).substr(3), position));
    }
  }
  ++position.line;
  if (line != "action\taddress\tsize\tstream") throw position.error("expected the column names");
  RowReader reader(history, std::move(marks));
  while (std::getline(file, line)) {
    ++position.line;
    reader.read(line, position);
  }
  reader.finish();
  return history;
}

Trace trace_of(const History& history) {
  Trace trace;
  trace.blocks.resize(static_cast<std::size_t>(history.block_count));
  trace.events.reserve(history.requests.size());
  for (const Request& request : history.requests) {
    if (request.kind == EventKind::kAllocate) {
      trace.blocks[static_cast<std::size_t>(request.block)].requested = request.requested;
    }
    Event event;
    event.block = request.block;
    event.kind = request.kind;
    event.phase = request.phase;
    event.step = request.step;
    trace.events.push_back(event);
  }
  return trace;
}

std::vector<Bytes> segment_addresses_of(const History& history) {
  std::vector<Bytes> addresses;
  addresses.reserve(history.segments.size());
  for (const Segment& segment : history.segments) addresses.push_back(segment.address);
  return addresses;
}

}  // namespace memcalc::measured
