#include "files.h"

#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "arguments.h"

namespace memcalc::cli {

std::string contents_of(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return std::move(text).str();
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(one_line(path) + ": cannot be read");
  text << in.rdbuf();
  if (in.bad()) throw UsageError(one_line(path) + ": cannot be read");
  return std::move(text).str();
}

}  // namespace memcalc::cli
