#include "memcalc/spec/profiles.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/version_file.h"

namespace memcalc {
namespace {

std::size_t behavior_named(const JsonObject& changes, const std::string& name, Software of) {
  const std::span<const Behavior> table = behavior_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name && table[i].software == of) return i;
  }
  throw changes.error(name, fmt::format("no behaviour of {} has this name", name_of(of)));
}

Version required_version(const JsonObject& row, std::string_view key) {
  if (const auto version = version_of(row.required_string(key))) return *version;
  throw row.error_found(key, "a version such as 5.17.0");
}

Version optional_version(const JsonObject& row, std::string_view key) {
  return row.has(key) ? required_version(row, key) : Version{};
}

std::vector<std::pair<std::size_t, std::uint8_t>> changes_of(const JsonObject& row, Software of) {
  std::vector<std::pair<std::size_t, std::uint8_t>> changes;
  if (!row.has("behaviors")) return changes;
  const JsonObject object = row.required_object("behaviors");
  for (const std::string& name : object.keys()) {
    const std::size_t i = behavior_named(object, name, of);
    const std::span<const std::string_view> values = behavior_table()[i].values;
    const std::string value = object.required_choice(name, values);
    const auto found = std::find(values.begin(), values.end(), value);
    changes.emplace_back(i, static_cast<std::uint8_t>(found - values.begin()));
  }
  return changes;
}

/// "2.11.0+cu128": CUDA 12.8.
std::optional<Version> cuda_of(std::string_view torch) {
  const std::size_t at = torch.find("+cu");
  if (at == std::string_view::npos || torch.size() < at + 6) return std::nullopt;
  const std::string digits(torch.substr(at + 3));
  return version_of(fmt::format("{}.{}", digits.substr(0, digits.size() - 1), digits.back()));
}

Version first_of(const Release& release) { return release.from.known() ? release.from : release.version; }

/// The release whose behaviours a version has; null: it is older than all.
const Release* release_before(const std::vector<Release>& releases, const Version& version) {
  const Release* found = nullptr;
  for (const Release& each : releases) {
    if (first_of(each) <= version) found = &each;
  }
  return found;
}

/// "5.5" as an option means the newest patch of 5.5 that is known.
Version newest_patch(const std::vector<Release>& releases, const Version& version) {
  Version newest = version;
  for (const Release& each : releases) {
    if (each.version.major == version.major && each.version.minor == version.minor) newest = each.version;
  }
  return newest;
}

/// The cuDNN that torch's wheel for a CUDA brings; nothing: it is not known.
std::optional<Version> cudnn_of(const Release& release, const Version& cuda) {
  if (cuda == release.cuda) return release.cudnn;
  for (const auto& [of, cudnn] : release.cudnn_of_cuda) {
    if (of == cuda) return cudnn;
  }
  return std::nullopt;
}

/// "7.5": Turing.
std::optional<CudaArchitecture> capability_of(const std::string& text) {
  const auto version = version_of(text);
  if (!version || version->minor > 9) return std::nullopt;
  return architecture_of(version->major, version->minor);
}

std::vector<WheelArchitecture> oldest_of_cuda(const JsonObject& row) {
  std::vector<WheelArchitecture> found;
  if (!row.has("oldest_of_cuda")) return found;
  const JsonObject object = row.required_object("oldest_of_cuda");
  for (const auto& [text, capability] : object.string_members()) {
    const auto cuda = version_of(text);
    const auto oldest = capability_of(capability);
    if (!cuda || !oldest)
      throw object.error(text, "a version of CUDA and a compute capability such as 7.5 are expected");
    found.push_back({*cuda, *oldest});
  }
  const auto before = [](const WheelArchitecture& a, const WheelArchitecture& b) { return a.cuda < b.cuda; };
  std::sort(found.begin(), found.end(), before);
  return found;
}

/// Those that a release's wheels have kernels for; older than every wheel that is known: nothing is.
void take_architectures(Profile& profile, const std::vector<WheelArchitecture>& known) {
  profile.oldest_architecture = CudaArchitecture::kNone;
  profile.wheel_of_older = {};
  for (const WheelArchitecture& each : known) {
    if (each.cuda <= profile.cuda) profile.oldest_architecture = each.oldest;
  }
  if (!known.empty() && known.front().oldest < profile.oldest_architecture) profile.wheel_of_older = known.front();
}

/// From 2.10 on cuDNN's attention stands first only with a cuDNN after 9.15.0, which is asked when it runs.
/// aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention: cudnn_version > 91500
constexpr Version kLastCudnnWithout{9, 15, 0};

}  // namespace

Profiles::Profiles(const std::string& directory) {
  for (std::size_t i = 0; i < kSoftwareCount; ++i) {
    read_releases(fmt::format("{}/{}.json", directory, kSoftwareNames[i]), static_cast<Software>(i));
  }
  read_named(directory + "/named.json");
}

void Profiles::read_releases(const std::string& path, Software of) {
  constexpr std::array<std::string_view, 3> kKeys = {"description", "source", "releases"};
  constexpr std::array<std::string_view, 11> kReleaseKeys = {"version",       "from",      "date",          "behaviors",
                                                             "source",        "validated", "cuda",          "cudnn",
                                                             "cudnn_of_cuda", "nccl",      "oldest_of_cuda"};
  const JsonDocument document = JsonDocument::read_file(path);
  document.root().refuse_unknown_keys(kKeys);
  std::vector<Release>& releases = releases_[static_cast<std::size_t>(of)];
  for (const JsonObject& row : document.root().optional_objects("releases")) {
    row.refuse_unknown_keys(kReleaseKeys);
    Release release{.version = required_version(row, "version"),
                    .from = optional_version(row, "from"),
                    .date = row.optional_string("date").value_or(""),
                    .changes = changes_of(row, of),
                    .validated = row.optional_string("validated").value_or(""),
                    .cuda = optional_version(row, "cuda"),
                    .cudnn = optional_version(row, "cudnn"),
                    .nccl = optional_version(row, "nccl"),
                    .oldest_of_cuda = oldest_of_cuda(row)};
    if (row.has("cudnn_of_cuda")) {
      const JsonObject others = row.required_object("cudnn_of_cuda");
      for (const auto& [cuda, cudnn] : others.string_members()) {
        const auto of = version_of(cuda), brings = version_of(cudnn);
        if (!of || !brings) throw others.error(cuda, "a version of CUDA and the cuDNN of its wheel are expected");
        release.cudnn_of_cuda.emplace_back(*of, *brings);
      }
    }
    if (!releases.empty() && first_of(release) <= releases.back().version) {
      throw row.error("version", "releases stand in ascending order");
    }
    if (release.from > release.version) throw row.error("from", "the first version is at most the release's own");
    releases.push_back(std::move(release));
  }
  if (releases.empty()) throw document.root().error("releases", "at least one release is needed");
}

void Profiles::read_named(const std::string& path) {
  constexpr std::array<std::string_view, 2> kKeys = {"description", "profiles"};
  constexpr std::array<std::string_view, 5> kProfileKeys = {"name", "description", "parent", "versions", "validated"};
  const JsonDocument document = JsonDocument::read_file(path);
  document.root().refuse_unknown_keys(kKeys);
  for (const JsonObject& row : document.root().optional_objects("profiles")) {
    row.refuse_unknown_keys(kProfileKeys);
    NamedProfile named{.name = row.required_string("name"),
                       .description = row.required_string("description"),
                       .validated = row.optional_string("validated").value_or("")};
    if (const auto parent = row.optional_string("parent")) {
      const auto found =
          std::find_if(named_.begin(), named_.end(), [&](const NamedProfile& each) { return each.name == *parent; });
      if (found == named_.end()) throw row.error_found("parent", "a profile that stands before it");
      named.profile = found->profile;
    }
    std::vector<std::string> notes;
    for (const auto& [software, version] : row.required_object("versions").string_members()) {
      const auto found = std::find(std::begin(kSoftwareNames), std::end(kSoftwareNames), software);
      if (found == std::end(kSoftwareNames)) throw row.error("versions", "no versions of " + software + " are known");
      set_version(named.profile, static_cast<Software>(found - std::begin(kSoftwareNames)), version, notes);
    }
    named_.push_back(std::move(named));
  }
}

namespace {

/// What the wheel's CUDA decides: torch's own where none is named.
void take_cuda(Profile& profile, const Release& release, const std::string& text, std::vector<std::string>& notes) {
  const Version cuda = cuda_of(text).value_or(profile.cuda);
  profile.other_cuda = cuda != profile.cuda;
  profile.cuda = cuda;
  if (const auto cudnn = cudnn_of(release, cuda)) {
    profile.cudnn = *cudnn;
  } else {
    notes.push_back(fmt::format("torch {}: which cuDNN this wheel brings is not known; answered as with {}.{}",
                                one_line(text), profile.cudnn.major, profile.cudnn.minor));
  }
  if (profile.cudnn <= kLastCudnnWithout) profile.behaviors.cudnn_attention = CudnnAttention::kNowhere;
}

}  // namespace

void Profiles::set_version(Profile& profile, Software of, const std::string& text, std::vector<std::string>& notes,
                           bool lenient) const {
  const std::string option = fmt::format("--{}", name_of(of));
  const std::vector<Release>& known = releases(of);
  auto version = version_of(text);
  const std::string accepted =
      fmt::format("a version from {}, such as {}", text_of(known.front().version), text_of(known.back().version));
  if (!version) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: expected {}, found {}", option, accepted, one_line(text)), option);
  }
  // A file says what is installed, so that "==5.5" there is 5.5.0.
  if (!lenient && !names_patch(text)) version = newest_patch(known, *version);
  const Release* release = release_before(known, *version);
  const bool is_older = release == nullptr;
  if (release == nullptr && lenient) {
    release = &known.front();
    notes.push_back(fmt::format("{} {} is answered as {}: what earlier releases do is not known", name_of(of),
                                one_line(text), text_of(release->version)));
  }
  if (release == nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} {}: what releases before {} do is not known; accepted: {}", option, one_line(text),
                            text_of(first_of(known.front())), accepted),
                option, "version-not-known");
  }
  profile.version(of) = *version;
  const std::vector<WheelArchitecture>* wheels = nullptr;
  for (const Release& each : known) {
    if (each.version > release->version) break;
    for (const auto& [row, value] : each.changes) behavior_table()[row].set(profile.behaviors, value);
    if (each.cuda.known()) profile.cuda = each.cuda;
    if (each.cudnn.known()) profile.cudnn = each.cudnn;
    if (each.nccl.known()) profile.nccl = each.nccl;
    if (!each.oldest_of_cuda.empty()) wheels = &each.oldest_of_cuda;
  }
  if (of == Software::kTorch) {
    take_cuda(profile, *release, text, notes);
    take_architectures(profile, wheels == nullptr || is_older ? std::vector<WheelArchitecture>{} : *wheels);
  }
  const bool is_patch = version->major == release->version.major && version->minor == release->version.minor;
  if (!is_patch && release->version < *version) {
    notes.push_back(fmt::format("{} {} behaves as {} does: its own sources were not read", name_of(of),
                                text_of(*version), text_of(release->version)));
  }
}

Profile Profiles::choose(const VersionOptions& asked, const std::string& file, std::vector<std::string>& notes) const {
  Profile profile;
  if (asked.profile) {
    const std::string name = ascii_lower(*asked.profile);
    const auto found =
        std::find_if(named_.begin(), named_.end(), [&](const NamedProfile& p) { return p.name == name; });
    if (found == named_.end()) {
      std::string names;
      for (const NamedProfile& each : named_) names += (names.empty() ? "" : ", ") + each.name;
      throw Error(ErrorCode::kUsage,
                  fmt::format("--profile: expected one of {}, found {}", names, one_line(*asked.profile)), "--profile");
    }
    profile = found->profile;
  }
  if (!file.empty()) {
    const WrittenVersions written = versions_in(version_text(file));
    for (const WrittenVersion& each : written.found) {
      if (!asked.asked[static_cast<std::size_t>(each.of)]) set_version(profile, each.of, each.version, notes, true);
    }
    std::string taken;
    for (const WrittenVersion& each : written.found) {
      taken += fmt::format("{}{} {}", taken.empty() ? "" : ", ", name_of(each.of), one_line(each.version));
    }
    if (!taken.empty()) notes.push_back("versions as they are written down or installed: " + taken);
    notes.insert(notes.end(), written.notes.begin(), written.notes.end());
    if (written.found.empty() && !written.notes.empty()) {
      throw Error(ErrorCode::kInput, fmt::format("--versions {}: {}", one_line(file), written.notes.front()),
                  "--versions");
    }
    if (written.found.empty()) {
      throw Error(
          ErrorCode::kInput,
          fmt::format(
              "--versions {}: found none of torch, transformers, accelerate, peft, trl, bitsandbytes, "
              "liger-kernel; accepted: requirements.txt, pip freeze, uv.lock, or torch==2.11.0,transformers==5.17.0",
              one_line(file)),
          "--versions");
    }
  }
  for (std::size_t i = 0; i < kSoftwareCount; ++i) {
    if (asked.asked[i]) set_version(profile, static_cast<Software>(i), *asked.asked[i], notes);
  }
  return profile;
}

}  // namespace memcalc
