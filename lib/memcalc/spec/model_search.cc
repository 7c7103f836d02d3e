#include "memcalc/spec/model_search.h"

#include <algorithm>
#include <sstream>

#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

bool has_word(const ModelListing& model, const std::string& word) {
  const auto holds = [&](const std::string& name) { return folded_name(name).find(word) != std::string::npos; };
  if (holds(model.name) || holds(model.model_type)) return true;
  for (const std::vector<std::string>* names : {&model.aliases, &model.stands_for, &model.text_of}) {
    if (std::any_of(names->begin(), names->end(), holds)) return true;
  }
  return false;
}

bool meets(const ModelListing& model, const ModelSearch& search) {
  if (search.task && std::find(model.tasks.begin(), model.tasks.end(), *search.task) == model.tasks.end()) return false;
  if (search.fewest_parameters && model.parameters.value_or(-1) < *search.fewest_parameters) return false;
  if (search.most_parameters && (!model.parameters || *model.parameters > *search.most_parameters)) return false;
  std::istringstream words(search.text);
  for (std::string word; words >> word;) {
    if (!has_word(model, folded_name(word))) return false;
  }
  return true;
}

}  // namespace

std::vector<ModelListing> found(std::vector<ModelListing> models, const ModelSearch& search) {
  std::erase_if(models, [&](const ModelListing& each) { return !meets(each, search); });
  return models;
}

}  // namespace memcalc
