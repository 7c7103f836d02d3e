#include "memcalc/spec/spec_entries.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "memcalc/spec/json_node.h"
#include "memcalc/spec/user_file.h"
#include "memcalc/spec/weights.h"

namespace memcalc {

namespace fs = std::filesystem;

bool is_plain_name(std::string_view reference) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !reference.empty() && reference.front() != '.' && !reference.ends_with(".json") &&
         !is_named_like_weights(reference) && reference.find_first_not_of(allowed) == std::string_view::npos;
}

std::vector<fs::path> files_of(const std::vector<std::string>& directories, std::string_view folder) {
  std::vector<fs::path> files;
  for (const std::string& directory : directories) {
    std::vector<fs::path> here;
    std::error_code status;
    for (fs::directory_iterator entry(fs::path(directory) / folder, status), end; !status && entry != end;
         entry.increment(status)) {
      if (entry->path().native().ends_with(".json")) here.push_back(entry->path());
    }
    std::sort(here.begin(), here.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    files.insert(files.end(), here.begin(), here.end());
  }
  return files;
}

std::vector<std::string> other_names(const JsonObject& json) {
  std::vector<std::string> names = json.optional_strings("aliases");
  for (const char* key : {"stands_for", "text_of", "part_of"}) {
    for (std::string& name : json.optional_strings(key)) names.push_back(std::move(name));
  }
  return names;
}

std::string_view without_owner(std::string_view name) { return name.substr(name.rfind('/') + 1); }  // npos + 1 == 0

bool is_among(const std::vector<std::string>& names, const std::string& reference,
              std::string (*spelled)(std::string_view)) {
  const std::string wanted = spelled(reference);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return spelled(name) == wanted || spelled(without_owner(name)) == wanted;
  });
}

namespace {

// The file that names.tsv of a directory of specs (scripts/spec_names) gives for `reference`, if the file says so, too:
// a list that is out of date costs time and is never believed. Without it all files of the folder are opened, some 700.
std::optional<fs::path> listed_entry(const std::string& directory, std::string_view folder,
                                     const std::string& reference) {
  const fs::path list = fs::path(directory) / "names.tsv";
  if (!is_file(list)) return std::nullopt;
  const std::string text = read_text_file(list.string());  // lines of "folder/name in small letters, tab, file"
  const std::string line = "\n" + std::string(folder) + "/" + ascii_lower(reference) + "\t";
  const std::size_t at = text.find(line);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t file = at + line.size();
  fs::path path = fs::path(directory) / folder / (text.substr(file, text.find('\n', file) - file) + ".json");
  if (!is_file(path) || !is_among(other_names(JsonDocument::read_file(path.string()).root()), reference)) return {};
  return path;
}

}  // namespace

std::optional<fs::path> find_entry(const std::vector<std::string>& directories, std::string_view folder,
                                   const std::string& reference) {
  if (is_plain_name(reference)) {
    for (const std::string& directory : directories) {
      fs::path path = fs::path(directory) / folder / (ascii_lower(reference) + ".json");
      if (is_file(path)) return path;
    }
  }
  if (directories.size() == 1) {  // of several an earlier one may have the name, too
    if (std::optional<fs::path> path = listed_entry(directories.front(), folder, reference)) return path;
  }
  std::optional<fs::path> nearly;
  const std::string letters = folded_name(without_owner(reference));
  for (const fs::path& path : files_of(directories, folder)) {
    // To parse all files takes ten times as long as to look for the name's letters in them. Escapes hide letters.
    const std::string text = read_text_file(path.string());
    if (text.find('\\') == std::string::npos &&
        folded_name(text + path.stem().string()).find(letters) == std::string::npos) {
      continue;
    }
    const JsonDocument document = JsonDocument::parse(text, path.string());
    std::vector<std::string> names = other_names(document.root());
    if (is_among(names, reference)) return path;
    names.push_back(path.stem().string());
    if (!nearly && is_among(names, reference, folded_name)) nearly = path;
  }
  return nearly;
}

std::optional<fs::path> find_entry_of_other_owner(const std::vector<std::string>& directories,
                                                  const std::string& reference) {
  const std::string name(without_owner(reference));
  if (name.size() + 1 >= reference.size() || reference.find('/') != reference.size() - name.size() - 1) return {};
  return find_entry(directories, kModelFolder, name);
}

}  // namespace memcalc
