#include "support/recorded_file.h"

#include <zlib.h>

#include <array>
#include <fstream>
#include <utility>

#include "support/paths.h"

namespace memcalc::measured {

std::istringstream open_recorded(const std::filesystem::path& path) {
  const std::string packed = path.string() + ".gz";
  const gzFile file = gzopen(std::filesystem::exists(packed) ? packed.c_str() : path.c_str(), "rb");
  std::string text;
  int count = -1;
  if (file != nullptr) {
    static thread_local std::array<char, 1 << 16> buffer;
    while ((count = gzread(file, buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    gzclose(file);
  }
  std::istringstream stream(std::move(text));
  if (count < 0) stream.setstate(std::ios::failbit);  // absent, or a damaged archive
  return stream;
}

void for_each_record(const std::function<void(const std::string& file, const JsonObject& record)>& each) {
  for (const auto& entry : std::filesystem::directory_iterator(test::measured_dir())) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".jsonl") && !name.ends_with(".jsonl.gz")) continue;
    if (!name.starts_with("rows_") && name != "single_gpu.jsonl" && name != "trainer.jsonl") continue;
    std::istringstream lines = open_recorded(entry.path());
    for (std::string line; std::getline(lines, line);) each(name, JsonDocument::parse(line, name).root());
  }
  for (const auto& entry : std::filesystem::directory_iterator(test::measured_dir() / "histories")) {
    std::string path = entry.path().string();
    path.resize(path.size() - std::string(".gz").size());
    std::istringstream text = open_recorded(path);
    std::string head;
    std::getline(text, head);
    each(entry.path().filename().string(), JsonDocument::parse(head.substr(std::string("# ").size()), path).root());
  }
}

}  // namespace memcalc::measured
