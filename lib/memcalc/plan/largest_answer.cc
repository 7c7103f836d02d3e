// The words of max-batch and max-seq.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "memcalc/plan/largest.h"
#include "memcalc/report/quantity.h"

namespace memcalc {
namespace {

constexpr std::size_t kListed = 8;  // values of a list in a note

const char* noun_of(Measure measure) { return measure == Measure::kBatch ? "batch" : "sequence"; }

std::string listed(const std::vector<std::int64_t>& values) {
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), kListed); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  }
  return values.size() > kListed ? text + ", …" : text;
}

std::string on_card(const Largest& largest) {
  std::string text = largest.device.name + " (" + format_bytes(largest.device.memory_bytes);
  if (largest.device.margin_bytes > 0) text += ", " + format_bytes(largest.device.margin_bytes) + " of it to stay free";
  return text + ")";
}

/// Of the allocator, by the largest that runs at all; without any it is too close to call.
std::int64_t retries_of(const Largest& largest) {
  const Probe* probe = largest.probe_of(largest.value);
  return probe == nullptr ? 0 : probe->retries;
}

/// "up to 91 with 6 retries of the allocator in three steps"
std::string beyond_fitting(const Largest& largest, const std::string& unit) {
  const std::string text = "up to " + std::to_string(largest.value) + unit;
  const std::int64_t retries = retries_of(largest);
  if (retries == 0) return text + " may run, too close to call";
  return text + " with " + std::to_string(retries) + (retries == 1 ? " retry" : " retries") +
         " of the allocator in three steps";
}

bool is_beyond_training(const Largest& largest) { return largest.trained > 0 && largest.unhurried > largest.trained; }

std::string headline_of(const Largest& largest) {
  const std::string noun = noun_of(largest.options.measure);
  const std::string unit = largest.options.measure == Measure::kSequence ? " tokens" : "";
  if (largest.value == 0) {
    const Probe& first = largest.probes.front();
    return largest.model + " does NOT fit on " + on_card(largest) + ": a " + noun + " of " +
           std::to_string(first.value) + " needs " + format_bytes(first.needed) + ".";
  }
  const std::string text = "Largest " + noun + " of " + largest.model + " on " + on_card(largest) + ": ";
  if (largest.unhurried == 0) {
    return text + "none for certain; " + beyond_fitting(largest, unit) + ".";
  }
  std::string answer = std::to_string(largest.unhurried) + unit;
  if (!largest.unanswered.empty() && largest.unhurried == largest.value) answer += ", where the search ends";
  if (largest.at_limit && largest.unhurried == largest.value) {
    answer += largest.options.measure == Measure::kSequence && largest.value < largest.options.limit
                  ? ", the model's last position"
                  : ", where the search ends";
  }
  if (is_beyond_training(largest)) {
    answer += ", beyond the " + std::to_string(largest.trained) + " that it was trained with";
  }
  if (largest.value > largest.unhurried) {
    answer += "; " + beyond_fitting(largest, "");
  }
  return text + answer + ".";
}

std::string beyond_training_note(const Largest& largest) {
  return "the model was trained with sequences of at most " + std::to_string(largest.trained) +
         " tokens: what it computes beyond them is not what it learned, unless its positions are scaled";
}

std::vector<std::string> notes_of(const Largest& largest) {
  std::vector<std::string> notes;
  if (!largest.complete) notes.emplace_back("stopped early: the best that was found by then, not the largest");
  if (largest.value > largest.unhurried && retries_of(largest) > 0) {
    notes.push_back("above " + std::to_string(largest.unhurried) +
                    " the card runs full: the allocator gives its free segments back and asks again, which takes time "
                    "in each step");
  }
  if (is_beyond_training(largest)) notes.push_back(beyond_training_note(largest));
  if (!largest.unanswered.empty()) notes.push_back("longer ones are not asked: " + largest.unanswered);
  if (!largest.larger_that_run.empty()) {
    notes.push_back("not monotone: " + listed(largest.larger_that_run) + " would run, though " +
                    std::to_string(largest.value + largest.options.multiple_of) + " does not");
  }
  if (!largest.smaller_that_fail.empty()) {
    notes.push_back("not monotone: " + listed(largest.smaller_that_fail) + " would not run");
  }
  if (largest.drop) {
    const Probe& probe = *largest.probe_of(*largest.drop);
    notes.push_back("the peak does not grow everywhere: " + std::to_string(probe.value) + " needs " +
                    format_bytes(probe.needed) + ", less than the one asked for before it");
  }
  return notes;
}

/// The rows around the answer and around the largest that runs; the search's first steps are of no interest.
std::vector<Probe> rows_of(const Largest& largest) {
  constexpr std::int64_t kAround = 3;
  std::vector<Probe> rows;
  for (const Probe& probe : largest.probes) {
    const auto is_near = [&](std::int64_t value, std::int64_t around) {
      return std::abs(probe.value - value) <= around * largest.options.multiple_of;
    };
    if (is_near(largest.unhurried, kAround) || is_near(largest.value, 1)) rows.push_back(probe);
  }
  return rows;
}

std::vector<Value> varied_values(const Largest& each, const std::vector<std::string>& varied,
                                 const std::vector<std::string>& values) {
  std::vector<Value> row = {each.model, each.device.name};
  for (std::size_t k = 0; k < varied.size(); ++k) {
    if (varied[k] != "model" && varied[k] != "gpu") row.emplace_back(values[k]);
  }
  return row;
}

std::vector<Value> refused_row(const Largest& each, const std::vector<std::string>& varied,
                               const std::vector<std::string>& values, std::size_t columns) {
  std::vector<Value> row = varied_values(each, varied, values);
  row.resize(columns);
  row.back() = each.refusal;
  return row;
}

}  // namespace

Answer answer_of(const Largest& largest) {
  const bool batch = largest.options.measure == Measure::kBatch;
  Answer answer;
  answer.command = batch ? "max-batch" : "max-seq";
  answer.headline = headline_of(largest);
  answer.positive = largest.value > 0;
  answer.complete = largest.complete;
  const std::string key = batch ? "batch_size" : "sequence_length";
  answer.facts = {
      {"model", "model", Unit::kText, largest.model},
      {"gpu", "card", Unit::kText, largest.device.name},
      {"memory_bytes", "memory", Unit::kBytes, largest.device.memory_bytes},
      {"margin_bytes", "margin", Unit::kBytes, largest.device.margin_bytes},
      {"largest", std::string("largest ") + noun_of(largest.options.measure), Unit::kCount, largest.unhurried},
      {"largest_with_retries", "with retries", Unit::kCount, largest.value}};
  if (!batch && largest.trained > 0) {
    answer.facts.push_back({"trained_sequence_length", "trained with", Unit::kCount, largest.trained});
  }
  answer.columns = {{key, batch ? "batch" : "tokens", Unit::kCount},
                    {"allocated_bytes", "allocated", Unit::kBytes, true},
                    {"reserved_bytes", "reserved", Unit::kBytes},
                    {"needed_bytes", "needed", Unit::kBytes},
                    {"free_bytes", "free", Unit::kBytes},
                    {"verdict", "fits", Unit::kVerdict},
                    {"runs", "runs", Unit::kYesNo},
                    {"allocator_retries", "retries", Unit::kCount, true}};
  for (const Probe& probe : rows_of(largest)) {
    answer.rows.push_back({probe.value, probe.allocated, probe.reserved, probe.needed,
                           largest.device.usable_bytes() - probe.needed, std::string(name_of(probe.verdict)),
                           probe.runs, probe.retries});
  }
  answer.notes = notes_of(largest);
  answer.assumptions = largest.assumptions;
  answer.not_modelled = largest.not_modelled;
  return answer;
}

Answer answer_of(std::span<const Largest> all, const std::vector<std::string>& varied,
                 const std::vector<std::vector<std::string>>& values) {
  const Measure measure = all.empty() ? Measure::kBatch : all.front().options.measure;
  Answer answer;
  answer.command = measure == Measure::kBatch ? "max-batch" : "max-seq";
  for (const std::string& name : varied) {
    if (name != "model" && name != "gpu") answer.columns.push_back({key_of_option(name), name, Unit::kText});
  }
  answer.columns.insert(answer.columns.begin(), {{"model", "model", Unit::kText}, {"gpu", "card", Unit::kText}});
  answer.columns.insert(answer.columns.end(), {{"memory_bytes", "memory", Unit::kBytes, true},
                                               {"largest", std::string("largest ") + noun_of(measure), Unit::kCount},
                                               {"largest_with_retries", "with retries", Unit::kCount, true},
                                               {"needed_bytes", "needed", Unit::kBytes},
                                               {"refusal", "why not", Unit::kText, true}});
  std::size_t found = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Largest& each = all[i];
    if (!each.refusal.empty()) {
      answer.rows.push_back(refused_row(each, varied, values[i], answer.columns.size()));
      answer.notes.push_back(each.model + " on " + each.device.name + ": " + each.refusal);
      continue;
    }
    answer.complete = answer.complete && each.complete;
    if (each.value > 0) ++found;
    if (is_beyond_training(each)) {
      answer.notes.push_back(each.model + " on " + each.device.name + ": " + beyond_training_note(each));
    }
    std::vector<Value> row = varied_values(each, varied, values[i]);
    const std::int64_t shown = each.unhurried > 0 ? each.unhurried : each.value;
    const Probe* probe = each.probe_of(shown > 0 ? shown : each.probes.front().value);
    row.insert(row.end(), {each.device.memory_bytes, each.unhurried, each.value, probe->needed, {}});
    answer.rows.push_back(std::move(row));
  }
  answer.positive = found > 0;
  answer.headline = "The largest " + std::string(noun_of(measure)) + " of each; " + std::to_string(found) + " of " +
                    std::to_string(all.size()) + " fit.";
  if (!answer.complete) answer.notes.emplace_back("stopped early: what was found by then");
  return answer;
}

}  // namespace memcalc
