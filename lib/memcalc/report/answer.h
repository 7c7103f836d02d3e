// Answer: what a command of the planner says, as one plain value: a sentence, some facts, a table, notes. One renderer
// for all of them (render below), so that every command speaks text, JSON, CSV and Markdown alike.
// Covered by tests/unit/answer_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "memcalc/report/remedy.h"
#include "memcalc/report/render.h"

namespace memcalc {

/// What a number means; JSON and CSV hold it as it is (bytes, seconds, dollars), text in a unit for people.
/// kVerdict: a name of Verdict; text says yes, close or no.
enum class Unit : std::uint8_t { kText, kYesNo, kVerdict, kCount, kBytes, kSeconds, kShare, kRate, kFlops, kDollars };

/// Nothing: not known, or it does not apply; left out of JSON, empty in CSV.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct Fact {
  std::string key;    // in JSON, with its unit: "needed_bytes"
  std::string label;  // in text; empty: in JSON only
  Unit unit = Unit::kText;
  Value value;
};

struct Column {
  std::string key;
  std::string heading;
  Unit unit = Unit::kText;
  bool dispensable = false;  // left out of too narrow a text: first what is alike in all rows, then the last
};

struct Answer {
  std::string command;   // "max-batch"
  std::string headline;  // the answer in one sentence
  bool positive = true;  // how the headline is coloured
  std::vector<Fact> facts;
  std::vector<Column> columns;
  std::vector<std::vector<Value>> rows;
  std::vector<Remedy> remedies;    // of a ladder
  std::string appendix;            // settings to copy; printed as it is
  std::vector<std::string> notes;  // what a reader has to know about the answer
  std::vector<std::string> assumptions;
  std::vector<std::string> not_modelled;
  bool complete = true;  // false: stopped early; what was found by then
};

/// Ends with a newline. JSON holds all of it; CSV the table; text and Markdown read from top to bottom.
[[nodiscard]] std::string render(const Answer& answer, Format format, const RenderOptions& options = {});

/// A value as text shows it: "7.37 GiB", "1.25 s", "yes", "-".
[[nodiscard]] std::string shown(const Value& value, Unit unit);

[[nodiscard]] std::string render_json(const Answer& answer);

/// The key of a column that holds an option's value: "kv-heads" is "kv_heads".
[[nodiscard]] std::string key_of_option(std::string_view option);

}  // namespace memcalc
