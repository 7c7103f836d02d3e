// Profiles: the releases that memcalc knows, of specs/profiles/: a file a software, in which each release says how it
// differs from the one before it; and named combinations of releases. Covered by tests/unit/profiles_test.cc.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/spec/profile.h"

namespace memcalc {

/// A release as its file gives it.
struct Release {
  Version version;
  Version from;      // the first one with the same source in the files that rules mirror; unknown: not looked for
  std::string date;  // "2026-09-09"; empty: not looked up
  std::vector<std::pair<std::size_t, std::uint8_t>> changes;  // rows of behavior_table() and their values from here on
  std::string validated;                                      // runs that were compared under it; empty: none
  Version cuda, cudnn, nccl;                                  // of torch's wheel on PyPI
  std::vector<std::pair<Version, Version>> cudnn_of_cuda;     // of its wheels for other CUDAs: {12.6, 9.10}
  std::vector<WheelArchitecture> oldest_of_cuda;              // of each CUDA and those after it, ascending
};

/// A combination that many people have.
struct NamedProfile {
  std::string name;         // "p3"
  std::string description;  // "torch 2.9 + transformers 4.57.6"
  Profile profile;
  std::string validated;
};

class Profiles {
 public:
  /// Reads the files of a folder profiles/. Throws Error(kInput) for one that is wrong.
  explicit Profiles(const std::string& directory);

  /// The profile that is asked for, of a file of versions what no option says: the named one or today's, with the
  /// versions that are said. `notes`: a sentence for each version that is not among the releases. Throws Error(kUsage)
  /// for an unknown name, a text that is no version, a version before the first release.
  [[nodiscard]] Profile choose(const VersionOptions& asked, const std::string& file,
                               std::vector<std::string>& notes) const;

  [[nodiscard]] const std::vector<NamedProfile>& named() const { return named_; }
  [[nodiscard]] const std::vector<Release>& releases(Software of) const {
    return releases_[static_cast<std::size_t>(of)];
  }

 private:
  void read_releases(const std::string& path, Software of);
  void read_named(const std::string& path);
  /// `lenient`: a version before the first release becomes that one, with a note.
  void set_version(Profile& profile, Software of, const std::string& text, std::vector<std::string>& notes,
                   bool lenient = false) const;

  std::array<std::vector<Release>, kSoftwareCount> releases_;  // ascending
  std::vector<NamedProfile> named_;
};

}  // namespace memcalc
