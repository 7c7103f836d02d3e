// What goes with the loading and the saving of a model. Covered by tests/unit/rules_stages_test.cc.
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

bool is_asked_to_load(const RuleQuestion& q) { return trains(q) && training_of(q).loading != ModelLoading::kConfig; }
/// Neither from_pretrained nor save_pretrained is there.
bool is_outside_transformers(const RuleQuestion& q) {
  return is_custom(q.model) || is_program(q.model) || is_family<TorchvisionSpec>(q) ||
         q.model.model_type == kLitGptType;
}
bool saves(const RuleQuestion& q) { return trains(q) && training_of(q).saving != ModelSaving::kNone; }

constexpr Rule kLoading[] = {
    {.id = "load-one-gpu",
     .options = "--load --gpus --parallel",
     .message = "load: on several GPUs each rank's from_pretrained is not modelled",
     .accepted = "--gpus 1, or no --load",
     .broken = [](const RuleQuestion& q) { return is_parallel(q) && !quantizes(q); },
     .code = ErrorCode::kUnsupported},
    {.id = "load-packed-on-card",
     .options = "--load --quantize",
     .message =
         "load {--load}: from_pretrained packs a base in {--quantize} on the card, and takes a device map for it",
     .accepted = "--load device-map",
     .broken = [](const RuleQuestion& q) { return quantizes(q) && training_of(q).loading == ModelLoading::kHost; }},
    {.id = "load-from-transformers",
     .options = "--load --model",
     .message = "load: only models of transformers that have a family here are loaded by from_pretrained",
     .accepted = "--load config",
     .broken = [](const RuleQuestion& q) { return !quantizes(q) && is_outside_transformers(q); }},
};

constexpr Rule kSaving[] = {
    {.id = "save-counts-all-stages",
     .options = "--save --stages",
     .message = "save: what a model's saving takes counts only where all stages do",
     .accepted = "--stages all",
     .broken = [](const RuleQuestion& q) { return training_of(q).stages != Stages::kAll; }},
    {.id = "save-one-gpu",
     .options = "--save --gpus --parallel",
     .message = "save: gathering a model from several GPUs is not modelled",
     .accepted = "--gpus 1, or no --save",
     .broken = is_parallel,
     .code = ErrorCode::kUnsupported},
    {.id = "save-merge-needs-adapters",
     .options = "--save --lora",
     .message = "save {--save}: there are no adapters to merge",
     .accepted = "--lora R, or --save checkpoint",
     .broken = [](const RuleQuestion& q) { return training_of(q).saving == ModelSaving::kMerge && !has_adapters(q); }},
    {.id = "save-transformers-model",
     .options = "--save --model",
     .message = "save: only models of transformers that have a family here are saved by save_pretrained",
     .accepted = "no --save",
     .broken = is_outside_transformers},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Loading", .concerns = is_asked_to_load, .rules = kLoading},
    {.title = "Saving", .concerns = saves, .rules = kSaving},
};

}  // namespace

std::span<const RuleGroup> rules_of_stages() { return kGroups; }

}  // namespace memcalc
