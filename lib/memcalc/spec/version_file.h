// Versions as other tools write them down: requirements.txt, pip freeze, pip list, uv.lock.
// Covered by tests/unit/profiles_test.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/profile.h"

namespace memcalc {

struct WrittenVersion {
  Software of = Software::kTorch;
  std::string version;  // "2.11.0+cu130"
};

struct WrittenVersions {
  std::vector<WrittenVersion> found;
  std::vector<std::string> notes;  // of packages that the text names without one version: "transformers>=5"
};

/// Of a text with a package a line ("torch==2.11.0"), or between commas, or of a uv.lock. Other packages are left out.
[[nodiscard]] WrittenVersions versions_in(std::string_view text);

}  // namespace memcalc
