#include "memcalc/spec/weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

// transformers' SAFE_WEIGHTS_NAME and SAFE_WEIGHTS_INDEX_NAME, in the order in which it looks for them.
constexpr std::string_view kStandardNames[] = {"model.safetensors", "model.safetensors.index.json"};

bool is_there(const fs::path& path) {
  std::error_code status;
  return fs::exists(fs::symlink_status(path, status));  // a link that leads nowhere is there, and refused when read
}

Error path_error(const std::string& path, const std::string& message) {
  return {ErrorCode::kInput, shown_path(path) + ": " + message};
}

// A shard lies in the directory of its index or below it.
bool stays_within(const fs::path& shard) {
  return !shard.empty() && shard.is_relative() && std::find(shard.begin(), shard.end(), "..") == shard.end();
}

void add_file(Weights& weights, const std::string& path) {
  std::vector<WeightTensor> tensors = read_safetensors_header(path);
  for (WeightTensor& tensor : tensors) {
    weights.parameters = checked_add(weights.parameters, tensor.elements);
    weights.bytes = checked_add(weights.bytes, tensor.bytes);
    weights.tensors.push_back(std::move(tensor));
  }
  weights.files.push_back(path);
}

// {"metadata": {…}, "weight_map": {"tensor": "model-00001-of-00002.safetensors"}}. Like transformers, all tensors of
// the shards that it names are read, those that it does not mention included.
Weights read_index(const std::string& path) {
  const JsonDocument document = JsonDocument::read_file(path);
  const JsonObject map = document.root().required_object("weight_map");
  const std::vector<std::pair<std::string, std::string>> shard_of = map.string_members();
  if (shard_of.empty()) throw document.root().error_found("weight_map", "at least one tensor");
  std::map<std::string, std::string> first_tensor;  // of each shard, for messages; sorted as transformers sorts them
  for (const auto& [tensor, shard] : shard_of) first_tensor.emplace(shard, tensor);

  Weights weights{.path = path};
  std::map<std::string, std::string> found_in;  // each tensor's shard
  for (const auto& [shard, tensor] : first_tensor) {
    if (!stays_within(shard) || !shard.ends_with(kFileSuffix)) {
      throw map.error_found(tensor, "a safetensors file in the directory of the index");
    }
    const std::string file = (fs::path(path).parent_path() / shard).string();
    if (!is_there(file)) {
      throw map.error(tensor, "found \"" + one_line(shard) + "\", which is not there; accepted: a file that is");
    }
    const std::size_t before = weights.tensors.size();
    add_file(weights, file);
    for (std::size_t i = before; i < weights.tensors.size(); ++i) {
      const auto [at, is_new] = found_in.emplace(weights.tensors[i].name, shard);
      if (is_new) continue;
      throw path_error(file, "found tensor \"" + one_line(at->first) + "\", which is in " + one_line(at->second) +
                                 ", too; accepted: each tensor once");
    }
  }
  for (const auto& [tensor, shard] : shard_of) {
    const auto at = found_in.find(tensor);
    if (at != found_in.end() && at->second == shard) continue;
    throw map.error(tensor, "found \"" + one_line(shard) + "\"; accepted: the file that holds this tensor");
  }
  return weights;
}

Weights read_file(const std::string& path) {
  if (path.ends_with(".json")) return read_index(path);
  Weights weights{.path = path};
  add_file(weights, path);
  return weights;
}

std::vector<std::string> safetensors_in(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code status;
  for (fs::directory_iterator entry(directory, status), end; !status && entry != end; entry.increment(status)) {
    if (entry->path().extension() == kFileSuffix) files.push_back(entry->path().string());
  }
  if (status) throw path_error(directory, "cannot be read: " + status.message());
  return files;
}

// The only safetensors file of a directory that has none under a standard name.
std::string single_file(const std::string& directory) {
  const std::vector<std::string> files = safetensors_in(directory);
  if (files.size() == 1) return files.front();
  if (files.empty()) throw path_error(directory, "found no safetensors file; accepted: a directory with weights");
  throw path_error(directory, "found " + std::to_string(files.size()) +
                                  " safetensors files, none of them model.safetensors, and no "
                                  "model.safetensors.index.json; accepted: the path of one of them");
}

}  // namespace

std::vector<WeightTypeTotal> totals_by_type(const Weights& weights) {
  std::vector<WeightTypeTotal> totals;
  for (const WeightTensor& tensor : weights.tensors) {
    auto at = std::find_if(totals.begin(), totals.end(), [&](const auto& each) { return each.type == tensor.type; });
    if (at == totals.end()) at = totals.insert(at, {.type = tensor.type});
    ++at->tensors;
    at->parameters += tensor.elements;
    at->bytes += tensor.bytes;
  }
  std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return totals;
}

std::optional<DType> loading_dtype(const Weights& weights) {
  for (const WeightTensor& tensor : weights.tensors) {
    if (tensor.type.dtype && is_floating(*tensor.type.dtype)) return tensor.type.dtype;
  }
  return std::nullopt;
}

bool is_named_like_weights(std::string_view path) {
  return path.ends_with(kFileSuffix) || path.ends_with(kIndexSuffix);
}

std::optional<std::string> find_weights(const std::string& directory) {
  for (const std::string_view name : kStandardNames) {
    const fs::path path = fs::path(directory) / name;
    if (is_there(path)) return path.string();
  }
  return std::nullopt;
}

bool holds_weights(const std::string& directory) { return !safetensors_in(directory).empty(); }

Weights read_weights(const std::string& path) {
  std::error_code status;
  if (!fs::is_directory(path, status)) return read_file(path);
  const std::optional<std::string> found = find_weights(path);
  return read_file(found ? *found : single_file(path));
}

}  // namespace memcalc
