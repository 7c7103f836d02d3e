#include "memcalc/spec/measured_memory.h"

#include <array>
#include <cstdint>

namespace memcalc {
namespace {

constexpr std::array<std::string_view, 9> kFileKeys = {
    "measured_on", "context_bytes", "kernel_bytes", "kernel_bytes_with_cudnn", "nccl", "placement",
    "versions",    "how",           "date"};
constexpr std::array<std::string_view, 3> kVersionKeys = {"driver", "cuda", "torch"};

constexpr std::array<std::string_view, 3> kPlacementKeys = {"chunk_granularity_bytes", "initial_fragments",
                                                            "reserved_span"};
constexpr std::array<std::string_view, 2> kSpanKeys = {"offset_bytes", "size_bytes"};

SegmentPlacement::Span span_of(const JsonObject& json) {
  json.refuse_unknown_keys(kSpanKeys);
  return {.offset = json.required_int("offset_bytes", {-kByteRange.max, kByteRange.max}),
          .size = json.required_int("size_bytes", kPositiveBytes)};
}

constexpr std::array<std::string_view, 11> kNcclKeys = {"version",
                                                        "library_bytes",
                                                        "first_kernel_bytes",
                                                        "broadcast_kernel_bytes",
                                                        "send_receive_kernel_bytes",
                                                        "granularity_bytes",
                                                        "channels",
                                                        "p2p_channels",
                                                        "channels_alone",
                                                        "source",
                                                        "date"};

NcclMemory nccl_memory_of(const JsonObject& json) {
  json.refuse_unknown_keys(kNcclKeys);
  constexpr IntRange channels = {1, 64};
  (void)json.required_string("source");
  (void)json.required_string("date");
  return {.version = json.required_string("version"),
          .library_bytes = json.required_int("library_bytes", kByteRange),
          .first_kernel_bytes = json.required_int("first_kernel_bytes", kByteRange),
          .broadcast_kernel_bytes = json.required_int("broadcast_kernel_bytes", kByteRange),
          .send_receive_kernel_bytes = json.required_int("send_receive_kernel_bytes", kByteRange),
          .granularity_bytes = json.required_int("granularity_bytes", kPositiveBytes),
          .channels = json.required_int("channels", channels),
          .p2p_channels = json.required_int("p2p_channels", channels),
          .channels_alone = json.required_int("channels_alone", channels)};
}

SegmentPlacement placement_of(const JsonObject& json) {
  json.refuse_unknown_keys(kPlacementKeys);
  SegmentPlacement placement;
  placement.chunk_granularity = json.required_int("chunk_granularity_bytes", kPositiveBytes);
  for (const JsonObject& fragment : json.optional_objects("initial_fragments")) {
    placement.initial_fragments.push_back(span_of(fragment));
  }
  if (const std::optional<JsonObject> span = json.nullable_object("reserved_span")) {
    placement.reserved_span = span_of(*span);
  }
  return placement;
}

}  // namespace

std::span<const std::string_view> measured_memory_keys() { return kFileKeys; }

void read_memory_figures(const JsonObject& json, DeviceSpec& device) {
  device.context_bytes = json.optional_int("context_bytes", kByteRange);
  device.kernel_bytes = json.optional_int("kernel_bytes", kByteRange);
  device.kernel_bytes_with_cudnn = json.optional_int("kernel_bytes_with_cudnn", kByteRange);
  if (const std::optional<JsonObject> nccl = json.nullable_object("nccl")) device.nccl = nccl_memory_of(*nccl);
  if (const std::optional<JsonObject> placement = json.nullable_object("placement")) {
    device.placement = placement_of(*placement);
  }
}

void read_measured_memory(const JsonObject& json, DeviceSpec& device) {
  json.refuse_unknown_keys(kFileKeys);
  (void)json.required_string("measured_on");
  (void)json.required_string("how");
  (void)json.required_string("date");
  read_memory_figures(json, device);
  const JsonObject versions = json.required_object("versions");
  versions.refuse_unknown_keys(kVersionKeys);
  device.measured_torch = versions.required_string("torch");
  device.validated = true;
}

}  // namespace memcalc
