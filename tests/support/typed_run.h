// A run as it is typed: "--model gpt2 --bs 4".
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_request.h"
#include "support/paths.h"

namespace memcalc::test {

[[nodiscard]] inline RunRequest request_of(const std::vector<std::string>& words) {
  RunRequest request;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size() && !words[i + 1].starts_with("--");
    const std::string& flag = words[i];
    set_option(request, flag, has_value ? words[++i] : "");
  }
  return request;
}

[[nodiscard]] inline std::vector<std::string> words_in(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

/// Of the registry's models and cards.
[[nodiscard]] inline Question question_of(const std::vector<std::string>& words) {
  static const SpecRegistry registry(specs_dir().string());  // what all cards share is read once
  return memcalc::question_of(request_of(words), registry);
}

}  // namespace memcalc::test
