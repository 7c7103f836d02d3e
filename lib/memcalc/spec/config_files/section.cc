#include "memcalc/spec/config_files/section.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/config_text.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc::config {
namespace {

using Kind = JsonNode::Kind;

std::string where_of(const std::string& file, std::string_view key) {
  return fmt::format("{}: /{}", shown_path(file), one_line(key, 80));
}

// A text as the type that it reads as: command lines have texts alone.
JsonNode scalar_of(const JsonNode& value) {
  if (value.kind != Kind::kString) return value;
  JsonNode scalar = plain_scalar(value.text);
  // "None" is Python's, as HF's parsers write it.
  if (value.text == "None") scalar.kind = Kind::kNull;
  return scalar;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = text.find_first_not_of(separators, at);
    if (first == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(separators, first), text.size());
    words.push_back(text.substr(first, end - first));
    at = end;
  }
  return words;
}

bool is_off(const JsonNode& value) {
  switch (value.kind) {
    case Kind::kNull: return true;
    case Kind::kBool: return !value.boolean;
    case Kind::kInteger:
    case Kind::kNumber: return value.number == 0;
    case Kind::kArray:
    case Kind::kObject: return value.children.empty();
    case Kind::kString: {
      const std::string lower = ascii_lower(value.text);
      return lower.empty() || lower == "none" || lower == "no" || lower == "false" || lower == "0" || lower == "null";
    }
  }
  return false;
}

std::string shown(const JsonNode& value) {
  switch (value.kind) {
    case Kind::kNull: return "null";
    case Kind::kBool: return value.boolean ? "true" : "false";
    case Kind::kObject: return "a mapping";
    case Kind::kArray: {
      std::vector<std::string> parts;
      for (const JsonNode& child : value.children) parts.push_back(shown(child));
      return join(parts, ",");
    }
    default: return value.text;
  }
}

// --- Account

Account::Account(std::string file, std::vector<std::string> left_out)
    : left_out_(std::move(left_out)), found_(left_out_.size()) {
  result_.file = std::move(file);
}

void Account::set(std::string_view flag, std::string text, std::string_view key) {
  ConfigOption option{std::string(flag), std::move(text), std::string(key)};
  const auto same = std::find_if(result_.options.begin(), result_.options.end(),
                                 [&](const ConfigOption& each) { return each.flag == flag; });
  if (same == result_.options.end()) {
    result_.options.push_back(std::move(option));
  } else {
    *same = std::move(option);
  }
}

void Account::note(std::string text) {
  if (std::find(result_.notes.begin(), result_.notes.end(), text) == result_.notes.end()) {
    result_.notes.push_back(std::move(text));
  }
}

void Account::key(std::string key, KeyUse use, std::string why) {
  const auto same =
      std::find_if(result_.keys.begin(), result_.keys.end(), [&](const ConfigKey& each) { return each.key == key; });
  if (same == result_.keys.end()) {
    result_.keys.push_back({std::move(key), use, std::move(why)});
  } else {
    same->use = use;
    same->why = std::move(why);
  }
}

void Account::refuse(std::string where, std::string why) { refusals_.push_back({std::move(where), std::move(why)}); }

std::optional<std::string> Account::text_of(std::string_view flag) const {
  for (const ConfigOption& each : result_.options) {
    if (each.flag == flag) return each.text;
  }
  return std::nullopt;
}

void Account::set_global_batch(std::int64_t samples, std::string_view key) {
  result_.global_batch = samples;
  result_.global_batch_key = key;
}

bool Account::is_left_out(std::string_view key) const {
  return std::any_of(result_.keys.begin(), result_.keys.end(),
                     [&](const ConfigKey& each) { return each.key == key && each.use == KeyUse::kLeftOut; });
}

void Account::need(ConfigNeed need) { result_.needs.push_back(std::move(need)); }

bool Account::leaves_out(std::string_view key) {
  for (std::size_t at = 0; at < left_out_.size(); ++at) {
    const std::string& each = left_out_[at];
    if (key != each && !key.starts_with(each + "/")) continue;
    found_[at] = true;
    return true;
  }
  return false;
}

ConfigFile Account::finish(std::string_view format, std::string_view program) {
  for (std::size_t at = 0; at < left_out_.size(); ++at) {
    if (found_[at]) continue;
    std::vector<std::string> known;
    for (const ConfigKey& each : result_.keys) known.push_back(each.key);
    throw Error(ErrorCode::kUsage,
                fmt::format("--config-without: {} has no key '{}'{}", shown_path(result_.file), one_line(left_out_[at]),
                            did_you_mean(std::string_view(left_out_[at]).substr(0, 80), known)),
                "--config-without");
  }
  if (!refusals_.empty()) {
    std::string message = refusals_.front().where + ": " + refusals_.front().why;
    std::vector<std::string> keys;
    for (const Refusal& each : refusals_) {
      const std::string key = each.where.substr(each.where.rfind(": /") + 3);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
    if (keys.size() > 1) {
      message += fmt::format(" (also refused: {})", join(std::vector<std::string>(keys.begin() + 1, keys.end())));
    }
    message += "; accepted: --config-without " + join(keys, ",") + ", for the answer without " +
               (keys.size() > 1 ? "them" : "it");
    throw Error(ErrorCode::kUnsupported, message, refusals_.front().where);
  }
  result_.format = std::string(format);
  result_.program = std::string(program);
  return std::move(result_);
}

// --- Section

Section::Section(Account& account, const JsonNode& object, std::string file, std::vector<KeyTable> tables,
                 std::string prefix)
    : account_(account), file_(std::move(file)), tables_(std::move(tables)), prefix_(std::move(prefix)) {
  for (const KeyTable table : tables_) {
    for (const KeyRow& row : table) {
      for (const std::string_view key : words_of(row.keys, " ")) rows_.emplace(key, &row);  // the first table wins
    }
  }
  flatten(object, "");
  for (Entry& entry : entries_) judge(entry);
  refuse_unknown();
}

void Section::refuse_unknown() const {
  if (unknown_.empty()) return;
  const Unknown& first = unknown_.front();
  const std::string where = where_of(file_, first.key);
  if (unknown_.size() == 1 && !first.hint.empty())
    throw Error(ErrorCode::kInput, where + ": unknown key" + first.hint, file_);
  std::vector<std::string> keys;
  for (const Unknown& each : unknown_) keys.push_back(one_line(each.key, 80));
  const std::string what =
      keys.size() == 1 ? where + ": unknown key" : fmt::format("{}: unknown keys: {}", shown_path(file_), join(keys));
  throw Error(ErrorCode::kInput,
              fmt::format("{}{}; accepted: --config-without {}, for the answer without {}", what, first.hint,
                          join(keys, ","), keys.size() > 1 ? "them" : "it"),
              file_);
}

void Section::flatten(const JsonNode& object, const std::string& before) {
  for (const JsonNode& child : object.children) {
    std::string key = before + child.key;
    if (account_.leaves_out(prefix_ + key)) {
      account_.key(prefix_ + key, KeyUse::kLeftOut, "--config-without");
      continue;
    }
    const bool below = has_rows_below(key);
    if (child.kind == Kind::kObject && below && !child.children.empty()) {
      flatten(child, key + "/");
      continue;
    }
    if (below && row_of(key) == nullptr && child.kind != Kind::kNull && !is_off(child)) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: found {}; accepted: a mapping of keys", where_of(file_, prefix_ + key),
                              one_line(shown(child))),
                  file_);
    }
    entries_.push_back({std::move(key), &child});
  }
}

const KeyRow* Section::row_of(std::string_view key) const {
  const auto found = rows_.find(key);
  return found == rows_.end() ? nullptr : found->second;
}

bool Section::has_rows_below(std::string_view key) const {
  const std::string prefix = std::string(key) + "/";
  const auto next = rows_.lower_bound(prefix);
  return next != rows_.end() && next->first.starts_with(prefix);
}

void Section::judge(Entry& entry) {
  const std::string key = prefix_ + entry.key;
  const KeyRow* row = row_of(entry.key);
  if (row == nullptr) {
    if (has_rows_below(entry.key)) {  // an empty mapping of known keys
      account_.key(key, KeyUse::kIrrelevant, "empty");
      entry.told = true;
      return;
    }
    std::vector<std::string> known;
    for (const auto& [name, unused] : rows_) {
      known.emplace_back(name);
      known.emplace_back(name.substr(0, name.find('/')));  // "zero_optimization" of "zero_optimization/stage"
    }
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    unknown_.push_back({key, did_you_mean(std::string_view(entry.key).substr(0, 80), known)});
    return;
  }
  entry.told = true;
  switch (row->use) {
    case RowUse::kIrrelevant: return account_.key(key, KeyUse::kIrrelevant, std::string(row->why));
    case RowUse::kApproximated:
    case RowUse::kRefused: {
      const std::vector<std::string_view> offs = words_of(row->off, " ");
      const bool on_by_default = std::find(offs.begin(), offs.end(), "true") != offs.end();
      const bool off = on_by_default ? entry.value->kind == Kind::kNull : is_off(*entry.value);
      if (off || std::find(offs.begin(), offs.end(), shown(*entry.value)) != offs.end()) {
        return account_.key(key, KeyUse::kIrrelevant, "off, or the default");
      }
      if (row->use == RowUse::kApproximated) return account_.key(key, KeyUse::kApproximated, std::string(row->why));
      account_.key(key, KeyUse::kUsed);
      return account_.refuse(where_of(file_, key), std::string(row->why));
    }
    case RowUse::kUsed: break;
  }
  if (row->option.empty()) {
    entry.told = false;  // the tool's function asks for it
    account_.key(key, KeyUse::kUsed);
    return;
  }
  if (entry.value->kind == Kind::kNull || shown(*entry.value) == "None") {
    return account_.key(key, KeyUse::kIrrelevant, "empty: the default");
  }
  if (entry.value->kind == Kind::kObject || entry.value->kind == Kind::kArray) wrong(entry.key, "a single value");
  account_.key(key, KeyUse::kUsed);
  account_.set(row->option, shown(*entry.value), key);
}

Section::Entry* Section::find(std::string_view key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) { return each.key == key; });
  return found == entries_.end() ? nullptr : &*found;
}
const Section::Entry* Section::find(std::string_view key) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) { return each.key == key; });
  return found == entries_.end() ? nullptr : &*found;
}

Section::Entry* Section::ask(std::string_view key) {
  Entry* entry = find(key);
  if (entry == nullptr) return nullptr;
  entry->asked = true;
  return entry->value->kind == Kind::kNull || shown(*entry->value) == "None" ? nullptr : entry;
}

bool Section::has(std::string_view key) const {
  const Entry* entry = find(key);
  return entry != nullptr && entry->value->kind != Kind::kNull;
}

void Section::wrong(std::string_view key, const std::string& accepted) const {
  const Entry* entry = find(key);
  const std::string found = entry == nullptr ? "it is missing" : "found '" + one_line(shown(*entry->value)) + "'";
  throw Error(ErrorCode::kInput,
              fmt::format("{}: {}; accepted: {}", where_of(file_, prefix_ + std::string(key)), found, accepted), file_);
}

std::optional<bool> Section::flag(std::string_view key) {
  const Entry* entry = ask(key);
  if (entry == nullptr) return std::nullopt;
  const JsonNode value = scalar_of(*entry->value);
  if (value.kind == Kind::kBool) return value.boolean;
  if (value.kind == Kind::kInteger && (value.integer == 0 || value.integer == 1)) return value.integer == 1;
  if (value.kind == Kind::kString) {  // transformers, hf_argparser.py: string_to_bool takes these, too
    const std::string lower = ascii_lower(value.text);
    if (lower == "t" || lower == "y" || lower == "yes" || lower == "true") return true;
    if (lower == "f" || lower == "n" || lower == "no" || lower == "false") return false;
  }
  wrong(key, "true or false");
}

std::optional<std::int64_t> Section::whole(std::string_view key) {
  const Entry* entry = ask(key);
  if (entry == nullptr) return std::nullopt;
  const JsonNode value = scalar_of(*entry->value);
  if (value.kind == Kind::kInteger) return value.integer;
  // DeepSpeed's files write 5e8 for a whole number.
  if (value.kind == Kind::kNumber && std::abs(value.number) < 1e15 && std::floor(value.number) == value.number) {
    return static_cast<std::int64_t>(value.number);
  }
  wrong(key, "a whole number below 2^63");
}

std::optional<double> Section::number(std::string_view key) {
  const Entry* entry = ask(key);
  if (entry == nullptr) return std::nullopt;
  const JsonNode value = scalar_of(*entry->value);
  if (value.kind == Kind::kInteger || value.kind == Kind::kNumber) return value.number;
  wrong(key, "a number");
}

std::optional<std::string> Section::text(std::string_view key) {
  const Entry* entry = ask(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->value->kind == Kind::kArray || entry->value->kind == Kind::kObject) wrong(key, "a single value");
  return shown(*entry->value);
}

std::optional<std::string> Section::scalar(std::string_view key) {
  const Entry* entry = ask(key);
  if (entry == nullptr || entry->value->kind == Kind::kArray || entry->value->kind == Kind::kObject)
    return std::nullopt;
  return shown(*entry->value);
}

std::vector<std::string> Section::texts(std::string_view key) {
  const Entry* entry = ask(key);
  if (entry == nullptr) return {};
  if (entry->value->kind == Kind::kObject) wrong(key, "a list of names");
  if (entry->value->kind == Kind::kArray) {
    std::vector<std::string> all;
    for (const JsonNode& child : entry->value->children) {
      if (child.kind == Kind::kArray || child.kind == Kind::kObject) wrong(key, "a list of names");
      all.push_back(shown(child));
    }
    return all;
  }
  std::vector<std::string> all;
  const std::string text = shown(*entry->value);
  for (const std::string_view word : words_of(text, ", ")) all.emplace_back(word);
  return all;
}

const JsonNode* Section::mapping(std::string_view key) {
  const Entry* entry = ask(key);
  return entry == nullptr || entry->value->kind != Kind::kObject ? nullptr : entry->value;
}

std::optional<std::string> Section::choice(std::string_view key, std::span<const std::string_view> accepted) {
  const std::optional<std::string> value = text(key);
  if (!value || std::find(accepted.begin(), accepted.end(), *value) != accepted.end()) return value;
  std::vector<std::string> names(accepted.begin(), accepted.end());
  wrong(key, "one of " + join(names) + did_you_mean(std::string_view(*value).substr(0, 80), names));
}

void Section::set(std::string_view key, std::string_view flag, std::string text) {
  account_.set(flag, std::move(text), find(key) == nullptr ? "" : prefix_ + std::string(key));
}

void Section::tell(std::string_view key, KeyUse use, std::string why) {
  Entry* entry = find(key);
  if (entry == nullptr) return;
  entry->asked = entry->told = true;
  account_.key(prefix_ + std::string(key), use, std::move(why));
}

void Section::refuse(std::string_view key, std::string why) {
  if (Entry* entry = find(key)) entry->asked = entry->told = true;
  account_.refuse(where_of(file_, prefix_ + std::string(key)), std::move(why));
}

void Section::approximate(std::string_view key, std::string why) {
  if (find(key) == nullptr) return account_.note(std::move(why));
  tell(key, KeyUse::kApproximated, std::move(why));
}

void Section::irrelevant(std::string_view key, std::string why) { tell(key, KeyUse::kIrrelevant, std::move(why)); }

void Section::done() {
  for (const Entry& entry : entries_) {
    if (entry.told || entry.asked) continue;
    account_.key(prefix_ + entry.key, KeyUse::kIrrelevant, "without effect beside the other keys");
  }
}

}  // namespace memcalc::config
