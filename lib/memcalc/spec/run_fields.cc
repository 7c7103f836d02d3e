#include "memcalc/spec/run_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "memcalc/base/error.h"
#include "memcalc/base/number_text.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/value_names.h"

namespace memcalc {
namespace {

/// The option that a row of a list stands in; empty for all others.
std::string_view list_of(FieldGroup group) {
  if (group == FieldGroup::kMegatron) return "--megatron";
  if (group == FieldGroup::kDeepSpeed) return "--deepspeed";
  return "";
}

std::string name_of(const Field& field) {
  const std::string_view list = list_of(field.group);
  return list.empty() ? std::string(field.flag) : fmt::format("{} {}", list, field.flag);
}

std::vector<std::string> strings(std::span<const std::string_view> names) { return {names.begin(), names.end()}; }

std::string expected_of(const Field& field) {
  if (!field.accepted.empty()) return std::string(field.accepted);
  switch (field.type) {
    case FieldType::kWhole:
      return field.most < 9e18 ? fmt::format("a whole number from {:.0f} to {:.0f}", field.least, field.most)
                               : fmt::format("a whole number of {:.0f} or more", field.least);
    case FieldType::kNumber: {
      const std::string unit = field.unit.empty() ? "" : fmt::format(", in {}", field.unit);
      return (field.most < 9e18 ? fmt::format("a number from {} to {}", field.least, field.most)
                                : fmt::format("a number of {} or more", field.least)) +
             unit;
    }
    case FieldType::kFlag: return list_of(field.group).empty() ? "no value" : "no value, true or false";
    case FieldType::kName: return "one of " + join(strings(field.names));
    case FieldType::kText: return field.names.empty() ? "a text" : "one of " + join(strings(field.names));
    case FieldType::kTexts: return "names between commas";
    case FieldType::kWholes: return "whole numbers between commas";
  }
  return "";
}

[[noreturn]] void refuse(const Field& field, std::string_view found) {
  const bool named = field.type == FieldType::kName || field.type == FieldType::kText;
  constexpr std::size_t kLongestDigits = 18;  // of any number that is certainly below 2^63
  const bool is_long =
      field.type == FieldType::kWhole && field.most > 9e18 && found.size() > kLongestDigits && is_digits(found);
  const std::string near = named ? did_you_mean(found, strings(field.names)) : "";
  constexpr std::size_t kMany = 20;  // names, which nobody reads where the right one is told
  const std::string expected = !near.empty() && field.names.size() > kMany
                                   ? fmt::format("one of {} names (docs/cli.md)", field.names.size())
                                   : expected_of(field);
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: expected {}{}, found {}{}", name_of(field), expected, is_long ? " and below 2^63" : "",
                          found.empty() ? "nothing" : "'" + one_line(found) + "'", near),
              name_of(field));
}

/// DeepSpeed's sizes are written as people write them: 500000000 or 5e8.
std::int64_t whole_from(const Field& field, std::string_view text) {
  const char* const end = text.data() + text.size();
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && rest == end) return value;
  double number = 0;
  const auto [rest_of_number, number_error] = parse_number(text.data(), end, number);
  const bool whole = number_error == std::errc{} && rest_of_number == end && std::floor(number) == number;
  if (field.group != FieldGroup::kDeepSpeed || !whole || std::abs(number) > field.most) refuse(field, text);
  return static_cast<std::int64_t>(number);
}

double number_from(const Field& field, std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = parse_number(text.data(), end, value);
  if (error != std::errc{} || rest != end || !std::isfinite(value)) refuse(field, text);
  return value;
}

/// 2.5e12 of "2.5T": the whole training's tokens are said so.
double tokens_from(const Field& field, std::string_view text) {
  constexpr std::pair<char, double> kSuffixes[] = {{'K', 1e3}, {'M', 1e6}, {'G', 1e9}, {'B', 1e9}, {'T', 1e12}};
  for (const auto& [letter, factor] : kSuffixes) {
    if (text.ends_with(letter)) return factor * number_from(field, text.substr(0, text.size() - 1));
  }
  return number_from(field, text);
}

bool flag_from(const Field& field, std::string_view text) {
  if (text.empty() || (!list_of(field.group).empty() && text == "true")) return true;
  if (list_of(field.group).empty() || text != "false") refuse(field, text);
  return false;
}

std::vector<std::string> parts_of(const Field& field, std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma == at) refuse(field, text);
    parts.emplace_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

bool is_within(const Field& field, double number) {
  return std::isfinite(number) && number >= field.least && number <= field.most;
}

/// Whether the number or numbers of a value are within the row's bounds.
bool is_within(const Field& field, const FieldValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return is_within(field, static_cast<double>(*whole));
  if (const auto* number = std::get_if<double>(&value)) return is_within(field, *number);
  if (const auto* wholes = std::get_if<std::vector<std::int64_t>>(&value)) {
    return std::all_of(wholes->begin(), wholes->end(),
                       [&](std::int64_t each) { return is_within(field, static_cast<double>(each)); });
  }
  return true;
}

/// A value that is true of every run in which the field does not exist: scripts pass `--virtual-stages 1` always.
bool is_neutral(const Field& field, const FieldValue& value) {
  const bool splits = field.group == FieldGroup::kParallel && field.key != "gpus";
  return (splits && value == FieldValue(std::int64_t{1})) || (field.negative.empty() && value == FieldValue(false));
}

bool is_listed(const Field& field) { return !list_of(field.group).empty(); }

/// A word as a shell takes it.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "_./:=,@%+-*";
  const bool plain = std::all_of(word.begin(), word.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kPlain.find(c) != std::string_view::npos;
  });
  if (plain && !word.empty()) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::vector<std::string> words_of(const std::vector<RecordedField>& record) {
  std::vector<std::string> words;
  std::string megatron, deepspeed;
  for (const auto& [field, value] : record) {
    const bool is_flag = field->type == FieldType::kFlag;
    const bool is_false = is_flag && !std::get<bool>(value);
    if (is_listed(*field)) {
      std::string& list = field->group == FieldGroup::kMegatron ? megatron : deepspeed;
      list += fmt::format("{}{}={}", list.empty() ? "" : ",", field->flag,
                          is_flag ? (is_false ? "false" : "true") : text_of(value));
    } else if (is_false) {
      if (!field->negative.empty()) words.emplace_back(field->negative);
    } else {
      words.emplace_back(field->flag);
      if (!is_flag) words.push_back(text_of(value));
    }
  }
  for (const auto& [flag, list] : {std::pair{"--megatron", megatron}, std::pair{"--deepspeed", deepspeed}}) {
    if (!list.empty()) words.insert(words.end(), {flag, list});
  }
  return words;
}

RunRequest request_of(const std::vector<RecordedField>& record) {
  RunRequest request;
  for (const auto& [field, value] : record) (void)field->set(request, value);
  return request;
}

bool same(const std::vector<RecordedField>& a, const std::vector<RecordedField>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.field == y.field && x.value == y.value; });
}

/// What no default stands for: the model with its sizes, the card, the data.
bool is_always_said(const Field& field) {
  return field.key == "model" || field.group == FieldGroup::kArchitecture || field.group == FieldGroup::kCard ||
         field.group == FieldGroup::kTime;
}

/// What changed the model itself: of the changed model it is what follows.
bool changed_model(const Field& field, const RunRecord& ran) {
  if (field.key == "images" || field.key == "image_width") return true;
  return field.key == "image_size" && ran.model.changes.image.has_value();
}

/// What has to be said so that the rest follows.
std::vector<RecordedField> shortest(const std::vector<RecordedField>& whole, const RunRecord& ran) {
  std::vector<RecordedField> said = whole;
  for (std::size_t i = said.size(); i-- > 0;) {  // what follows from others stands behind them
    if (is_always_said(*said[i].field) || changed_model(*said[i].field, ran)) continue;
    std::vector<RecordedField> less = said;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    try {
      RunRequest asked = request_of(less);
      for (std::size_t of = 0; of < kSoftwareCount; ++of) {
        if (asked.versions.asked[of]) take_software(asked.run.profile, static_cast<Software>(of), ran.run.profile);
      }
      const RunSpec run = resolve_request(ran.model, asked).run;
      if (same(whole, record_of(RunRecord{ran.model, run, ran.device, ran.time, ran.device_assumed})))
        said = std::move(less);
    } catch (const Error&) {  // it has to be said
    }
  }
  return said;
}

std::string shell_words(const std::vector<RecordedField>& record) {
  std::string command;
  for (const std::string& word : words_of(record)) command += (command.empty() ? "" : " ") + quoted(word);
  return command;
}

}  // namespace

std::string_view title_of(FieldGroup group) {
  switch (group) {
    case FieldGroup::kModel: return "Model and data";
    case FieldGroup::kArchitecture: return "Architecture";
    case FieldGroup::kPrecision: return "Precision";
    case FieldGroup::kTraining: return "Training";
    case FieldGroup::kJob: return "Trainers, data, stages";
    case FieldGroup::kFineTuning: return "Fine-tuning";
    case FieldGroup::kSaving: return "Saving memory, host memory";
    case FieldGroup::kInference: return "Inference";
    case FieldGroup::kParallel: return "Several GPUs";
    case FieldGroup::kMegatron: return "In --megatron";
    case FieldGroup::kDeepSpeed: return "In --deepspeed";
    case FieldGroup::kVersions: return "Versions";
    case FieldGroup::kCard: return "Card and data files";
    case FieldGroup::kTime: return "Time";
  }
  return "";
}

const Field* find_field(std::string_view name) {
  for (const Field& field : run_fields()) {
    if (is_listed(field)) continue;
    if (name == field.key || name == field.flag || (!field.negative.empty() && name == field.negative)) return &field;
    const std::string_view bare = field.flag.substr(2);
    const bool alike = std::equal(bare.begin(), bare.end(), name.begin(), name.end(),
                                  [](char a, char b) { return a == b || (a == '-' && b == '_'); });
    if (alike) return &field;
  }
  return nullptr;
}

FieldValue parse_field(const Field& field, std::string_view text) {
  if (field.type != FieldType::kFlag && text.empty()) refuse(field, text);
  FieldValue value;
  switch (field.type) {
    case FieldType::kWhole: value = whole_from(field, text); break;
    case FieldType::kNumber: value = field.key == "tokens" ? tokens_from(field, text) : number_from(field, text); break;
    case FieldType::kFlag: value = flag_from(field, text); break;
    case FieldType::kName:
    case FieldType::kText: value = std::string(text); break;
    case FieldType::kTexts: value = parts_of(field, text); break;
    case FieldType::kWholes: {
      std::vector<std::int64_t> wholes;
      for (const std::string& each : parts_of(field, text)) wholes.push_back(whole_from(field, each));
      value = std::move(wholes);
    }
  }
  if (!is_within(field, value)) refuse(field, text);
  return value;
}

std::string text_of(const FieldValue& value) {
  struct Text {
    std::string operator()(bool /*given*/) const { return ""; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return shortest_text(number); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<std::string>& texts) const { return join(texts, ","); }
    std::string operator()(const std::vector<std::int64_t>& numbers) const {
      std::string text;
      for (const std::int64_t each : numbers) text += fmt::format("{}{}", text.empty() ? "" : ",", each);
      return text;
    }
  };
  return std::visit(Text{}, value);
}

void set_field(RunRequest& request, const Field& field, const FieldValue& said) {
  const auto* text = std::get_if<std::string>(&said);
  const FieldValue value = text != nullptr ? FieldValue(std::string(own_value_name(field.names, *text))) : said;
  if (!is_within(field, value) || !field.set(request, value)) refuse(field, text_of(value));
  if (!is_neutral(field, value)) request.given.push_back(static_cast<std::size_t>(&field - run_fields().data()));
}

bool is_given(const RunRequest& request, std::string_view key) {
  return std::any_of(request.given.begin(), request.given.end(),
                     [&](std::size_t place) { return run_fields()[place].key == key; });
}

std::optional<FieldValue> value_of(const Field& field, const RunRecord& ran) {
  if (field.exists != nullptr && !field.exists(ran)) return std::nullopt;
  return field.get(ran);
}

std::vector<RecordedField> record_of(const RunRecord& ran) {
  std::vector<RecordedField> record;
  for (const Field& field : run_fields()) {
    if (std::optional<FieldValue> value = value_of(field, ran)) record.push_back({&field, *std::move(value)});
  }
  return record;
}

std::vector<std::string> words_of(const RunRecord& ran) { return words_of(record_of(ran)); }

std::string command_of(const RunRecord& ran) { return shell_words(shortest(record_of(ran), ran)); }

std::string options_of(const RunRecord& ran) {
  std::vector<RecordedField> said = shortest(record_of(ran), ran);
  std::erase_if(said, [](const RecordedField& each) { return is_always_said(*each.field); });
  return shell_words(said);
}

void set_list(RunRequest& request, FieldGroup group, std::string_view list) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const std::string_view text = equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    std::vector<std::string> names;
    const Field* found = nullptr;
    for (const Field& field : run_fields()) {
      if (field.group != group) continue;
      names.emplace_back(field.flag);
      if (field.flag == name) found = &field;
    }
    if (found == nullptr) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}: unknown name '{}'{}", list_of(group), one_line(name), did_you_mean(name, names)),
                  std::string(list_of(group)));
    }
    set_field(request, *found, parse_field(*found, text));
  }
}

bool may_lack_value(const Field& field) { return field.value.starts_with('['); }

void set_option(RunRequest& request, std::string_view flag, std::string_view text) {
  for (const FieldGroup group : {FieldGroup::kMegatron, FieldGroup::kDeepSpeed}) {
    if (flag == list_of(group)) return set_list(request, group, text);
  }
  const Field* field = find_field(flag);
  if (field == nullptr) throw Error(ErrorCode::kUsage, fmt::format("unknown option '{}'", one_line(flag)));
  if (is_given(request, field->key)) {
    throw Error(ErrorCode::kUsage,
                field->negative.empty()
                    ? fmt::format("{}: given more than once", flag)
                    : fmt::format("{} and {} contradict each other: give one", field->flag, field->negative),
                std::string(flag));
  }
  // --clip-grad alone means HF's max_grad_norm.
  const std::string_view said = text.empty() && may_lack_value(*field) ? "1" : text;
  set_field(request, *field, flag == field->negative ? FieldValue(false) : parse_field(*field, said));
}

void check_effect(const RunRequest& request, const RunRecord& ran) {
  for (const std::size_t place : request.given) {
    const Field& field = run_fields()[place];
    if (field.exists == nullptr || field.exists(ran)) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("{} changes nothing in this run: it belongs to {}", name_of(field), field.belongs_to),
                name_of(field), fmt::format("{}-exists", field.key));
  }
}

void check_bounds(const RunRecord& ran) {
  for (const Field& field : run_fields()) {
    if (field.type != FieldType::kWhole && field.type != FieldType::kNumber && field.type != FieldType::kWholes)
      continue;
    const std::optional<FieldValue> value = value_of(field, ran);
    if (value && !is_within(field, *value)) refuse(field, text_of(*value));
  }
}

}  // namespace memcalc
