// fuzz_replay CORPUS: runs every file of CORPUS/NAME/ through the target NAME, with any compiler. Exit status 1 where a
// directory has no target, or a target no file; a finding aborts, as it does under libFuzzer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "target.h"

namespace fs = std::filesystem;

namespace {

std::string contents_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_replay CORPUS\n";
    return 2;
  }
  std::map<std::string, std::size_t> replayed;
  for (const auto& [name, target] : memcalc::fuzz::targets()) replayed[name] = 0;
  for (const fs::directory_entry& directory : fs::directory_iterator(argv[1])) {
    const std::string name = directory.path().filename().string();
    const auto target = memcalc::fuzz::targets().find(name);
    if (target == memcalc::fuzz::targets().end()) {
      std::cerr << directory.path().string() << ": no target is called so\n";
      return 1;
    }
    for (const fs::directory_entry& file : fs::directory_iterator(directory)) {
      std::cerr << file.path().string() << '\n';  // the last line before a finding
      target->second(contents_of(file.path()));
      ++replayed[name];
    }
  }
  for (const auto& [name, files] : replayed) {
    std::cout << name << ": " << files << " files\n";
    if (files == 0) {
      std::cerr << name << ": has no corpus\n";
      return 1;
    }
  }
  return 0;
}
