#include "memcalc/spec/published_rates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "memcalc/spec/card_description.h"
#include "memcalc/spec/carried_rates.h"
#include "memcalc/spec/json_reader.h"

namespace memcalc {

namespace {

constexpr double kTera = 1e12;
constexpr DoubleRange kTeraFlops = {1e-3, 1e6};
constexpr DoubleRange kShares = {1e-3, 10};

/// Of a datasheet's FLOP/s; absent: nobody published it.
struct Shares {
  std::optional<double> half, tf32, float32;
};

double half_datasheet(const DeviceSpec& device) {
  return device.bf16_flops_per_second > 0 ? device.bf16_flops_per_second : device.fp16_flops_per_second;
}

std::optional<double> share_of(const JsonObject& json, std::string_view key, double datasheet) {
  const std::optional<double> tera = json.optional_double(key, kTeraFlops);
  if (!tera || datasheet <= 0) return std::nullopt;
  return *tera * kTera / datasheet;
}

Shares shares_of_card(const JsonObject& card, const DeviceSpec& device) {
  return {.half = share_of(card, "half_tflops", half_datasheet(device)),
          .tf32 = share_of(card, "tf32_tflops", device.tf32_flops_per_second),
          .float32 = share_of(card, "float32_tflops", device.fp32_flops_per_second)};
}

/// How many times as fast as float32 the tensor cores are: GeForce cards' sum in float32 at half the rate of a
/// workstation's.
std::int64_t tensor_over_float32(const DeviceSpec& device) {
  return std::lround(half_datasheet(device) / device.fp32_flops_per_second);
}

/// The median of the cards of the same compute capability and of tensor cores alike.
Shares shares_of_group(const JsonObject& products, const DeviceSpec& device) {
  if (device.fp32_flops_per_second <= 0) return {};
  const std::string capability = capability_text(device);
  for (const JsonObject& group : products.optional_objects("groups")) {
    if (group.required_string("compute_capability") != capability) continue;
    if (group.required_int("tensor_over_float32", {1, 1000}) != tensor_over_float32(device)) continue;
    return {.half = group.optional_double("half_share", kShares),
            .tf32 = group.optional_double("tf32_share", kShares),
            .float32 = group.optional_double("float32_share", kShares)};
  }
  return {};
}

/// Of a card that nobody timed what its power allows, where cards of its compute capability are known to be limited so.
/// `most`: a share of the datasheet.
std::optional<double> share_by_power(const JsonObject& products, const DeviceSpec& device, double most) {
  for (const JsonObject& each : products.optional_objects("power_limits")) {
    if (each.required_string("compute_capability") != capability_text(device)) continue;
    const auto times = each.optional_int("tensor_over_float32", {1, 1000});
    if (times && (device.fp32_flops_per_second <= 0 || *times != tensor_over_float32(device))) continue;
    const double watts = each.required_double("watts", {1, 1e5});
    if (device.power_watts <= 0 || device.power_watts >= watts) continue;
    const double tera = each.required_double("half_tflops", kTeraFlops) *
                        std::pow(device.power_watts / watts, each.required_double("exponent", {0.01, 1}));
    return std::min(most, tera * kTera / half_datasheet(device));
  }
  return std::nullopt;
}

/// A group's shares for one of it that has less power: whatever the type, by as much.
void limit_by_power(const JsonObject& products, const DeviceSpec& device, double reference_half, Shares& group) {
  const std::optional<double> limited = share_by_power(products, device, group.half.value_or(reference_half));
  if (!limited) return;
  const double less = group.half ? *limited / *group.half : 1;
  group.half = limited;
  if (group.tf32) *group.tf32 *= less;
  if (group.float32) *group.float32 *= less;
}

/// The same of the card whose rates are carried over.
struct Reference {
  double half, tf32, float32;
};

Reference reference_of(const JsonObject& products, bool float16, bool mamf) {
  const JsonObject json = products.required_object("reference");
  const char* const half = mamf ? "mamf_half_share" : float16 ? "float16_share" : "half_share";
  return {.half = json.required_double(half, kShares),
          .tf32 = json.required_double("tf32_share", kShares),
          .float32 = json.required_double("float32_share", kShares)};
}

/// The median of the card's compute capability.
ProductShares types_without_units(const JsonObject& products, const DeviceSpec& device) {
  for (const JsonObject& group : products.optional_objects("without_units")) {
    if (group.required_string("compute_capability") != capability_text(device)) continue;
    return {.bf16_over_float32 = group.required_double("bf16_over_float32", kShares),
            .fp16_over_float32 = group.optional_double("fp16_over_float32", kShares).value_or(0)};
  }
  return {};
}

/// The same of the card itself, where its products were published.
void set_types_without_units(const JsonObject& card, ProductShares& shares) {
  const double float32 = card.optional_double("float32_tflops", kTeraFlops).value_or(0);
  const auto set = [&](std::string_view key, double& share) {
    if (const auto own = card.optional_double(key, kTeraFlops); own && float32 > 0) share = *own / float32;
  };
  set("bf16_tflops", shares.bf16_over_float32);
  set("fp16_tflops", shares.fp16_over_float32);
}

/// `limited`: the power limit is applied to each step instead.
ProductShares product_shares(const JsonObject& products, const DeviceSpec& device, bool limited) {
  Shares shares;
  ProductShares result = types_without_units(products, device);
  bool mamf = false;
  for (const JsonObject& card : products.optional_objects("cards")) {
    if (card.required_string("name") != device.name) continue;
    shares = shares_of_card(card, device);
    mamf = card.optional_string("benchmark").value_or("") == "mamf";
    result.of_card = true;
    set_types_without_units(card, result);
  }
  Shares group = shares_of_group(products, device);
  const Reference reference = reference_of(products, device.bf16_flops_per_second <= 0, mamf);
  if (!limited) limit_by_power(products, device, reference.half, group);
  const auto over = [](std::optional<double> own, std::optional<double> others, double measured) {
    const std::optional<double> share = own ? own : others;
    return share ? *share / measured : 1;
  };
  result.half = over(shares.half, group.half, reference.half);
  result.tf32 = over(shares.tf32, group.tf32, reference.tf32);
  result.float32 = over(shares.float32, group.float32, reference.float32);
  return result;
}

/// Flash attention as a part of the card's best product, so that one number serves cards of different power limits. An
/// assumption: memory-efficient attention in 16 bits, whose kernels have no instructions of Hopper's either, is as much
/// nearer to it than an H100's.
void set_flash_attention(const JsonObject& json, const DeviceSpec& device, double reference_half, DeviceRates& rates) {
  const std::vector<std::string> capabilities = json.optional_strings("compute_capabilities");
  const std::string own = std::to_string(device.compute_capability_major);
  if (std::find(capabilities.begin(), capabilities.end(), own) == capabilities.end()) return;
  constexpr double kWidth = 128;  // of the heads that were measured
  const double ramp = kWidth / (kWidth + rates.flash.head);
  const auto set = [&](std::string_view key, double& flash, double& efficient) {
    const double carried = flash;
    flash = json.required_double(key, {0.01, 1}) * reference_half / ramp;
    efficient *= flash / carried;
  };
  set("forward", rates.flash.forward, rates.efficient.forward);
  set("backward", rates.flash.backward, rates.efficient.backward);
}

/// Memory-bound kernels of a card whose copies were published: each as much slower or faster than carried over as they.
void scale_memory_bound(const JsonObject& json, const DeviceSpec& device, DeviceRates& rates) {
  const double reference = json.required_double("reference_share", kShares);
  for (const JsonObject& each : json.optional_objects("cards")) {
    const std::vector<std::string> names = each.optional_strings("names");
    if (std::find(names.begin(), names.end(), device.name) == names.end()) continue;
    const double carried = carried_bandwidth(rates.scaling, reference, device.memory_bandwidth_bytes_per_second,
                                             static_cast<double>(device.multiprocessors));
    const double factor = each.required_double("share", kShares) / carried;
    for (MemoryRates* const group : memory_bound_groups(rates)) group->bandwidth *= factor;
  }
}

bool names(const JsonObject& json, const DeviceSpec& device) {
  const std::vector<std::string> cards = json.optional_strings("cards");
  return std::find(cards.begin(), cards.end(), device.name) != cards.end();
}

void replace(const JsonObject& json, DeviceRates& rates) {
  visit_rates(rates, [&](const char* group, const char* name, double& value) {
    if (!json.has(group)) return;
    const JsonObject of_group = json.required_object(group);
    if (of_group.has(name)) value = of_group.required_double(name, {1e-12, 1e15});
  });
}

}  // namespace

void add_published_rates(const std::string& path, DeviceSpec& device, DeviceRates& rates) {
  const JsonDocument document = JsonDocument::read_file(path);
  const JsonObject products = document.root().required_object("products");
  // Another card's power says nothing: what others published of this one is of its limit.
  const auto power = document.root().nullable_object("power");
  const bool limited = power && names(*power, device);
  if (!limited) rates.power = {};
  device.product_shares = product_shares(products, device, limited);
  scale_memory_bound(document.root().required_object("memory"), device, rates);
  set_flash_attention(document.root().required_object("flash_attention"), device,
                      reference_of(products, false, false).half, rates);
  for (const JsonObject& each : document.root().optional_objects("rates")) {
    if (!names(each, device)) continue;
    replace(each, rates);
    rates.published_source = each.required_string("source");
    if (each.has("half")) device.product_shares.half = 1;
  }
}

}  // namespace memcalc
