// Writes safetensors files for tests: right ones, and every wrong one, since the header is given as text.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace memcalc::test {

/// `length` in front of the header, if it is not the header's own.
inline std::string safetensors_bytes(const std::string& header, std::uint64_t data_bytes, std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFFU);
  return bytes + header + std::string(data_bytes, '\0');
}
inline std::string safetensors_bytes(const std::string& header, std::uint64_t data_bytes) {
  return safetensors_bytes(header, data_bytes, header.size());
}

/// {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
inline std::string tensor_json(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}";
}

/// A folder of its own for one test.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("memcalc_" + std::to_string(::getpid()) + "_" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string str() const { return path_.string(); }

  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace memcalc::test
