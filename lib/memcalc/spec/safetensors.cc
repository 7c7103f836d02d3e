#include "memcalc/spec/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

constexpr std::int64_t kLengthBytes = 8;  // the length of the header, little-endian, in front of it

// Dtype of safetensors 0.6 and the two types that 0.7 added, in the order of their sizes.
constexpr std::array kStorageTypes = {
    StorageType{"BOOL", 8, DType::kBool},      StorageType{"F4", 4, std::nullopt},
    StorageType{"F6_E2M3", 6, std::nullopt},   StorageType{"F6_E3M2", 6, std::nullopt},
    StorageType{"U8", 8, DType::kUInt8},       StorageType{"I8", 8, std::nullopt},
    StorageType{"F8_E4M3", 8, std::nullopt},   StorageType{"F8_E4M3FNUZ", 8, std::nullopt},
    StorageType{"F8_E5M2", 8, std::nullopt},   StorageType{"F8_E5M2FNUZ", 8, std::nullopt},
    StorageType{"F8_E8M0", 8, std::nullopt},   StorageType{"I16", 16, std::nullopt},
    StorageType{"U16", 16, std::nullopt},      StorageType{"F16", 16, DType::kFloat16},
    StorageType{"BF16", 16, DType::kBFloat16}, StorageType{"I32", 32, DType::kInt32},
    StorageType{"U32", 32, std::nullopt},      StorageType{"F32", 32, DType::kFloat32},
    StorageType{"C64", 64, std::nullopt},      StorageType{"F64", 64, DType::kFloat64},
    StorageType{"I64", 64, DType::kInt64},     StorageType{"U64", 64, std::nullopt},
};

constexpr auto kTypeNames = [] {
  std::array<std::string_view, kStorageTypes.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kStorageTypes[i].name;
  return names;
}();

constexpr IntRange kNotNegative = {0, std::numeric_limits<std::int64_t>::max()};

Error file_error(const std::string& path, const std::string& message) {
  return {ErrorCode::kInput, shown_path(path) + ": " + message};
}

std::string bytes_text(std::uint64_t count) { return std::to_string(count) + " bytes"; }

// The two things that people have in the place of the weights.
std::string disguise_of(std::string_view first_bytes) {
  if (first_bytes == "version ") return "found a pointer of Git LFS; accepted: the file that 'git lfs pull' fetches";
  if (first_bytes.starts_with("PK\x03\x04")) return "found a zip archive, as torch.save writes; accepted: safetensors";
  return {};
}

std::string read_header_text(const std::string& path, std::int64_t& data_bytes) {
  const auto [file, size] = open_user_file(path, "a safetensors file");
  if (size == 0) throw file_error(path, "the file is empty; accepted: a safetensors file");
  std::array<char, kLengthBytes> start{};
  if (size < kLengthBytes || std::fread(start.data(), 1, start.size(), file.get()) != start.size()) {
    throw file_error(path, "found " + bytes_text(static_cast<std::uint64_t>(size)) +
                               "; accepted: a safetensors file, whose first 8 bytes hold the length of its header");
  }
  const std::string disguise = disguise_of({start.data(), start.size()});
  if (!disguise.empty()) throw file_error(path, disguise);
  std::uint64_t length = 0;
  for (std::size_t i = start.size(); i-- > 0;) length = length << 8U | static_cast<unsigned char>(start[i]);
  if (length > static_cast<std::uint64_t>(kSafetensorsMaxHeaderBytes)) {
    throw file_error(path, "found a header of " + bytes_text(length) + "; accepted: at most " +
                               bytes_text(kSafetensorsMaxHeaderBytes) + ", the limit of safetensors");
  }
  if (static_cast<std::int64_t>(length) > size - kLengthBytes) {
    throw file_error(path, "found a header of " + bytes_text(length) + " in a file of " +
                               bytes_text(static_cast<std::uint64_t>(size)) +
                               "; accepted: a whole safetensors file (it is truncated, or none)");
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  if (std::fread(text.data(), 1, text.size(), file.get()) != text.size()) {
    throw file_error(path, "cannot be read to the end of its header");
  }
  data_bytes = size - kLengthBytes - static_cast<std::int64_t>(length);
  return text;
}

// Elements and bytes of a shape; nothing where they exceed 2^63 - 1.
std::optional<std::int64_t> elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  bool overflow = false;
  for (const std::int64_t size : shape) {
    if (size == 0) return 0;  // whatever the others are
    overflow = overflow || __builtin_mul_overflow(product, size, &product);
  }
  if (overflow) return std::nullopt;
  return product;
}

struct Placed {
  WeightTensor tensor;
  JsonObject json;  // for messages
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Placed tensor_of(std::string name, const JsonObject& json) {
  const std::string type = json.required_choice("dtype", kTypeNames);
  const auto at = std::find(kTypeNames.begin(), kTypeNames.end(), type) - kTypeNames.begin();
  Placed placed{{.name = std::move(name), .type = kStorageTypes[static_cast<std::size_t>(at)]}, json};
  WeightTensor& tensor = placed.tensor;
  tensor.shape = json.required_ints("shape", kNotNegative);
  const std::vector<std::int64_t> offsets = json.required_ints("data_offsets", kNotNegative);
  if (offsets.size() != 2) throw json.error_found("data_offsets", "two integers, begin and end");
  placed.begin = offsets[0];
  placed.end = offsets[1];
  if (placed.end < placed.begin) {
    throw json.error("data_offsets", "found an end of " + std::to_string(placed.end) + " before the begin of " +
                                         std::to_string(placed.begin) + "; accepted: begin and end");
  }
  const std::optional<std::int64_t> elements = elements_of(tensor.shape);
  std::int64_t bits = 0;
  if (!elements || __builtin_mul_overflow(*elements, static_cast<std::int64_t>(tensor.type.bits), &bits)) {
    throw json.error(
        "shape", "found " + shape_text(tensor.shape) + " of " + type + "; accepted: a tensor of less than 2^63 bits");
  }
  tensor.elements = *elements;
  tensor.bytes = placed.end - placed.begin;
  if (bits % 8 != 0 || tensor.bytes != bits / 8) {
    throw json.error("data_offsets",
                     "found " + bytes_text(static_cast<std::uint64_t>(tensor.bytes)) + "; accepted: " +
                         (bits % 8 != 0 ? "a shape of whole bytes, which " : std::to_string(bits / 8) + ", which ") +
                         shape_text(tensor.shape) + " of " + type + (bits % 8 != 0 ? " is not" : " takes"));
  }
  return placed;
}

// The tensors fill the rest of the file: each begins where the one before it ends.
void check_layout(std::vector<Placed>& tensors, std::int64_t data_bytes, const std::string& path) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t end = 0;
  for (const Placed& each : tensors) {
    if (each.begin != end) {
      throw each.json.error("data_offsets", "found a begin of " + std::to_string(each.begin) + ", which " +
                                                (each.begin < end ? "overlaps the tensor before"
                                                                  : "leaves a gap behind the tensor before") +
                                                "; accepted: " + std::to_string(end) + ", where that one ends");
    }
    end = each.end;
  }
  if (end == data_bytes) return;
  throw file_error(path, "found " + bytes_text(static_cast<std::uint64_t>(data_bytes)) +
                             " behind the header; accepted: " + std::to_string(end) + ", which its tensors take (" +
                             (data_bytes < end ? "the file is truncated)" : "something follows them)"));
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  constexpr std::size_t shown = 8;  // a hostile header may name a million dimensions
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), shown); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + (shape.size() > shown ? ", …]" : "]");
}

std::vector<WeightTensor> read_safetensors_header(const std::string& path) {
  std::int64_t data_bytes = 0;
  const std::string text = read_header_text(path, data_bytes);
  const JsonDocument document = JsonDocument::parse(text, path + ": header");
  std::vector<Placed> placed;
  for (auto& [name, json] : document.root().object_members()) {
    if (name == "__metadata__") {
      static_cast<void>(json.string_members());
    } else {
      placed.push_back(tensor_of(std::move(name), json));
    }
  }
  check_layout(placed, data_bytes, path);
  std::vector<WeightTensor> tensors;
  tensors.reserve(placed.size());
  for (Placed& each : placed) tensors.push_back(std::move(each.tensor));
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return tensors;
}

}  // namespace memcalc
