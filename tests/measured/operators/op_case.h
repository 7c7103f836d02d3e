// A line of tests/measured/ops_h100.jsonl: what one operator requested from the caching allocator of an H100
// (harness/op_requests.py made them), and what runs memcalc's operator under the same conditions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/symbolic/tensor.h"
#include "support/tape_bench.h"

namespace memcalc::measured {

using Requests = std::vector<Bytes>;  // requested sizes in order, negative for frees

class OpCase {
 public:
  explicit OpCase(JsonNode line) : line_(std::move(line)) {}

  [[nodiscard]] const std::string& op() const { return find(line_, "op")->text; }
  /// A list of the line: "forward", "backward", "step1", …; nothing where the line has none.
  [[nodiscard]] std::optional<Requests> requests(std::string_view part) const;
  // The operator's parameters.
  [[nodiscard]] bool has(std::string_view key) const;  // present and not null
  [[nodiscard]] std::int64_t integer(std::string_view key) const;
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t otherwise) const;
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key) const;         // false where absent
  [[nodiscard]] std::string text(std::string_view key) const;  // "" where absent
  [[nodiscard]] Shape shape(std::string_view key) const;
  [[nodiscard]] std::vector<Shape> shapes(std::string_view key) const;
  [[nodiscard]] DType dtype() const;  // of "dtype" or "precision"
  /// {"dtype":"bf16","T":4}
  [[nodiscard]] std::string parameters() const;

 private:
  [[nodiscard]] static const JsonNode* find(const JsonNode& node, std::string_view key);
  [[nodiscard]] const JsonNode* parameter(std::string_view key) const;

  JsonNode line_;
};

[[nodiscard]] const std::vector<OpCase>& op_cases();

/// What came of one case.
struct Outcome {
  std::string skipped;     // why nothing was compared
  std::string unchecked;   // why a part was not compared
  std::string difference;  // the first one found
};

using Run = std::function<Outcome(const OpCase&)>;

struct Runner {
  std::string op;
  Run run;
};

/// "backward: event 3 is -16, measured +32 (…)"; "" where equal.
[[nodiscard]] std::string difference(std::string_view part, const Requests& measured, const Requests& ours);

/// The ordinary case: inputs are made, then `forward` is measured, then the backward of its result.
struct Operation {
  std::function<Tensor()> forward;
  std::function<Tensor(const Tensor& output)> gradient = nullptr;  // absent: ones_like(output)
  std::string unchecked_backward{};                                // why it is not compared
};
using Prepare = std::function<Operation(test::TapeBench&, const OpCase&)>;

[[nodiscard]] Outcome compare(const OpCase& each, const DeviceSpec& device, const Prepare& prepare);
[[nodiscard]] Runner ordinary(std::string op, Prepare prepare);
[[nodiscard]] Runner skipped(std::string op, std::string reason);

// By group; every op of the file is in exactly one.
[[nodiscard]] std::vector<Runner> attention_runners();
[[nodiscard]] std::vector<Runner> reduction_runners();
[[nodiscard]] std::vector<Runner> elementwise_runners();
[[nodiscard]] std::vector<Runner> norm_and_loss_runners();
[[nodiscard]] std::vector<Runner> product_runners();
[[nodiscard]] std::vector<Runner> indexing_runners();
[[nodiscard]] std::vector<Runner> movement_runners();
[[nodiscard]] std::vector<Runner> training_runners();
[[nodiscard]] std::vector<Runner> other_runners();  // what memcalc has no operator for

}  // namespace memcalc::measured
