// What the usual host of a card has of memory: specs/hosts.json. Covered by tests/unit/hosts_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memcalc/base/bytes.h"

namespace memcalc {

struct UsualHost {
  Bytes memory_bytes = 0;
  std::int64_t gpus = 1;  // that share it
  std::string source;     // with its date
};

/// Of `card`, a name of the registry, by `directory`/hosts.json; nothing where that file has no row for it, or is not
/// there. Throws Error(kInput) for a file that is wrong.
[[nodiscard]] std::optional<UsualHost> usual_host_of(const std::string& directory, const std::string& card);

}  // namespace memcalc
