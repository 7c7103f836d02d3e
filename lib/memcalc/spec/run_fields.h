// The table of a run: a row an option, for torch's, DeepSpeed's and Megatron's alike. From it come the command line's
// options and --help, Python's keywords, the record's `run` object and its schema, CSV, completion, the manual page,
// the tables of docs/cli.md, and the commands that plan, ladder, sweep and compare print. What an option means, and
// which defaults follow from others, is code: resolve() and the rules (rules.h). Covered by
// tests/unit/run_fields_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Headings of --help, in its order. kMegatron, kDeepSpeed: what stands in the lists of --megatron and --deepspeed.
enum class FieldGroup : std::uint8_t {
  kModel,
  kArchitecture,
  kPrecision,
  kTraining,
  kJob,
  kFineTuning,
  kSaving,
  kInference,
  kParallel,
  kMegatron,
  kDeepSpeed,
  kVersions,
  kCard,
  kTime,
};
[[nodiscard]] std::string_view title_of(FieldGroup group);  // "Model and data"

enum class FieldType : std::uint8_t {
  kWhole,   // a whole number: std::int64_t
  kNumber,  // a finite number of 0 or more: double
  kFlag,    // bool
  kName,    // one of `names`: std::string
  kText,    // a text that `set` judges: std::string
  kTexts,   // texts by commas: std::vector<std::string>
  kWholes,  // whole numbers by commas: std::vector<std::int64_t>
};

using FieldValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>, std::vector<std::int64_t>>;

/// What ran: what the rows read.
struct RunRecord {
  const ModelSpec& model;
  const RunSpec& run;
  const DeviceSpec* device = nullptr;  // null: nothing was said of a card
  const TimeOptions* time = nullptr;   // null: nothing was said
  bool device_assumed = false;         // the card was not named; its memory or a margin may have been
};

struct Field {
  std::string_view flag;  // "--bs"; in a list: "recompute-method", "overlap_comm"
  std::string_view key;   // in the record, and as Python's keyword: "batch_size"; in a list: as the flag
  FieldGroup group = FieldGroup::kModel;
  FieldType type = FieldType::kWhole;
  std::string_view value;  // how --help calls the value: "N"; "[NORM]" may be left out; empty for a flag
  std::string_view help;   // one line of at most 56 characters: meaning, unit, [default]
  std::span<const std::string_view> names;  // accepted by kName; of kText: proposed by the shells
  std::string_view unit;                    // "tokens"; empty: none
  double least = 1;                         // of numbers, both included
  double most = 9.2e18;
  std::string_view accepted;  // in words, where `names` or the bounds do not say it
  std::string_view negative;  // the flag that means false: "--no-tie"
  std::string_view negative_help;
  /// False: the value is none of those accepted.
  bool (*set)(RunRequest& request, const FieldValue& value) = nullptr;
  /// The value with which it ran; nothing for another spelling of some other row (--fp16).
  std::optional<FieldValue> (*get)(const RunRecord& ran) = nullptr;
  /// Whether the row exists in this run; null: in every run. Where it does not, a value that was given is refused.
  bool (*exists)(const RunRecord& ran) = nullptr;
  std::string_view belongs_to;  // what it exists in, for that refusal: "a pipeline (--pp)"
};

/// All rows; those of a group stand together.
[[nodiscard]] std::span<const Field> run_fields();
[[nodiscard]] std::span<const Field> fields_of_runs();      // run_fields_table.cc
[[nodiscard]] std::span<const Field> fields_of_parallel();  // run_fields_parallel.cc
[[nodiscard]] std::span<const Field> fields_of_jobs();      // run_fields_jobs.cc
[[nodiscard]] std::span<const Field> fields_of_lists();     // run_fields_lists.cc
[[nodiscard]] std::span<const Field> fields_of_versions();  // run_fields_versions.cc

/// By "--bs", "--no-tie" or "batch_size" or "bs"; null: there is none. Not those of lists.
[[nodiscard]] const Field* find_field(std::string_view name);

/// Reads what was typed; "" is a flag's. Throws Error(kUsage): what was expected, what was found.
[[nodiscard]] FieldValue parse_field(const Field& field, std::string_view text);

/// As it is typed; a flag's is empty.
[[nodiscard]] std::string text_of(const FieldValue& value);

/// Sets a field; remembers that it was given. Throws Error(kUsage) for a value that is not accepted.
void set_field(RunRequest& request, const Field& field, const FieldValue& value);

/// Whether the field of this key was set.
[[nodiscard]] bool is_given(const RunRequest& request, std::string_view key);

/// Its value in this run; nothing where it does not exist.
[[nodiscard]] std::optional<FieldValue> value_of(const Field& field, const RunRecord& ran);

/// Every field that exists in a run, in the order of the table.
struct RecordedField {
  const Field* field;
  FieldValue value;
};
[[nodiscard]] std::vector<RecordedField> record_of(const RunRecord& ran);

/// Options of memcalc that ask for this run again, each as one word or two: {"--bs", "4", "--padding"}.
[[nodiscard]] std::vector<std::string> words_of(const RunRecord& ran);

/// Those words for a shell, less what memcalc would take by itself: "--model gpt2 --bs 4".
[[nodiscard]] std::string command_of(const RunRecord& ran);

/// The same without model, sizes, card and data: "--bs 4".
[[nodiscard]] std::string options_of(const RunRecord& ran);

/// Megatron's or DeepSpeed's list: "name=value,name". Throws Error(kUsage) for a name or value that is not one of them.
void set_list(RunRequest& request, FieldGroup group, std::string_view list);

/// Whether --help may show the option without a value: --clip-grad [NORM].
[[nodiscard]] bool may_lack_value(const Field& field);

/// An option as it is typed, the lists among them: ("--bs", "4"), ("--no-tie", ""), ("--megatron", "swiglu").
/// Throws Error(kUsage) for an unknown option, a value that is not accepted, one that was given before.
void set_option(RunRequest& request, std::string_view flag, std::string_view text);

/// Throws the refusal of a field that was given and does not exist in the run (rule "KEY-exists").
void check_effect(const RunRequest& request, const RunRecord& ran);

/// Throws Error(kUsage) for a number outside of its row's bounds.
void check_bounds(const RunRecord& ran);

}  // namespace memcalc
