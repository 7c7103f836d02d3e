// Which of the known models a name that none of them has was probably meant to be.
// Covered by tests/unit/spec_registry_test.cc.
#pragma once

#include <string>
#include <vector>

namespace memcalc {

/// The known models that `reference` may be meant to be, to be proposed; none where it begins the names of more than a
/// few, which a search lists.
[[nodiscard]] std::vector<std::string> meant_models(const std::string& reference,
                                                    const std::vector<std::string>& known);

/// "qwen3" of "Qwen/qwen3-14c": the longest beginning of a name, by whole words, with which known ones begin, too.
/// Empty: there is none.
[[nodiscard]] std::string beginning_of_known(const std::string& reference, const std::vector<std::string>& known);

}  // namespace memcalc
