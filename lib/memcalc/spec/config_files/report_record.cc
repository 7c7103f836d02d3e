// memcalc's own JSON: the run of a report, to be asked again or with other options beside it.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/section.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc::config {
namespace {

using Kind = JsonNode::Kind;

/// "overlap_comm=false,stage3_max_live_parameters=1e9": the value of --deepspeed or --megatron.
std::string list_text(const JsonNode& object) {
  std::string text;
  for (const JsonNode& each : object.children) text += (text.empty() ? "" : ",") + each.key + "=" + shown(each);
  return text;
}

[[noreturn]] void refuse(const Account& account, std::string_view key, std::string_view why) {
  throw Error(ErrorCode::kInput, fmt::format("{}: /{}: {}", account.file(), one_line(key), why), account.file());
}

bool is_nested(const JsonNode& value) {
  return std::any_of(value.children.begin(), value.children.end(), [](const JsonNode& each) {
    return each.kind == Kind::kObject || each.kind == Kind::kArray || each.kind == Kind::kNull;
  });
}

}  // namespace

void read_report(Account& account, const JsonNode& root) {
  for (const JsonNode& part : root.children) {
    if (part.key != "run") {
      account.key(part.key, KeyUse::kIrrelevant, "of the answer");
      continue;
    }
    if (part.kind != Kind::kObject) refuse(account, part.key, "it is no object; accepted: the run of a report");
    for (const JsonNode& value : part.children) {
      const std::string key = "run/" + value.key;
      if (account.leaves_out(key)) {
        account.key(key, KeyUse::kLeftOut, "--config-without");
        continue;
      }
      account.key(key, KeyUse::kUsed);
      if (is_nested(value)) refuse(account, key, "its values are no plain ones; accepted: numbers, texts, true, false");
      if (value.kind == Kind::kObject) {
        const bool is_list = value.key == "deepspeed" || value.key == "megatron";
        if (!is_list) refuse(account, key, "an object; accepted: one value or a list");
        if (!value.children.empty()) account.set("--" + value.key, list_text(value), key);
        continue;
      }
      const Field* field = find_field(value.key);
      if (field == nullptr) refuse(account, key, "an option of no run");
      if (value.kind != Kind::kBool) {
        account.set(field->flag, shown(value), key);
      } else if (value.boolean || !field->negative.empty()) {
        account.set(value.boolean ? field->flag : field->negative, {}, key);
      }
    }
  }
}

}  // namespace memcalc::config
