#include "memcalc/spec/meant_models.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>

#include "memcalc/spec/names.h"
#include "memcalc/spec/spec_entries.h"

namespace memcalc {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::vector<std::string> numbers_in(std::string_view name) {
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (!is_digit(name[i])) continue;
    if (i == 0 || !is_digit(name[i - 1])) numbers.emplace_back();
    numbers.back() += name[i];
  }
  return numbers;
}

// "llama-3-405b" of "llama-3.1-405b": without what stands behind the dot of a release.
std::string without_minor(std::string_view name) {
  std::string text = ascii_lower(name);
  const std::size_t dot = text.find('.');
  const std::size_t end = dot == std::string::npos ? dot : text.find_first_not_of("0123456789", dot + 1);
  if (end != std::string::npos && text[end] == '-') text.erase(dot, end - dot);
  return text;
}

// Two names that differ in several numbers, or begin with another letter, are two models and no mistake in typing:
// gemma-3-4b is not gemma-2-2b, e5-large not t5-large.
bool may_be_meant(std::string_view name, std::string_view candidate) {
  const std::string typed = ascii_lower(name), known = ascii_lower(candidate);
  if (typed.empty() || known.empty() || typed.front() != known.front()) return false;
  if (known.starts_with(typed)) return true;
  const std::vector<std::string> mine = numbers_in(typed), others = numbers_in(known);
  if (mine.size() != others.size()) return without_minor(known) == typed;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) differing += mine[i] == others[i] ? 0 : 1;
  return differing <= 1;
}

// "Qwen/Qwen2.5-7B-Instruct" is "qwen2.5-7b": without the owner, and without the words for what was made of the same
// layers.
std::string bare_name(std::string_view name) {
  constexpr std::array<std::string_view, 13> kVariants = {"instruct", "it",   "chat", "base", "hf",  "gguf",   "awq",
                                                          "gptq",     "4bit", "8bit", "bnb",  "fp8", "unsloth"};
  const std::string last = ascii_lower(without_owner(name));
  std::string bare;
  for (std::size_t at = 0; at < last.size();) {
    const std::size_t end = std::min(last.find_first_of("-_", at), last.size());
    const std::string word = last.substr(at, end - at);
    if (std::find(kVariants.begin(), kVariants.end(), word) == kVariants.end())
      bare += (bare.empty() ? "" : "-") + word;
    at = end + 1;
  }
  return bare;
}

// "phi38b" of "microsoft/phi-3.8b": what is left of a name where people part its words differently.
std::string letters_of(std::string_view name) {
  std::string letters = ascii_lower(without_owner(name));
  std::erase_if(letters, [](char c) { return c == '-' || c == '_' || c == '.'; });
  return letters;
}

}  // namespace

std::vector<std::string> meant_models(const std::string& reference, const std::vector<std::string>& known) {
  const std::string wanted = bare_name(reference);
  std::map<std::string, std::string> by_bare_name;  // of several, the file's own name, which comes first
  std::vector<std::string> bare, meant;
  std::string same, longest;  // of the models with the same bare name: the first, and the longest that was typed whole
  const std::string typed = ascii_lower(without_owner(reference));
  for (const std::string& name : known) {
    const std::string each = bare_name(name);
    if (each == wanted) {
      const std::string_view last = without_owner(name);
      if (same.empty()) same = name;
      if (typed.starts_with(ascii_lower(last)) && last.size() > without_owner(longest).size()) longest = name;
      continue;
    }
    if (may_be_meant(reference, name)) meant.push_back(name);
    if (may_be_meant(wanted, each) && by_bare_name.emplace(each, name).second) bare.push_back(each);
  }
  if (!same.empty()) return {longest.empty() ? same : longest};
  std::vector<std::string> begun;  // "llama3": a name that is not whole is no other one with a mistake in it
  for (const std::string& name : known) {
    const bool is_own = name.find('/') == std::string::npos;
    if (is_own && letters_of(name).starts_with(letters_of(reference))) begun.push_back(name);
  }
  std::vector<std::string> near_begun;  // of "bert-bas", which lacks a letter
  std::copy_if(begun.begin(), begun.end(), std::back_inserter(near_begun),
               [&](const std::string& name) { return edit_distance(reference, name) <= 1; });
  constexpr std::size_t kFew = 3;
  if (!near_begun.empty() || begun.size() > kFew) return near_begun;
  if (!begun.empty()) return begun;
  // "llama-3-405b" is llama-3.1-405b, and no 70B.
  const auto is_release = [&](const std::string& name) { return without_minor(name) == typed; };
  if (std::any_of(meant.begin(), meant.end(), is_release)) std::erase_if(meant, std::not_fn(is_release));
  const std::vector<std::string> near = nearest_names(reference, meant);
  if (!near.empty()) return near;
  std::vector<std::string> result;
  for (const std::string& each : nearest_names(wanted, bare)) result.push_back(by_bare_name.at(each));
  return result;
}

std::string beginning_of_known(const std::string& reference, const std::vector<std::string>& known) {
  const auto begins = [](const std::string& name, const std::string& word) {
    return letters_of(name).starts_with(letters_of(word));
  };
  std::string word = ascii_lower(without_owner(reference));
  for (; !word.empty(); word.resize(std::min(word.find_last_of("-_"), word.size()))) {
    if (std::any_of(known.begin(), known.end(), [&](const auto& name) { return begins(name, word); })) return word;
    if (word.find_first_of("-_") == std::string::npos) break;
  }
  return "";
}

}  // namespace memcalc
