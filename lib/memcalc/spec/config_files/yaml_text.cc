#include "memcalc/spec/config_files/yaml_text.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/config_text.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

// The longest file of the tools' own examples has 150 keys. An alias of an alias of an alias … would have no end.
constexpr std::size_t kMostNodes = 100'000;
constexpr int kMostDepth = 64;

[[noreturn]] void refuse(const std::string& file, const std::string& message) {
  throw Error(ErrorCode::kInput, shown_path(file) + ": " + message, file);
}

class YamlReader {
 public:
  explicit YamlReader(const std::string& file) : file_(file) {}

  JsonNode read(const YAML::Node& yaml, int depth) {
    const int line = yaml.Mark().line + 1;
    if (++nodes_ > kMostNodes || depth > kMostDepth) {
      refuse(file_, fmt::format("line {}: nested too deeply, or too many values (at most {})", line, kMostNodes));
    }
    if (yaml.IsMap()) return read_map(yaml, depth);
    if (yaml.IsSequence()) {
      JsonNode node;
      node.kind = JsonNode::Kind::kArray;
      for (const YAML::Node& each : yaml) {
        JsonNode child = read(each, depth + 1);
        child.key = std::to_string(node.children.size());
        node.children.push_back(std::move(child));
      }
      return node;
    }
    if (!yaml.IsScalar()) return {};
    if (yaml.Tag() != "?" && !yaml.Tag().empty()) {  // "!": in quotes
      JsonNode node;
      node.kind = JsonNode::Kind::kString;
      node.text = yaml.Scalar();
      return node;
    }
    return plain_scalar(yaml.Scalar());
  }

 private:
  JsonNode read_map(const YAML::Node& yaml, int depth) {
    JsonNode node;
    node.kind = JsonNode::Kind::kObject;
    std::set<std::string> seen;
    for (const auto& pair : yaml) {
      const int line = pair.first.Mark().line + 1;
      if (!pair.first.IsScalar()) refuse(file_, fmt::format("line {}: a key is a name, not a list or mapping", line));
      const std::string& key = pair.first.Scalar();
      if (!seen.insert(key).second) {
        refuse(file_, fmt::format("line {}: the key '{}' stands there a second time", line, one_line(key)));
      }
      JsonNode child = read(pair.second, depth + 1);
      child.key = key;
      node.children.push_back(std::move(child));
    }
    return node;
  }

  const std::string& file_;
  std::size_t nodes_ = 0;
};

}  // namespace

JsonNode parse_yaml(std::string_view text, const std::string& file) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.empty()) return {};
    if (documents.size() > 1)
      refuse(file, fmt::format("{} YAML documents in one file; one is accepted", documents.size()));
    return YamlReader(file).read(documents.front(), 0);
  } catch (const YAML::Exception& error) {
    refuse(file, error.mark.is_null() ? fmt::format("not YAML: {}", one_line(error.msg))
                                      : fmt::format("line {}: not YAML: {}", error.mark.line + 1, one_line(error.msg)));
  }
}

}  // namespace memcalc
