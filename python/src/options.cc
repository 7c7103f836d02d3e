#include "options.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "errors.h"
#include "values.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

struct List {
  const char* keyword;
  FieldGroup group;
  const char* description;
};
constexpr List kListOptions[] = {
    {"megatron", FieldGroup::kMegatron, "Megatron's own arguments: name or name=value, …"},
    {"deepspeed", FieldGroup::kDeepSpeed, "its zero_optimization: name=value, …"},
};

/// Rows that are keywords: not what estimate() takes by itself (model, card), nor what stands in a list.
bool is_keyword(const Field& field) {
  return field.group != FieldGroup::kMegatron && field.group != FieldGroup::kDeepSpeed && field.key != "gpu" &&
         field.key != "model" && field.key != "arch";
}

const char* type_of(FieldType type) {
  switch (type) {
    case FieldType::kWhole: return "int";
    case FieldType::kNumber: return "float";
    case FieldType::kFlag: return "bool";
    case FieldType::kName:
    case FieldType::kText: return "str";
    case FieldType::kTexts: return "Sequence[str]";
    case FieldType::kWholes: return "Sequence[int]";
  }
  return "object";
}

std::vector<std::int64_t> wholes_from(const std::string& keyword, py::handle value, std::int64_t least) {
  if (py::isinstance<py::str>(value) || !py::isinstance<py::sequence>(value)) {
    refuse(keyword, "a sequence of whole numbers", value);
  }
  std::vector<std::int64_t> wholes;
  for (const py::handle each : value) wholes.push_back(whole_from(keyword, each, least));
  return wholes;
}

FieldValue value_from(const Field& field, py::handle value) {
  const std::string keyword(field.key);
  switch (field.type) {
    case FieldType::kWhole: return whole_from(keyword, value, static_cast<std::int64_t>(field.least));
    case FieldType::kNumber: return number_from(keyword, value);
    case FieldType::kFlag: return truth_from(keyword, value);
    case FieldType::kName:
    case FieldType::kText: return text_from(keyword, "a text", value);
    case FieldType::kTexts:
      // peft's word for every linear layer is a text by itself.
      if (field.key == "lora_targets" && py::isinstance<py::str>(value))
        return parse_field(field, value.cast<std::string>());
      return texts_from(keyword, value);
    case FieldType::kWholes: return wholes_from(keyword, value, static_cast<std::int64_t>(field.least));
  }
  return false;
}

// {"swiglu": True, "recompute-num-layers": 2}, or ["swiglu", "recompute-num-layers=2"] as the command line has it.
void read_list(const List& list, py::handle value, RunRequest& request) {
  if (!py::isinstance<py::dict>(value)) {
    set_list(request, list.group, join(texts_from(list.keyword, value), ","));
    return;
  }
  std::string text;
  for (const auto& [name, each] : py::reinterpret_borrow<py::dict>(value)) {
    const std::string said =
        py::isinstance<py::bool_>(each) ? (each.cast<bool>() ? "true" : "false") : py::str(each).cast<std::string>();
    text += (text.empty() ? "" : ",") + py::str(name).cast<std::string>() + "=" + said;
  }
  set_list(request, list.group, text);
}

[[noreturn]] void refuse_unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Field& field : run_fields()) {
    if (is_keyword(field)) names.emplace_back(field.key);
  }
  for (const List& list : kListOptions) names.emplace_back(list.keyword);
  const std::string meant = did_you_mean(name, names);
  throw OptionError(name, "unknown option '" + one_line(name) + "'" + meant, meant.empty() ? "unknown-option" : "");
}

}  // namespace

std::string keyword_of(const std::string& part) {
  const std::string flag = part.substr(0, part.find(' '));
  if (!flag.starts_with("--")) return part;
  const Field* field = find_field(flag);
  return field != nullptr ? std::string(field->key) : flag.substr(2);
}

std::string part_of_message(const std::string& message) {
  const std::size_t colon = message.find(": ");
  const std::size_t quote = message.find('\'');
  const std::size_t end = quote == std::string::npos ? quote : message.find('\'', quote + 1);
  if (quote < colon && end != std::string::npos) return message.substr(quote + 1, end - quote - 1);
  const std::string start = colon == std::string::npos ? "" : message.substr(0, colon);
  return start.find(' ') == std::string::npos ? start : "";
}

RunRequest read_options(const py::dict& given) {
  std::unordered_map<std::string_view, std::string> seen;  // key: as it was spelled
  std::vector<std::pair<const Field*, py::handle>> found;
  RunRequest request;
  for (const auto& [name_object, value] : given) {
    const std::string name = py::str(name_object).cast<std::string>();
    const auto* list = std::find_if(std::begin(kListOptions), std::end(kListOptions),
                                    [&](const List& each) { return name == each.keyword; });
    if (list != std::end(kListOptions)) {
      if (!value.is_none()) read_list(*list, value, request);
      continue;
    }
    const Field* field = find_field(name);
    if (field == nullptr || !is_keyword(*field)) refuse_unknown(name);
    if (const auto [other, fresh] = seen.emplace(field->key, name); !fresh) {
      throw OptionError(name, name + " and " + other->second + " are the same: give one");
    }
    if (!value.is_none()) found.emplace_back(field, value);
  }
  std::sort(found.begin(), found.end());  // in the table's order
  for (const auto& [field, value] : found) set_field(request, *field, value_from(*field, value));
  return request;
}

py::list option_table() {
  py::list table;
  for (const Field& field : run_fields()) {
    if (!is_keyword(field)) continue;
    std::string help(field.help);
    std::replace(help.begin(), help.end(), '\n', ' ');
    if (!field.negative_help.empty()) help += "; False: " + std::string(field.negative_help);
    table.append(py::make_tuple(std::string(field.key), std::string(field.flag), type_of(field.type), help));
  }
  for (const List& list : kListOptions) {
    table.append(py::make_tuple(list.keyword, std::string("--") + list.keyword, "Sequence[str] | Mapping[str, object]",
                                list.description));
  }
  return table;
}

py::list size_keywords() {
  py::list names;
  for (const Field& field : run_fields()) {
    if (field.group == FieldGroup::kArchitecture && is_keyword(field)) names.append(std::string(field.key));
  }
  return names;
}

}  // namespace memcalc::python
