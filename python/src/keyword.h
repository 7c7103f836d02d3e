// A keyword of memcalc.estimate(), and what makes one from an option of the command line: a line of the table in
// options.cc is a call of whole(), number(), truth(), texts(), choice() or special().
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "options.h"
#include "values.h"

namespace memcalc::python {

struct Keyword {
  std::string name;         // "batch_size"
  std::string flag;         // "--bs": what it is called on the command line
  std::string type;         // in Python
  std::string description;  // shape, unit, default
  std::function<void(pybind11::handle, Options&)> set;
  bool is_size = false;  // of the model, rather than how it is trained
};

/// "--lora-targets" is lora_targets unless a longer name is given.
[[nodiscard]] inline std::string keyword_of(std::string_view flag) {
  std::string keyword(flag.substr(2));
  for (char& c : keyword) c = c == '-' ? '_' : c;
  return keyword;
}

/// A line of the table: the option, what sets it, its description, and its keyword where that is not the option's name.
/// A place is a member of RunOptions, or a function from Options to a reference.
template <typename Place>
auto& at(Options& options, Place place) {
  if constexpr (std::is_invocable_v<Place, Options&>) {
    return std::invoke(place, options);
  } else {
    return options.run.*place;
  }
}

template <typename Place>
Keyword whole(const char* flag, Place place, const char* description, std::string name = "", std::int64_t least = 1) {
  if (name.empty()) name = keyword_of(flag);
  return {name, flag, "int", description,
          [=](pybind11::handle value, Options& o) { at(o, place) = whole_from(name, value, least); }};
}

template <typename Place>
Keyword number(const char* flag, Place place, const char* description, std::string name = "") {
  if (name.empty()) name = keyword_of(flag);
  return {name, flag, "float", description,
          [=](pybind11::handle value, Options& o) { at(o, place) = number_from(name, value); }};
}

template <typename Place>
Keyword truth(const char* flag, Place place, const char* description, std::string name = "") {
  if (name.empty()) name = keyword_of(flag);
  return {name, flag, "bool", description,
          [=](pybind11::handle value, Options& o) { at(o, place) = truth_from(name, value); }};
}

template <typename Place>
Keyword texts(const char* flag, Place place, const char* description, std::string name = "") {
  if (name.empty()) name = keyword_of(flag);
  return {name, flag, "Sequence[str]", description,
          [=](pybind11::handle value, Options& o) { at(o, place) = texts_from(name, value); }};
}

template <typename Enum, typename Place, std::size_t kSize>
Keyword choice(const char* flag, Place place, const std::array<std::string_view, kSize>& names, const char* description,
               std::string name = "") {
  if (name.empty()) name = keyword_of(flag);
  return {name, flag, "str", description,
          [=](pybind11::handle value, Options& o) { at(o, place) = choice_from<Enum>(name, value, names); }};
}

template <typename Set>
Keyword special(const char* flag, const char* type, Set set, const char* description) {
  return {keyword_of(flag), flag, type, description, set};
}

/// A member of RunOptions::parallel.
template <typename Value>
auto of_parallel(Value Parallel::*place) {
  return [=](Options & o) -> auto& { return o.run.parallel.*place; };
}

}  // namespace memcalc::python
