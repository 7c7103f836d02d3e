// Reads a program (docs/programs.md, docs/program.schema.json).
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/flat_json.h"
#include "memcalc/spec/gzip_file.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/limits.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

using Kind = JsonNode::Kind;
using Argument = ProgramArgument;

constexpr std::string_view kFormat = "memcalc.program";
constexpr std::int64_t kVersion = 3;           // 1 had no graphs of torch.compile, 2 no passes of some sizes alone
constexpr std::int32_t kMostValues = 1 << 20;  // of one function

constexpr std::string_view kFunctions = "functions";

/// What is read: a whole file or, with its place in it, a part.
struct Source {
  const FlatJson& json;
  const std::string& file;
  std::string place{};  // "/functions/3"
};

/// A value of `source`.
class Place {
 public:
  explicit Place(const Source& source, std::uint32_t place = 0)
      : source_(&source), json_(&source.json), place_(place) {}

  [[nodiscard]] const FlatValue& node() const { return json_->at(place_); }
  [[nodiscard]] Kind kind() const { return node().kind; }
  [[nodiscard]] std::size_t size() const {
    return kind() == Kind::kArray || kind() == Kind::kObject ? static_cast<std::size_t>(node().integer) : 0;
  }
  /// Of an array, of which there are more than `i` (of a long one for_each() finds all); of an object keys and values
  /// in turn.
  [[nodiscard]] Place at(std::size_t i) const {
    std::uint32_t place = place_ + 1;
    while (i-- > 0) place = json_->at(place).end;
    return there(place);
  }
  /// The items of an array.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    expect(Kind::kArray, "an array");
    for (std::uint32_t at = place_ + 1; at < node().end; at = json_->at(at).end) visit(there(at));
  }
  /// The members of an object: key and value.
  template <typename Visit>
  void for_each_member(const Visit& visit) const {
    expect(Kind::kObject, "an object");
    for (std::uint32_t key = place_ + 1; key < node().end; key = json_->at(key + 1).end) {
      visit(json_->at(key).text, there(key + 1));
    }
  }
  [[nodiscard]] std::optional<Place> find(std::string_view key) const {
    expect(Kind::kObject, "an object");
    for (std::uint32_t at = place_ + 1; at < node().end; at = json_->at(at + 1).end) {
      if (json_->at(at).text == key) return there(at + 1);
    }
    return std::nullopt;
  }
  [[nodiscard]] Place require(std::string_view key) const {
    if (std::optional<Place> found = find(key)) return *found;
    throw error(fmt::format("the key {} is missing", key));
  }
  [[nodiscard]] Error error(std::string_view message) const {
    return {ErrorCode::kInput, fmt::format("{}: {}: {}", shown_path(file()), pointer(), message)};
  }
  void expect(Kind kind, std::string_view what) const {
    if (node().kind != kind) [[unlikely]]
      refuse(what);
  }
  [[nodiscard]] std::string_view text() const {
    expect(Kind::kString, "a string");
    return node().text;
  }
  [[nodiscard]] bool is_true() const { return kind() == Kind::kBool && node().integer != 0; }
  [[nodiscard]] std::int64_t integer(std::int64_t least = 0) const {
    expect(Kind::kInteger, "a whole number");
    if (node().integer < least) throw error(fmt::format("expected a number from {}", least));
    return node().integer;
  }
  [[nodiscard]] const std::string& file() const { return source_->file; }
  [[nodiscard]] std::uint32_t number() const { return place_; }  // in the list of values
  [[nodiscard]] const Place& array() const {
    expect(Kind::kArray, "an array");
    return *this;
  }

 private:
  [[nodiscard]] Place there(std::uint32_t place) const { return Place(*source_, place); }
  /// By itself, so that expect() is a comparison.
  [[noreturn]] void refuse(std::string_view what) const { throw error(fmt::format("expected {}", what)); }

  /// "/functions/3/body/0": sought only for a message, because each value of a program is looked at and hardly one is
  /// wrong.
  [[nodiscard]] std::string pointer() const {
    std::string text = source_->place;
    for (std::uint32_t around = 0; around != place_;) {
      const bool is_object = json_->at(around).kind == Kind::kObject;
      std::uint32_t child = around + (is_object ? 2 : 1);
      std::size_t i = 0;
      for (; json_->at(child).end <= place_; ++i) child = json_->at(child).end + (is_object ? 1 : 0);
      text.append("/").append(is_object ? std::string(json_->at(child - 1).text) : std::to_string(i));
      around = child;
    }
    return text.empty() ? "/" : text;
  }

  const Source* source_;
  const FlatJson* json_;  // its, which each look at a value takes
  std::uint32_t place_;
};

std::int32_t value_number(const Place& place) {
  const std::int64_t number = place.integer();
  if (number >= kMostValues) throw place.error("a value's number is too large");
  return static_cast<std::int32_t>(number);
}

std::vector<std::string> texts_in(const Place& place) {
  std::vector<std::string> texts;
  place.for_each([&](const Place& each) { texts.emplace_back(each.text()); });
  return texts;
}

/// A shape: numbers, and expressions in the symbols.
std::vector<Argument> sizes_in(const Place& place) {
  std::vector<Argument> sizes;
  sizes.reserve(place.size());
  place.for_each([&](const Place& size) {
    if (size.kind() == Kind::kInteger) {
      sizes.push_back({.kind = Argument::Kind::kInteger, .integer = size.integer()});
    } else {
      const std::string_view text = size.kind() == Kind::kString ? size.text() : size.require("n").text();
      sizes.push_back({.kind = Argument::Kind::kSymbolic, .text = std::string(text)});
    }
  });
  return sizes;
}

/// The last part of a function's name; with the part before, where two functions have that name.
std::string function_named(std::string_view name) {
  constexpr std::string_view kUnfold = "Tensor.unfold";  // a view; torch.nn.functional.unfold copies windows
  return std::string(name.ends_with(kUnfold) ? kUnfold : name.substr(name.rfind('.') + 1));
}

/// Reads one function: parameters are numbered in the order in which they are met.
class FunctionReader {
 public:
  explicit FunctionReader(const Place& place) : place_(place) {}

  [[nodiscard]] ProgramFunction read() {
    function_.inputs = value_number(place_.require("inputs"));
    function_.values = function_.inputs;
    if (const auto keywords = place_.find("keywords")) {
      function_.keywords = texts_in(*keywords);
      function_.values += static_cast<std::int32_t>(function_.keywords.size());
    }
    const Place body = place_.require("body");
    read_body(body);
    if (const auto results = place_.find("results")) function_.results = values_in(*results);
    return std::move(function_);
  }

 private:
  std::int32_t value(const Place& place) {
    const std::int32_t number = value_number(place);
    function_.values = std::max(function_.values, number + 1);
    return number;
  }

  std::vector<std::int32_t> values_in(const Place& place) {
    std::vector<std::int32_t> values;
    values.reserve(place.size());
    place.for_each([&](const Place& each) { values.push_back(value(each)); });
    return values;
  }

  std::vector<Argument> arguments(const Place& place) {
    std::vector<Argument> items;
    items.reserve(place.size());
    place.for_each([&](const Place& each) { items.push_back(argument(each)); });
    return items;
  }

  ProgramKeywords keywords(const Place& place) {
    ProgramKeywords items;
    items.reserve(place.size());
    place.for_each_member([&](std::string_view key, const Place& each) { items.emplace_back(key, argument(each)); });
    return items;
  }

  Argument argument(const Place& place) {
    const FlatValue& node = place.node();
    switch (node.kind) {
      case Kind::kNull: return {};
      case Kind::kBool: return {.kind = Argument::Kind::kBool, .integer = node.integer};
      case Kind::kInteger: return {.kind = Argument::Kind::kInteger, .integer = node.integer, .number = node.number};
      case Kind::kNumber: return {.kind = Argument::Kind::kNumber, .number = node.number};
      case Kind::kString: return {.kind = Argument::Kind::kText, .text = std::string(node.text)};
      case Kind::kArray: return {.kind = Argument::Kind::kList, .items = arguments(place)};
      case Kind::kObject: break;
    }
    if (place.size() != 1) throw place.error("expected an object with one key");
    const std::string_view key = place.at(0).text();
    const Place inner = place.at(1);
    if (key == "v") return {.kind = Argument::Kind::kValue, .integer = value(inner)};
    if (key == "p") return {.kind = Argument::Kind::kParameter, .integer = parameter(inner.text())};
    if (key == "d") return {.kind = Argument::Kind::kDType, .text = std::string(inner.text())};
    if (key == "n") return {.kind = Argument::Kind::kSymbolic, .text = std::string(inner.text())};
    if (key == "ellipsis") return {.kind = Argument::Kind::kEllipsis};
    if (key == "float") return {.kind = Argument::Kind::kNumber, .number = not_finite(inner)};
    if (key == "device" || key == "memory_format") {
      return {.kind = Argument::Kind::kText, .text = std::string(inner.text())};
    }
    if (key == "complex" || key == "layout" || key == "dict" || key == "object") {
      return {.kind = Argument::Kind::kObject};
    }
    if (key == "slice") return {.kind = Argument::Kind::kSlice, .items = slice(inner)};
    if (key == "list") return {.kind = Argument::Kind::kList, .items = arguments(inner.array())};
    if (key == "unbind") {
      Argument made{.kind = Argument::Kind::kUnbound, .items = arguments(inner.array())};
      if (made.items.size() != 2 || made.items[0].kind != Argument::Kind::kValue ||
          made.items[1].kind != Argument::Kind::kInteger) {
        throw inner.error("expected a value and a dimension");
      }
      return made;
    }
    if (key == "i") {
      if (inner.array().size() != 2) throw inner.error("expected a start and a step");
      return {.kind = Argument::Kind::kRun, .integer = inner.at(0).node().integer, .step = inner.at(1).node().integer};
    }
    throw place.error(fmt::format("unknown kind of argument {}", key));
  }

  /// "inf", "-inf", "nan": what JSON cannot say.
  static double not_finite(const Place& place) {
    const std::string_view text = place.text();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    return text.starts_with('-') ? -infinity : infinity;
  }

  std::vector<Argument> slice(const Place& place) {
    if (place.array().size() != 3) throw place.error("expected start, stop and step");
    return arguments(place);
  }

  std::int64_t parameter(std::string_view name) {
    std::vector<std::string>& names = function_.parameters;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return found - names.begin();
    names.emplace_back(name);
    return static_cast<std::int64_t>(names.size()) - 1;
  }

  void read_body(const Place& place) {
    function_.body.items.reserve(place.size());
    place.for_each([&](const Place& each) { read_instruction(each); });
  }

  /// The instructions of a loop: they number the values and parameters of the function around it.
  ProgramLoop loop(const Place& place) {
    if (++depth_ > kMostLoops) throw place.error("too many loops in one another");
    ProgramLoop loop{.count = argument(place.at(1)), .carries = {}, .body = std::make_shared<ProgramInstructions>()};
    place.at(2).for_each([&](const Place& each) {
      const std::vector<std::int32_t> pair = values_in(each);
      if (pair.size() != 2) throw each.error("expected two values");
      loop.carries.emplace_back(pair[0], pair[1]);
    });
    ProgramInstructions outer = std::exchange(function_.body, {});
    read_body(place.at(3));
    *loop.body = std::exchange(function_.body, std::move(outer));
    --depth_;
    return loop;
  }

  ProgramCustom custom(const Place& place) {
    ProgramCustom made{.name = std::string(place.at(1).text()),
                       .function = value_number(place.at(2)),
                       .arguments = arguments(place.at(3)),
                       .results = values_in(place.at(4))};
    if (place.size() < 6) return made;
    const Place further = place.at(5);
    const auto read = [&](const char* key, std::vector<Argument>& items) {
      if (const auto found = further.find(key)) items = arguments(*found);
    };
    const auto read_flags = [&](const char* key, std::vector<bool>& flags) {
      const auto found = further.find(key);
      if (found) found->for_each([&](const Place& each) { flags.push_back(each.is_true()); });
    };
    read("saved", made.saved);
    read("attributes", made.attributes);
    read("inputs", made.inputs);
    read_flags("needs", made.needs);
    read_flags("differentiable", made.differentiable);
    // Recorders of before did not say whose gradients these are: that backward cannot be run.
    const auto backward = further.find("backward");
    if (backward && further.find("inputs")) made.backward = value_number(*backward);
    if (const auto materialize = further.find("materialize")) made.materializes = materialize->is_true();
    return made;
  }

  static std::vector<ProgramResult> given_results(const Place& place) {
    std::vector<ProgramResult> results;
    place.for_each([&](const Place& each) {
      if (each.array().size() != 2) throw each.error("expected a shape and a dtype");
      results.push_back({sizes_in(each.at(0)), dtype_name(each.at(1))});
    });
    return results;
  }

  static std::string dtype_name(const Place& place) {
    return std::string(place.kind() == Kind::kObject ? place.require("d").text() : place.text());
  }

  void read_instruction(const Place& place) {
    if (place.array().size() == 0) throw place.error("expected an instruction");
    const std::string_view word = place.at(0).text();
    const auto need = [&](std::size_t count) {
      if (place.size() < count) throw place.error(fmt::format("{} takes {} parts", word, count - 1));
    };
    if (word == "call") {
      need(5);
      function_.body.items.emplace_back(ProgramCall{
          function_named(place.at(1).text()), arguments(place.at(2).array()), keywords(place.at(3)),
          values_in(place.at(4)), place.size() > 5 ? given_results(place.at(5)) : std::vector<ProgramResult>()});
    } else if (word == "drop") {
      need(2);
      function_.body.items.emplace_back(ProgramDrop{values_in(place.at(1))});
    } else if (word == "layer") {
      need(6);
      function_.body.items.emplace_back(ProgramLayers{.function = value_number(place.at(1)),
                                                      .path = std::string(place.at(2).text()),
                                                      .positional = arguments(place.at(3)),
                                                      .keywords = keywords(place.at(4)),
                                                      .results = values_in(place.at(5))});
    } else if (word == "layers") {
      need(8);
      ProgramLayers layers{value_number(place.at(1)), std::string(place.at(2).text()),
                           place.at(3).integer(),     place.at(4).integer(1),
                           arguments(place.at(5)),    keywords(place.at(6)),
                           values_in(place.at(7)),    place.size() > 8 && place.at(8).is_true()};
      for (const std::int32_t result : layers.results) {  // those of the last layer
        const std::int64_t last = result + (layers.count - 1) * static_cast<std::int64_t>(layers.results.size());
        if (last >= kMostValues) throw place.error("a value's number is too large");
        function_.values = std::max(function_.values, static_cast<std::int32_t>(last) + 1);
      }
      function_.body.items.emplace_back(std::move(layers));
    } else if (word == "enter") {
      need(3);
      function_.body.items.emplace_back(
          ProgramModule{std::string(place.at(1).text()), std::string(place.at(2).text())});
    } else if (word == "leave") {
      function_.body.items.emplace_back(ProgramModule{});
    } else if (word == "autocast") {
      need(4);
      const bool on_card = place.at(1).kind() != Kind::kString || place.at(1).text().starts_with("cuda");
      const Place dtype = place.at(3);
      // A region of another device's autocast changes nothing here.
      function_.body.items.emplace_back(ProgramRegion{.begins = true,
                                                      .enabled = on_card ? place.at(2).is_true() : true,
                                                      .dtype = dtype.kind() == Kind::kNull ? "" : dtype_name(dtype)});
    } else if (word == "autocast_end") {
      function_.body.items.emplace_back(ProgramRegion{ProgramRegion::Kind::kAutocast, false, false, ""});
    } else if (word == "grad" || word == "set_grad") {
      need(2);
      function_.body.items.emplace_back(
          ProgramRegion{ProgramRegion::Kind::kGradients, true, place.at(1).is_true(), ""});
    } else if (word == "grad_end") {
      function_.body.items.emplace_back(ProgramRegion{ProgramRegion::Kind::kGradients, false, false, ""});
    } else if (word == "loop") {
      need(4);
      ProgramLoop made = loop(place);
      function_.body.items.emplace_back(std::move(made));
    } else if (word == "checkpoint") {
      need(6);
      function_.body.items.emplace_back(ProgramCheckpoint{place.at(1).is_true(), value_number(place.at(2)),
                                                          arguments(place.at(3)), keywords(place.at(4)),
                                                          values_in(place.at(5))});
    } else if (word == "graph") {
      function_.body.items.emplace_back(ProgramGraph{});
    } else if (word == "break") {
      need(2);
      function_.body.items.emplace_back(ProgramGraph{false, std::string(place.at(1).text())});
    } else if (word == "custom") {
      need(5);
      function_.body.items.emplace_back(custom(place));
    } else {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: the instruction '{}' of a program is not modelled", shown_path(place.file()), word));
    }
  }

  static constexpr int kMostLoops = 8;

  Place place_;
  ProgramFunction function_;
  int depth_ = 0;
};

/// Without its name.
ProgramTensor tensor_of(const Place& place) {
  ProgramTensor tensor{.shape = sizes_in(place.require("shape")), .dtype = std::string(place.require("dtype").text())};
  if (const auto frozen = place.find("frozen")) tensor.frozen = frozen->is_true();
  if (const auto device = place.find("device")) tensor.on_host = device->text() == "cpu";
  return tensor;
}

constexpr std::int64_t kMostRepeats = 100'000;

/// Visits the items of a list in which equal layers stand once: {"repeat": "model.layers.{}", "first": 0, "count": 32,
/// "items": [...]}. `visit(item, prefix)`: what stands before its name.
template <typename Visit>
void for_each_item(const Place& place, const std::string& prefix, std::int64_t& left, const Visit& visit) {
  place.for_each([&](const Place& item) {
    const auto repeat = item.find("repeat");
    if (!repeat) {
      if (--left < 0) throw item.error("too many items");
      visit(item, prefix);
      return;
    }
    const std::string path(repeat->text());
    const std::int64_t first = item.require("first").integer(), count = item.require("count").integer(1);
    for (std::int64_t layer = first; layer < first + count; ++layer) {
      for_each_item(item.require("items"), prefix + path_of_layer(path, layer) + ".", left, visit);
    }
  });
}

std::string joined(const std::string& prefix, std::string_view name) {
  if (name.empty() && !prefix.empty()) return prefix.substr(0, prefix.size() - 1);
  std::string path;
  path.reserve(prefix.size() + name.size());
  return path.append(prefix).append(name);
}

std::vector<ProgramTensor> tensors_in(const Place& place) {
  std::vector<ProgramTensor> tensors;
  std::unordered_map<std::uint32_t, std::size_t> read;  // by place, which layers share: the tensor of the first
  std::int64_t left = kMostRepeats;
  for_each_item(place, "", left, [&](const Place& item, const std::string& prefix) {
    const std::string_view name = item.require("name").text();
    const auto [first, is_new] = read.emplace(item.number(), tensors.size());
    tensors.push_back(is_new ? tensor_of(item) : ProgramTensor(tensors[first->second]));
    tensors.back().name = joined(prefix, name);
  });
  return tensors;
}

std::vector<ProgramConstruction> construction_in(const Place& place) {
  std::vector<ProgramConstruction> construction;
  std::int64_t left = kMostRepeats;
  std::int32_t others = 0;  // that the module does not keep
  for_each_item(place, "", left, [&](const Place& item, const std::string& prefix) {
    ProgramConstruction& made = construction.emplace_back();
    if (const auto freed = item.find("freed")) {
      freed->for_each([&](const Place& each) {
        made.freed.push_back(value_number(each));
        if (made.freed.back() >= others) throw each.error("there is no such tensor yet");
      });
    } else if (const auto shape = item.find("shape")) {
      made.shape = sizes_in(*shape);
      made.dtype = item.require("dtype").text();
      ++others;
    } else {
      made.name = joined(prefix, item.require("name").text());
      if (made.name.empty()) throw item.error("expected a name");
    }
  });
  return construction;
}

std::vector<std::pair<std::string, std::string>> modules_in(const Place& place) {
  std::vector<std::pair<std::string, std::string>> modules;
  std::int64_t left = kMostRepeats;
  for_each_item(place, "", left, [&](const Place& item, const std::string& prefix) {
    modules.emplace_back(joined(prefix, item.require("name").text()), item.require("class").text());
  });
  return modules;
}

std::vector<std::pair<std::string, std::string>> names_in(const Place& place) {
  std::vector<std::pair<std::string, std::string>> names;
  place.for_each_member([&](std::string_view key, const Place& name) { names.emplace_back(key, name.text()); });
  return names;
}

/// Numbers of values in the lists and objects of a forward's outputs, in order.
void collect(const Place& place, std::vector<std::int32_t>& values) {
  if (place.kind() == Kind::kInteger) {
    values.push_back(value_number(place));
  } else if (place.kind() == Kind::kArray) {
    place.for_each([&](const Place& each) { collect(each, values); });
  } else if (place.kind() == Kind::kObject && place.find("stride")) {  // alike for each layer
    std::vector<std::int32_t> first;
    collect(place.require("first"), first);
    const std::int64_t stride = place.require("stride").integer(), count = place.require("count").integer();
    if (count > kMostRepeats || stride > kMostValues) throw place.error("too many values");
    for (std::int64_t i = 0; i < count; ++i) {
      for (const std::int32_t value : first) values.push_back(static_cast<std::int32_t>(value + i * stride));
    }
  } else if (place.kind() == Kind::kObject) {
    place.for_each_member([&](std::string_view /*key*/, const Place& each) { collect(each, values); });
  }
}

ProgramForward forward_of(const Place& place) {
  ProgramForward forward;
  forward.training = place.require("mode").text() == "train";
  if (const auto told = place.find("checkpointing")) forward.checkpointing = told->is_true();
  if (const auto cache = place.find("cache")) forward.cache = cache->is_true();
  if (const auto runs = place.find("runs")) {
    const std::vector<std::string> ways = texts_in(*runs);
    const auto has = [&](const char* way) { return std::find(ways.begin(), ways.end(), way) != ways.end(); };
    forward.runs_eagerly = has("eager");
    forward.runs_compiled = has("compiled");
  }
  if (const auto graphs = place.find("graphs")) forward.graphs = graphs->integer();
  if (const auto inputs = place.find("inputs")) forward.inputs = texts_in(*inputs);
  if (const auto precisions = place.find("precisions")) forward.precisions = texts_in(*precisions);
  for (const char* key : {"at", "not_at"}) {
    const auto sizes = place.find(key);
    if (!sizes) continue;
    sizes->for_each_member([&](std::string_view symbol, const Place& size) {
      forward.sizes.push_back({std::string(symbol), size.integer(), std::string_view(key) == "at"});
    });
  }
  forward.function = value_number(place.require("function"));
  if (const auto outputs = place.find("outputs")) {
    std::vector<std::int32_t> cached;
    outputs->for_each_member([&](std::string_view name, const Place& output) {
      if (name == "loss") return collect(output, forward.loss);
      std::vector<std::int32_t> values;
      collect(output, values);
      if (name == "past_key_values") {  // its list of layers dies from its end
        cached.assign(values.rbegin(), values.rend());
      } else {
        forward.outputs.insert(forward.outputs.end(), values.begin(), values.end());
      }
    });
    forward.cached = cached.size();
    forward.outputs.insert(forward.outputs.end(), cached.begin(), cached.end());
  }
  if (const auto held = place.find("held")) collect(*held, forward.held);
  return forward;
}

std::string source_of(const Place& place) {
  std::string text;
  place.for_each_member([&](std::string_view key, const Place& each) {
    if (each.kind() != Kind::kString) return;
    if (!text.empty()) text += ", ";
    if (key != "class") text.append(key).append(" ");
    text += each.text();
  });
  return text;
}

ProgramFunctions functions_in(const Place& place, const std::shared_ptr<const FlatJson>& json) {
  std::vector<std::uint32_t> places;
  places.reserve(place.size());
  place.for_each([&](const Place& each) { places.push_back(each.number()); });
  const std::size_t count = places.size();
  return {count, [json, file = place.file(), places = std::move(places)](std::size_t i) {
            if (!json->at(places[i]).is_unread) {
              const Source source{*json, file};
              return FunctionReader(Place(source, places[i])).read();
            }
            const FlatJson read = json->read_later(places[i], i, file);
            const Source source{read, file, fmt::format("/{}/{}", kFunctions, i)};
            return FunctionReader(Place(source)).read();
          }};
}

}  // namespace

std::string path_of_layer(const std::string& path, std::int64_t index) {
  const std::size_t at = path.find("{}");
  return at == std::string::npos ? path : path.substr(0, at) + std::to_string(index) + path.substr(at + 2);
}

std::string read_program_text(const std::string& path) {
  if (!path.ends_with(".gz")) return read_user_file(path, "a program", kMostJsonBytes);
  return read_gzip_file(path, "a program", kMostJsonBytes);
}

bool is_program_file(const JsonObject& json) {
  return json.has("format") && json.optional_string("format") == std::string(kFormat);
}

Program read_program(const JsonObject& json) {
  return read_program(std::make_shared<const FlatJson>(json.node()), json.file());
}

Program read_program(std::string text, const std::string& file) {
  return read_program(std::make_shared<const FlatJson>(FlatJson::parse(std::move(text), file, kFunctions)), file);
}

Program read_program(std::shared_ptr<const FlatJson> json, const std::string& file) {
  const Source source{*json, file};
  const Place root(source);
  if (root.require("format").text() != kFormat) throw root.error(fmt::format("expected the format {}", kFormat));
  if (const std::int64_t version = root.require("version").integer(); version < 1 || version > kVersion) {
    throw root.error(fmt::format("version {} of the format; this memcalc reads 1 to {}", version, kVersion));
  }
  Program program;
  program.name = root.require("name").text();
  if (const auto source = root.find("source")) program.source = source_of(*source);
  if (const auto task = root.find("task")) program.task = task->text();
  if (const auto shifts = root.find("loss_shifts_labels")) program.loss_shifts_labels = shifts->is_true();
  if (const auto width = root.find("hidden_size")) program.hidden_size = width->integer(1);
  if (const auto caches = root.find("caches_in_trainer")) program.caches_in_trainer = caches->is_true();
  if (const auto symbols = root.find("symbols")) {
    symbols->for_each_member([&](std::string_view name, const Place& symbol) {
      ProgramSymbol made{.name = std::string(name), .recorded = symbol.require("default").integer(1), .fixed = {}};
      if (const auto minimum = symbol.find("minimum")) made.minimum = minimum->integer();
      if (const auto maximum = symbol.find("maximum")) made.maximum = maximum->integer(1);
      if (const auto multiple = symbol.find("multiple")) made.multiple = multiple->integer(1);
      if (const auto fixed = symbol.find("fixed"); fixed && fixed->is_true()) {
        const auto reason = symbol.find("reason");
        made.fixed = reason ? reason->text() : "recorded at one size";
      }
      program.symbols.push_back(std::move(made));
    });
  }
  program.inputs = tensors_in(root.require("inputs"));
  program.parameters = tensors_in(root.require("parameters"));
  if (const auto buffers = root.find("buffers")) program.buffers = tensors_in(*buffers);
  if (const auto converted = root.find("converted")) program.converted = converted->is_true();
  if (const auto construction = root.find("construction")) program.construction = construction_in(*construction);
  if (const auto constants = root.find("constants")) {
    for (ProgramTensor& constant : tensors_in(*constants)) program.constants.push_back(std::move(constant));
  }
  if (const auto tied = root.find("tied")) program.tied = names_in(*tied);
  if (const auto modules = root.find("modules")) program.modules = modules_in(*modules);
  program.functions = functions_in(root.require(kFunctions), json);
  const Place forwards = root.require("forwards");
  forwards.for_each([&](const Place& each) { program.forwards.push_back(forward_of(each)); });
  if (program.forwards.empty()) throw root.error("there is no forward pass");
  if (const auto assumptions = root.find("assumptions")) {
    assumptions->for_each([&](const Place& each) {
      const std::string_view policy = each.require("policy").text();
      if (std::find(program.assumptions.begin(), program.assumptions.end(), policy) == program.assumptions.end()) {
        program.assumptions.emplace_back(policy);
      }
    });
  }
  if (const auto reason = root.find("not_compiled")) program.not_compiled = reason->text();
  relate_parts(program);
  return program;
}

}  // namespace memcalc
