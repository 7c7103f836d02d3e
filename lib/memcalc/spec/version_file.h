// Versions as other tools write them down: requirements.txt, pip freeze, pip list, uv.lock, or what is installed in a
// Python environment.
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

/// The text behind --versions: of a file with what it includes (-r, -c), of the folder of an environment a line for
/// each package, of a text that names versions itself ("torch==2.11.0") that text. Throws Error(kInput) for a file that
/// cannot be read.
[[nodiscard]] std::string version_text(const std::string& written);

/// Of a text with a package a line ("torch==2.11.0"), or between commas, or of a uv.lock. Other packages are left out.
[[nodiscard]] WrittenVersions versions_in(std::string_view text);

}  // namespace memcalc
