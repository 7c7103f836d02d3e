#include "memcalc/spec/contexts.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "memcalc/spec/json_reader.h"

namespace memcalc {
namespace {

constexpr IntRange kMib = {1, 1 << 16};

/// The middle between both, and how far they are from it.
AssumedContext between(Bytes least, Bytes most, std::string source) {
  return {.bytes = (least + most) / 2, .error = (most - least) / 2, .source = std::move(source)};
}

}  // namespace

void assume_context(const std::string& path, DeviceSpec& device) {
  constexpr std::array<std::string_view, 4> kKeys = {"description", "date", "cards", "other_cards"};
  constexpr std::array<std::string_view, 5> kCardKeys = {"card", "least_mib", "most_mib", "messages", "source"};
  constexpr std::array<std::string_view, 4> kOtherKeys = {"bytes_per_resident_thread", "least", "most", "source"};
  const JsonDocument document = JsonDocument::read_file(path);
  document.root().refuse_unknown_keys(kKeys);
  Bytes largest = 0;
  for (const JsonObject& row : document.root().optional_objects("cards")) {
    row.refuse_unknown_keys(kCardKeys);
    const Bytes least = row.required_int("least_mib", kMib) * kMiB, most = row.required_int("most_mib", kMib) * kMiB;
    largest = std::max(largest, most);
    if (row.required_string("card") != device.name) continue;
    device.assumed_context = between(least, most, "out-of-memory messages of this card");
    return;
  }
  const JsonObject others = document.root().required_object("other_cards");
  others.refuse_unknown_keys(kOtherKeys);
  constexpr IntRange kPerThread = {1, 1 << 20};
  const Bytes threads = Bytes{device.multiprocessors} * device.max_threads_per_multiprocessor;
  if (threads > 0 && device.compute_capability_major > 0) {
    device.assumed_context =
        between(threads * others.required_int("least", kPerThread), threads * others.required_int("most", kPerThread),
                "out-of-memory messages of other cards, by the threads that can be resident");
    device.assumed_context->bytes = threads * others.required_int("bytes_per_resident_thread", kPerThread);
  } else {
    device.assumed_context = between(0, 2 * largest, "the most that was seen on other cards");
  }
}

}  // namespace memcalc
