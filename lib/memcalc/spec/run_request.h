// RunRequest: all that a person asks of an estimate, on any face: the model and its sizes, the run, the card, the data.
// A row of the table in run_fields_table.cc sets each of its members. Question: what follows from it.
// Covered by tests/unit/run_fields_test.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/spec/architecture_changes.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/time_options.h"

namespace memcalc {

/// What is said of a card beside its name.
struct CardOptions {
  std::string description;                // "mine,24GB,sm89,1008GB/s,165TFLOPS" in place of a name; --card
  std::optional<double> memory_gib;       // in place of the specification's; --memory
  double margin_gib = 0;                  // of its memory, to stay free; --margin
  std::optional<double> power_watts;      // its limit, below the specification's; --power-limit
  std::optional<double> host_memory_gib;  // of each host, in place of the card's usual host's; --host-memory
};

struct RunRequest {
  std::string model;                        // registry name or path; --model
  std::string family;                       // a family by itself; --arch
  ArchitectureChanges changes;              // --layers, --hidden, …
  std::optional<std::int64_t> images;       // of each sequence; --images
  std::optional<std::int64_t> image_width;  // pixels, where it is not the height; --image-width
  RunOptions run;                           // its `inference` is made of the next two by resolve()
  bool infer = false;                       // --infer
  Inference inference;                      // --new-tokens, --beams, --kv-cache-dtype; only with --infer
  std::string gpu;                          // registry name or path; empty: the assumed card; --gpu
  CardOptions card;
  TimeOptions time;
  VersionOptions versions;                 // take_versions() makes the profile of `run` of them
  std::string version_file;                // or a text that names versions itself; --versions
  std::vector<std::string> version_notes;  // of take_versions()
  std::vector<std::size_t> given;          // rows of run_fields() that were set to more than what holds anyway
};

/// Makes the profile of the versions that are asked for; what is not known of them becomes a note. Throws
/// Error(kUsage).
void take_versions(RunRequest& request, const SpecRegistry& registry);

/// Fills the defaults, as resolve() of RunOptions does, and refuses what was given and does not exist in the run, so
/// that nothing is ignored in silence. Throws Error(kUsage, kUnsupported).
[[nodiscard]] ResolvedRun resolve_request(const ModelSpec& model, const RunRequest& request);

/// Everything that an estimate needs.
struct Question {
  ModelSpec model;
  ResolvedRun run;
  DeviceSpec device;
  bool device_assumed = false;  // no card was named
  TimeOptions time;
};

/// The card whose behaviour is assumed where none is named: the one that the project has measured most.
inline constexpr const char* kAssumedDevice = "h100-sxm";

/// A card as its options change it; each change is told of. Throws Error(kUsage) for a margin that leaves nothing
/// and a power limit that the times of the card do not go down to.
[[nodiscard]] DeviceSpec with_card_options(DeviceSpec device, const CardOptions& options, const SpecRegistry& registry);

/// The card that is asked for, else the assumed one. Throws Error(kUsage, kInput).
[[nodiscard]] DeviceSpec device_of(const RunRequest& request, const SpecRegistry& registry);

/// Finds the model and the card, and resolves the run. Throws Error(kUsage, kInput, kUnsupported).
[[nodiscard]] Question question_of(const RunRequest& request, const SpecRegistry& registry);

/// Of --host-memory, else of the usual host of the card; no bytes: neither is known.
[[nodiscard]] HostSize host_size_of(const CardOptions& options, const DeviceSpec& device, const SpecRegistry& registry);

/// The model alone.
[[nodiscard]] ModelSpec model_of(const RunRequest& request, const SpecRegistry& registry);

/// A model that is there already with the images that the request shows it. They are kept with the model, whose inputs
/// follow from them; to a model without images the rows do not exist, and what was given is refused by resolve_request.
[[nodiscard]] ModelSpec with_images(ModelSpec model, const RunRequest& request);

}  // namespace memcalc
