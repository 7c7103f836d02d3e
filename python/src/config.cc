#include "config.h"

#include <pybind11/stl.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/memcalc.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

using Typed = std::vector<std::pair<std::string, std::string>>;  // keyword, and its value as text

constexpr std::string_view kLists[] = {"--megatron", "--deepspeed"};

bool is_list(std::string_view flag) { return flag == kLists[0] || flag == kLists[1]; }

std::vector<ConfigOption> options_of(const Typed& typed) {
  std::vector<ConfigOption> options;
  for (const auto& [keyword, text] : typed) {
    const Field* field = find_field(keyword);
    options.push_back({field != nullptr ? std::string(field->flag) : "--" + keyword, text, ""});
  }
  return options;
}

// An option as a keyword and its value: ("--bs", "4") is batch_size=4, ("--no-prepare-kbit", "") prepare_kbit=False.
void put(py::dict& keywords, const ConfigOption& option) {
  if (is_list(option.flag)) {
    py::list names;
    for (std::size_t at = 0; at < option.text.size();) {
      const std::size_t end = std::min(option.text.find(',', at), option.text.size());
      names.append(option.text.substr(at, end - at));
      at = end + 1;
    }
    keywords[py::str(option.flag.substr(2))] = names;
    return;
  }
  const Field* field = find_field(option.flag);
  const py::str key(field->key.data(), field->key.size());
  if (field->type == FieldType::kFlag) {
    keywords[key] = py::bool_(option.flag == field->flag);
    return;
  }
  std::visit([&](const auto& value) { keywords[key] = py::cast(value); }, parse_field(*field, option.text));
}

py::dict dict_of(const ConfigFile& file) {
  py::dict options, irrelevant, approximated;
  for (const ConfigOption& each : file.options) put(options, each);
  for (const ConfigKey& key : file.keys) {
    if (key.use == KeyUse::kIrrelevant) irrelevant[py::str(key.key)] = key.why;
    if (key.use == KeyUse::kApproximated) approximated[py::str(key.key)] = key.why;
  }
  py::dict all;
  all["file"] = file.file;
  all["format"] = file.format;
  all["program"] = file.program;
  all["options"] = options;
  all["used"] = keys_of(file, KeyUse::kUsed);
  all["irrelevant"] = irrelevant;
  all["approximated"] = approximated;
  all["left_out"] = keys_of(file, KeyUse::kLeftOut);
  all["notes"] = file.notes;
  return all;
}

}  // namespace

void add_config(py::module_& m) {
  m.def(
      "read_config",
      [](const std::string& path, const std::string& format, const std::vector<std::string>& without,
         const Typed& typed) {
        return dict_of(config_beside(memcalc::read_config({path, format, without}), options_of(typed)));
      },
      py::arg("path"), py::arg("format"), py::arg("without"), py::arg("typed"));
  m.def(
      "read_command_line",
      [](const std::vector<std::string>& words, const std::vector<std::string>& without, const Typed& typed) {
        return dict_of(config_beside(memcalc::read_command_line(words, without), options_of(typed)));
      },
      py::arg("words"), py::arg("without"), py::arg("typed"));
}

}  // namespace memcalc::python
