// memcalc's own JSON: the run of a report, to be asked again or with other options beside it.
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

}  // namespace

void read_report(Account& account, const JsonNode& root) {
  for (const JsonNode& part : root.children) {
    if (part.key != "run") {
      account.key(part.key, KeyUse::kIrrelevant, "of the answer");
      continue;
    }
    for (const JsonNode& value : part.children) {
      const std::string key = "run/" + value.key;
      if (account.leaves_out(key)) {
        account.key(key, KeyUse::kLeftOut, "--config-without");
        continue;
      }
      account.key(key, KeyUse::kUsed);
      if (value.kind == Kind::kObject) {
        if (!value.children.empty()) account.set("--" + value.key, list_text(value), key);
        continue;
      }
      const Field* field = find_field(value.key);
      if (field == nullptr) {
        throw Error(ErrorCode::kInput, account.file() + ": /" + one_line(key) + ": an option of no run",
                    account.file());
      }
      if (value.kind != Kind::kBool) {
        account.set(field->flag, shown(value), key);
      } else if (value.boolean || !field->negative.empty()) {
        account.set(value.boolean ? field->flag : field->negative, {}, key);
      }
    }
  }
}

}  // namespace memcalc::config
