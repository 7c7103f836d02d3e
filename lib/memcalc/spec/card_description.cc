#include "memcalc/spec/card_description.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/base/number_text.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

constexpr std::string_view kExpected =
    "a name, memory and compute capability, and bandwidth, rate and multiprocessors where they are known: "
    "\"mine,24GB,sm89,1008GB/s,165TFLOPS,128SM\"";

/// Of a card's nominal gigabytes torch reports so much: 0.98 to 0.99 on 11 cards of specs/gpus (RTX 3090 to 5090,
/// A100, H100), 0.91 to 0.92 where ECC takes part of GDDR memory (T4, L4, A10G).
constexpr double kReported = 0.985;

struct Described {
  std::string name;
  std::optional<double> memory_gib;
  bool nominal = false;  // "GB"
  std::optional<int> capability;
  std::optional<double> bytes_per_second, flops_per_second, multiprocessors;
};

Error error_of(std::string_view text, std::string_view part) {
  return {ErrorCode::kUsage,
          fmt::format("--card: expected {}; found '{}' in '{}'", kExpected, one_line(part), one_line(text)), "--card",
          "card-description"};
}

/// "165TFLOPS": 165 and "tflops".
struct Quantity {
  double value = 0;
  std::string unit;
};
std::optional<Quantity> quantity_of(std::string_view part) {
  Quantity quantity;
  const auto [rest, error] = parse_number(part.data(), part.data() + part.size(), quantity.value);
  if (error != std::errc{} || !(quantity.value > 0) || quantity.value > 1e6) return std::nullopt;
  quantity.unit = ascii_lower(std::string(rest, part.data() + part.size()));
  return quantity;
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string_view part = text.substr(at, end - at);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.push_back(part);
    at = end + 1;
  }
  return parts;
}

/// Whether the part is of this unit; a second one of a kind is none.
bool take(std::optional<double>& place, const Quantity& quantity, std::string_view unit, double factor) {
  if (quantity.unit != unit || place) return false;
  place = quantity.value * factor;
  return true;
}

bool take_capability(std::string_view part, Described& card) {
  const std::string lower = ascii_lower(std::string(part));
  if (!lower.starts_with("sm") || card.capability) return false;
  std::string digits = lower.substr(lower.starts_with("sm_") ? 3 : 2);
  std::erase(digits, '.');
  int value = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || rest != digits.data() + digits.size() || value < 50 || value > 999) return false;
  card.capability = value;
  return true;
}

bool take_part(std::string_view part, Described& card) {
  if (take_capability(part, card)) return true;
  const std::optional<Quantity> quantity = quantity_of(part);
  if (!quantity) return false;
  card.nominal = card.nominal || quantity->unit == "gb";
  return take(card.memory_gib, *quantity, "gb", 1) || take(card.memory_gib, *quantity, "gib", 1) ||
         take(card.bytes_per_second, *quantity, "gb/s", 1e9) || take(card.bytes_per_second, *quantity, "tb/s", 1e12) ||
         take(card.flops_per_second, *quantity, "tflops", 1e12) ||
         take(card.flops_per_second, *quantity, "tflop/s", 1e12) || take(card.multiprocessors, *quantity, "sm", 1) ||
         take(card.multiprocessors, *quantity, "sms", 1);
}

Described described(std::string_view text) {
  const std::vector<std::string_view> parts = parts_of(text);
  Described card{.name = std::string(parts.front())};
  if (card.name.empty() || take_part(parts.front(), card)) throw error_of(text, parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (!take_part(parts[i], card)) throw error_of(text, parts[i]);
  }
  if (!card.memory_gib) throw error_of(text, "no memory (24GB)");
  if (!card.capability) throw error_of(text, "no compute capability (sm89)");
  return card;
}

double half_rate(const DeviceSpec& card) { return std::max(card.bf16_flops_per_second, card.fp16_flops_per_second); }

int capability_of(const DeviceSpec& card) { return static_cast<int>(architecture_of(card)); }

/// Of the known cards the one with the nearest compute capability that is not higher, and among those with the
/// nearest rate, else the nearest memory.
const DeviceSpec& nearest(std::span<const DeviceSpec> known, const Described& card, std::string_view text) {
  const auto distance = [&](const DeviceSpec& each) {
    const bool rated = card.flops_per_second && half_rate(each) > 0;
    const double mine = rated ? *card.flops_per_second : static_cast<double>(bytes_of_gib(*card.memory_gib));
    const double its = rated ? half_rate(each) : static_cast<double>(each.memory_bytes);
    return std::abs(std::log(mine / its));
  };
  const DeviceSpec* best = nullptr;
  for (const DeviceSpec& each : known) {
    if (!is_cuda(each) || each.multiprocessors == 0) continue;
    if (capability_of(each) > *card.capability || each.name.find("mig") != std::string::npos) continue;
    const int gain = best == nullptr ? 1 : capability_of(each) - capability_of(*best);
    if (gain > 0 || (gain == 0 && distance(each) < distance(*best))) best = &each;
  }
  if (best == nullptr) throw error_of(text, fmt::format("sm{}, older than every known card", *card.capability));
  return *best;
}

}  // namespace

std::string capability_text(const DeviceSpec& card) {
  return fmt::format("{}.{}", card.compute_capability_major, card.compute_capability_minor);
}

DeviceSpec card_from_description(std::string_view text, std::span<const DeviceSpec> known) {
  const Described card = described(text);
  const DeviceSpec& like = nearest(known, card, text);
  DeviceSpec device;
  device.name = card.name;
  device.description = std::string(text);
  device.memory_bytes = bytes_of_gib(*card.memory_gib * (card.nominal ? kReported : 1));
  device.compute_capability_major = *card.capability / 10;
  device.compute_capability_minor = *card.capability % 10;
  device.max_threads_per_multiprocessor = like.max_threads_per_multiprocessor;
  // What is not said of bandwidth and rate stays unknown, and then no time is given.
  device.memory_bandwidth_bytes_per_second = card.bytes_per_second.value_or(0);
  const double share = card.flops_per_second && half_rate(like) > 0 ? *card.flops_per_second / half_rate(like) : 0;
  device.bf16_flops_per_second = share * like.bf16_flops_per_second;
  device.fp16_flops_per_second = share * like.fp16_flops_per_second;
  device.tf32_flops_per_second = share * like.tf32_flops_per_second;
  device.fp32_flops_per_second = share * like.fp32_flops_per_second;
  device.pcie_bytes_per_second = like.pcie_bytes_per_second;
  const double scaled = std::max(1.0, std::round((share > 0 ? share : 1) * like.multiprocessors));
  device.multiprocessors = static_cast<int>(card.multiprocessors.value_or(scaled));
  device.source = "--card";
  if (card.nominal) {
    device.assumptions.push_back(fmt::format(
        "of {:g} GB torch reports {:.1f} GiB, as of most cards (with ECC in GDDR memory 8 % less; say GiB for what it "
        "reports)",
        *card.memory_gib, in_gib(device.memory_bytes)));
  }
  device.assumptions.push_back(
      fmt::format("{} behaves as {}, the nearest known card of compute capability {}.{}: {}{}cuBLAS workspaces, PCIe",
                  card.name, like.name, like.compute_capability_major, like.compute_capability_minor,
                  card.multiprocessors ? "" : fmt::format("{} multiprocessors, ", device.multiprocessors),
                  share > 0 ? "rates of float32 and TF32 in proportion, " : ""));
  return device;
}

}  // namespace memcalc
