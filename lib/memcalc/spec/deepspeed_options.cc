#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/deepspeed_spec.h"
#include "memcalc/spec/names.h"

namespace memcalc {

namespace {

[[noreturn]] void refuse(std::string_view name, std::string_view found, std::string_view accepted) {
  throw Error(ErrorCode::kUsage, "--deepspeed " + std::string(name) + ": expected " + std::string(accepted) +
                                     ", found " +
                                     (found.empty() ? std::string("nothing") : "\"" + one_line(found) + "\""));
}

/// "500000000" or, as people write it, "5e8".
std::int64_t elements(std::string_view name, std::string_view value, std::int64_t least) {
  constexpr double kMost = 1e15;
  const std::string accepted = "a whole number from " + std::to_string(least) + ", as 500000000 or 5e8";
  double result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size()) refuse(name, value, accepted);
  if (!(result >= static_cast<double>(least)) || result > kMost || std::floor(result) != result) {
    refuse(name, value, accepted);
  }
  return static_cast<std::int64_t>(result);
}

bool truth(std::string_view name, std::string_view value) {
  if (value != "true" && value != "false") refuse(name, value, "true or false");
  return value == "true";
}

using Set = void (*)(DeepSpeedOptions& options, std::string_view name, std::string_view value);

struct Argument {
  std::string_view name;
  Set set;
};

template <std::int64_t DeepSpeedOptions::*kMember, std::int64_t kLeast>
void set_elements(DeepSpeedOptions& options, std::string_view name, std::string_view value) {
  options.*kMember = elements(name, value, kLeast);
}

constexpr Argument kArguments[] = {
    {"overlap_comm",
     [](DeepSpeedOptions& o, std::string_view name, std::string_view value) { o.overlap_comm = truth(name, value); }},
    {"reduce_bucket_size", set_elements<&DeepSpeedOptions::reduce_bucket_size, 1>},
    {"stage3_max_live_parameters", set_elements<&DeepSpeedOptions::max_live_parameters, 0>},
    {"stage3_max_reuse_distance", set_elements<&DeepSpeedOptions::max_reuse_distance, 0>},
    {"stage3_param_persistence_threshold", set_elements<&DeepSpeedOptions::param_persistence_threshold, 0>},
    {"stage3_prefetch_bucket_size", set_elements<&DeepSpeedOptions::prefetch_bucket_size, 0>},
    {"sub_group_size", set_elements<&DeepSpeedOptions::sub_group_size, 1>},
};

const Argument& find(std::string_view name) {
  std::vector<std::string> names;
  for (const Argument& each : kArguments) {
    if (each.name == name) return each;
    names.emplace_back(each.name);
  }
  throw Error(ErrorCode::kUsage, "--deepspeed: unknown name \"" + one_line(name) + "\"" + did_you_mean(name, names));
}

}  // namespace

DeepSpeedOptions parse_deepspeed_options(std::string_view list) {
  DeepSpeedOptions options;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    const std::size_t equals = item.find('=');
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    const std::string_view name = item.substr(0, equals);
    find(name).set(options, name, value);
  }
  return options;
}

}  // namespace memcalc
