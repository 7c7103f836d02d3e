// Internal to spec/config_files: a mapping of a configuration file, read key by key against a table, so that none is
// passed over. Covered by tests/unit/config_files_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/spec/config_files/config_file.h"
#include "memcalc/spec/config_files/key_table.h"
#include "memcalc/spec/json_node.h"

namespace memcalc::config {

/// What is known so far of a file and of the files that it names.
class Account {
 public:
  Account(std::string file, std::vector<std::string> left_out);

  /// A later one of the same flag takes the place of an earlier one.
  void set(std::string_view flag, std::string text = {}, std::string_view key = {});
  void note(std::string text);
  void key(std::string key, KeyUse use, std::string why = {});
  void refuse(std::string where, std::string why);
  [[nodiscard]] bool is_set(std::string_view flag) const { return text_of(flag).has_value(); }
  [[nodiscard]] std::optional<std::string> text_of(std::string_view flag) const;  // that was set
  [[nodiscard]] bool leaves_out(std::string_view key);
  [[nodiscard]] bool is_left_out(std::string_view key) const;  // that was there
  void need(ConfigNeed need);
  void limit_length(std::int64_t tokens) { result_.most_tokens = tokens; }
  void switch_of_masking(std::string argument) { result_.masking_argument = std::move(argument); }
  void pad_to_length(std::string why) { result_.padded_to_length = std::move(why); }
  void set_global_batch(std::int64_t samples, std::string_view key);

  /// Throws what was refused, all in one line, and for a key to leave out that no file has.
  [[nodiscard]] ConfigFile finish(std::string_view format, std::string_view program);

  [[nodiscard]] const std::string& file() const { return result_.file; }

  /// The script of a command line, "run_glue.py"; empty: a file, or a tool's own program.
  std::string script;

 private:
  struct Refusal {
    std::string where;
    std::string why;
  };
  ConfigFile result_;
  std::vector<std::string> left_out_;
  std::vector<bool> found_;  // of left_out_
  std::vector<Refusal> refusals_;
};

/// One mapping. Irrelevant, approximated and refused keys, and those that set one option, are dealt with when it is
/// made; the tool's function asks for the others, and done() tells those that nobody asked for.
class Section {
 public:
  /// `prefix`: in front of its keys, where it is part of a larger file: "deepspeed/". Throws Error(kInput) for a key
  /// that no table has.
  Section(Account& account, const JsonNode& object, std::string file, std::vector<KeyTable> tables,
          std::string prefix = {});

  // Absent and null are the same: nothing. A text that reads as the type is taken, as all these tools do. "auto" is a
  // text. Throw Error(kInput) for another type.
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] std::optional<bool> flag(std::string_view key);
  [[nodiscard]] std::optional<std::int64_t> whole(std::string_view key);
  [[nodiscard]] std::optional<double> number(std::string_view key);
  [[nodiscard]] std::optional<std::string> text(std::string_view key);    // of any single value, as it is written
  [[nodiscard]] std::optional<std::string> scalar(std::string_view key);  // the same; nothing of a list or a mapping
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);     // a list, or one text by commas or blanks
  [[nodiscard]] const JsonNode* mapping(std::string_view key);            // null: absent, or no mapping
  [[nodiscard]] bool on(std::string_view key) { return flag(key).value_or(false); }

  /// A text of these, else Error(kInput).
  [[nodiscard]] std::optional<std::string> choice(std::string_view key, std::span<const std::string_view> accepted);

  void set(std::string_view key, std::string_view flag, std::string text = {});  // an option because of a key
  void refuse(std::string_view key, std::string why);
  void approximate(std::string_view key, std::string why);
  void irrelevant(std::string_view key, std::string why);
  [[noreturn]] void wrong(std::string_view key, const std::string& accepted) const;

  /// Tells the keys that the tool's function did not ask for.
  void done();

  [[nodiscard]] Account& account() { return account_; }
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  struct Entry {
    std::string key;  // without the prefix
    const JsonNode* value = nullptr;
    std::size_t at = 0;  // in the account
    bool asked = false;
    bool told = false;
  };
  struct Unknown {
    std::string key;
    std::string hint;  // "; did you mean '…'?"
  };
  void flatten(const JsonNode& object, const std::string& before);
  void judge(Entry& entry);
  void refuse_unknown() const;  // all of them in one line
  [[nodiscard]] const KeyRow* row_of(std::string_view key) const;
  [[nodiscard]] bool has_rows_below(std::string_view key) const;
  [[nodiscard]] Entry* find(std::string_view key);
  [[nodiscard]] const Entry* find(std::string_view key) const;
  [[nodiscard]] Entry* ask(std::string_view key);
  void tell(std::string_view key, KeyUse use, std::string why);

  Account& account_;
  std::string file_;
  std::vector<KeyTable> tables_;
  std::map<std::string_view, const KeyRow*> rows_;
  std::string prefix_;
  std::vector<Entry> entries_;
  std::vector<Unknown> unknown_;
};

/// null, false, 0, an empty list, mapping or text, "no", "none", "false".
[[nodiscard]] bool is_off(const JsonNode& value);

/// The words of a list.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text, std::string_view separators);

/// A value in a message or as the text of an option: q_proj,v_proj.
[[nodiscard]] std::string shown(const JsonNode& value);

}  // namespace memcalc::config
