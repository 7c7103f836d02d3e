// Profile: the versions that a run is answered for, and what they do. Behaviours are what rules look at; versions are
// for people. Made of releases that specs/profiles/ describes (profiles.h), or by default of those that memcalc
// answers for where nothing is said. Covered by tests/unit/profiles_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/behaviors.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/version.h"

namespace memcalc {

/// The oldest card that torch's wheel of a CUDA has kernels for.
struct WheelArchitecture {
  Version cuda;
  CudaArchitecture oldest = CudaArchitecture::kNone;

  friend bool operator==(const WheelArchitecture&, const WheelArchitecture&) = default;
};

/// What is set here is what specs/profiles/ says of the versions named here (profiles_test.cc compares both).
struct Profile {
  /// By Software.
  std::array<Version, kSoftwareCount> versions = {Version{2, 11, 0}, Version{5, 17, 0}, Version{1, 15, 0},
                                                  Version{0, 21, 2}, Version{1, 16, 0}, Version{0, 50, 2},
                                                  Version{0, 8, 5}};
  /// What torch's wheel is built with and brings.
  Version cuda = {13, 0, 0}, cudnn = {9, 19, 0}, nccl = {2, 28, 9};
  bool other_cuda = false;                                           // than that of the release's wheel on PyPI
  CudaArchitecture oldest_architecture = CudaArchitecture::kTuring;  // that the wheel has kernels for; none: not known
  /// What cards before these take; none: there is no such wheel.
  WheelArchitecture wheel_of_older = {.cuda = {12, 6, 0}, .oldest = CudaArchitecture::kMaxwell};
  Behaviors behaviors;

  [[nodiscard]] const Version& version(Software of) const { return versions[static_cast<std::size_t>(of)]; }
  [[nodiscard]] Version& version(Software of) { return versions[static_cast<std::size_t>(of)]; }

  friend bool operator==(const Profile&, const Profile&) = default;
};

/// Takes the version and the behaviours of one software from another profile.
void take_software(Profile& profile, Software of, const Profile& from);

/// "5.17.0"; of torch with its CUDA where that is not its release's own: "2.11.0+cu128".
[[nodiscard]] std::string wheel_of(const Profile& profile, Software of);

/// Rows of behavior_table() in which two profiles differ.
[[nodiscard]] std::vector<std::size_t> differences(const Profile& a, const Profile& b);

/// "torch", of which --torch speaks.
[[nodiscard]] constexpr std::string_view name_of(Software of) { return kSoftwareNames[static_cast<std::size_t>(of)]; }

/// What is asked of versions: texts as they were typed.
struct VersionOptions {
  std::optional<std::string> profile;                            // --profile
  std::array<std::optional<std::string>, kSoftwareCount> asked;  // by Software: --torch, --transformers, …

  [[nodiscard]] bool empty() const {
    if (profile) return false;
    for (const auto& each : asked) {
      if (each) return false;
    }
    return true;
  }
};

}  // namespace memcalc
