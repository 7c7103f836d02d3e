#include "memcalc/spec/contexts.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/json_reader.h"

namespace memcalc {
namespace {

constexpr IntRange kMib = {1, 1 << 16};

/// The middle between both, and how far they are from it.
AssumedContext between(Bytes least, Bytes most, std::string source) {
  return {.bytes = (least + most) / 2, .error = (most - least) / 2, .source = std::move(source)};
}

}  // namespace

Contexts read_contexts(const std::string& path) {
  constexpr std::array<std::string_view, 4> kKeys = {"description", "date", "cards", "other_cards"};
  constexpr std::array<std::string_view, 5> kCardKeys = {"card", "least_mib", "most_mib", "messages", "source"};
  constexpr std::array<std::string_view, 4> kOtherKeys = {"bytes_per_resident_thread", "least", "most", "source"};
  constexpr IntRange kPerThread = {1, 1 << 20};
  const JsonDocument document = JsonDocument::read_file(path);
  document.root().refuse_unknown_keys(kKeys);
  Contexts contexts;
  for (const JsonObject& row : document.root().optional_objects("cards")) {
    row.refuse_unknown_keys(kCardKeys);
    contexts.cards.push_back({row.required_string("card"), row.required_int("least_mib", kMib) * kMiB,
                              row.required_int("most_mib", kMib) * kMiB});
  }
  const JsonObject others = document.root().required_object("other_cards");
  others.refuse_unknown_keys(kOtherKeys);
  contexts.per_thread = {"", others.required_int("least", kPerThread), others.required_int("most", kPerThread)};
  contexts.usual_per_thread = others.required_int("bytes_per_resident_thread", kPerThread);
  return contexts;
}

AssumedContext assumed_context(const Contexts& contexts, const DeviceSpec& device) {
  Bytes largest = 0;
  for (const Contexts::Range& row : contexts.cards) {
    if (row.card == device.name) return between(row.least, row.most, "out-of-memory messages of this card");
    largest = std::max(largest, row.most);
  }
  const Bytes threads = Bytes{device.multiprocessors} * device.max_threads_per_multiprocessor;
  if (threads == 0 || !is_cuda(device)) {
    return between(0, 2 * largest, "the most that was seen on other cards");
  }
  AssumedContext assumed = between(threads * contexts.per_thread.least, threads * contexts.per_thread.most,
                                   "out-of-memory messages of other cards, by the threads that can be resident");
  assumed.bytes = threads * contexts.usual_per_thread;
  return assumed;
}

}  // namespace memcalc
