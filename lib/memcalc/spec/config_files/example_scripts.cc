// transformers 5.17, examples/pytorch: dataclasses DataTrainingArguments and what each script makes of them. FastChat,
// fastchat/train: train.py at commit 047b6e4b, train_mem.py (the same behind a patch of Llama's attention) at 00d9e667,
// train_lora.py at 02d4581b.
#include "memcalc/spec/config_files/example_scripts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "memcalc/spec/config_files/section.h"

namespace memcalc::config {
namespace {

// run_clm.py and run_fim.py: the tokenizer's model_max_length, or 1,024 at most where the model has fewer positions
// than that, as most tokenizers say 10^30. run_mlm.py: the same, and 1,024 at most.
constexpr std::int64_t kMostTokens = 1024, kGlueLength = 128, kAnswerLength = 384, kSourceLength = 1024,
                       kTargetLength = 128, kAnswerTokens = 30, kChatLength = 512;
constexpr std::string_view kLength = "max_seq_length max_length";

constexpr ExampleScript kScripts[] = {
    {.names = "run_glue run_xnli run_classification",
     .task = "seqcls",
     .length_key = kLength,
     .length = kGlueLength,
     .pads = true,
     .pads_to_max = true,
     .metrics = Metrics::kLogits},
    {.names = "run_ner",
     .task = "tokcls",
     .length_key = kLength,
     .own_loop_length = kGlueLength,
     .pads = true,
     .metrics = Metrics::kLogits},
    {.names = "run_clm run_fim",
     .task = "causal",
     .length_key = "block_size",
     .most_length = kMostTokens,
     .metrics = Metrics::kTokens,
     .makes_models = true,
     .takes_overrides = true},
    {.names = "run_mlm",
     .task = "mlm",
     .length_key = kLength,
     .most_length = kMostTokens,
     .metrics = Metrics::kTokens,
     .makes_models = true,
     .takes_overrides = true},
    // examples/legacy: the tokenizer's length, whatever it is
    {.names = "run_language_modeling",
     .task = "causal",
     .masking_key = "mlm",
     .length_key = "block_size",
     .makes_models = true},
    {.names = "run_qa",
     .task = "qa",
     .length_key = kLength,
     .length = kAnswerLength,
     .pads = true,
     .pads_to_max = true},
    {.names = "run_seq2seq_qa",
     .task = "seq2seq",
     .length_key = kLength,
     .length = kAnswerLength,
     .target_length = kAnswerTokens,
     .pads = true,
     .pads_to_max = true},
    {.names = "run_summarization run_translation",
     .task = "seq2seq",
     .length_key = "max_source_length",
     .length = kSourceLength,
     .target_length = kTargetLength,
     .pads = true},
    {.names = "run_speech_recognition_seq2seq", .task = "speech"},
    {.names = "run_image_classification",
     .task = "image",
     .metrics = Metrics::kLogits,
     .model = "google/vit-base-patch16-224-in21k"},
    // preprocess(): padding="max_length"
    {.names = "fastchat/train/train",
     .task = "causal",
     .length_key = "model_max_length",
     .length = kChatLength,
     .pads = true,
     .pads_always = true,
     .model = "facebook/opt-125m"},
    {.names = "fastchat/train/train_mem",
     .task = "causal",
     .length_key = "model_max_length",
     .length = kChatLength,
     .pads = true,
     .pads_always = true,
     .patches_attention = true,
     .model = "facebook/opt-125m"},
    {.names = "fastchat/train/train_lora",
     .task = "causal",
     .length_key = "model_max_length",
     .length = kChatLength,
     .pads = true,
     .pads_always = true,
     .has_adapters = true,
     .model = "facebook/opt-125m"},
    {.names = "run_swag", .why = "multiple choice (run_swag.py)"},
    {.names = "run_plm", .why = "permutation language modelling (run_plm.py)"},
    {.names = "run_qa_beam_search", .why = "question answering with a beam search (run_qa_beam_search.py)"},
    {.names = "run_audio_classification", .why = "classification of recordings (run_audio_classification.py)"},
    {.names = "run_speech_recognition_ctc run_speech_recognition_ctc_adapter",
     .why = "training with CTC (run_speech_recognition_ctc.py)"},
    {.names = "run_wav2vec2_pretraining", .why = "pretraining of Wav2Vec2"},
    {.names = "run_mae run_mim", .why = "pretraining with masked images (run_mae.py, run_mim.py)"},
    {.names = "run_clip", .why = "CLIP in the Trainer (run_clip.py; in a plain loop: --task contrastive --loop bare)"},
    {.names = "run_object_detection", .why = "detection of objects (run_object_detection.py)"},
    {.names = "run_semantic_segmentation run_instance_segmentation",
     .why = "segmentation (run_semantic_segmentation.py, run_instance_segmentation.py)"},
};

constexpr std::string_view kOwnLoop = "_no_trainer";

}  // namespace

const ExampleScript* find_example_script(std::string_view program) {
  if (!program.ends_with(".py")) return nullptr;
  program.remove_suffix(3);
  for (const std::string_view ending : {kOwnLoop, std::string_view("_streaming")}) {
    if (program.ends_with(ending)) program.remove_suffix(ending.size());
  }
  const auto* found = std::find_if(std::begin(kScripts), std::end(kScripts), [&](const ExampleScript& each) {
    const std::vector<std::string_view> names = words_of(each.names, " ");
    return std::find(names.begin(), names.end(), program) != names.end();
  });
  return found == std::end(kScripts) ? nullptr : found;
}

std::string script_in_folder(std::string_view path) {
  constexpr std::string_view kFolder = "fastchat/train/", kModule = "fastchat.train.";
  std::string name;
  if (path.starts_with(kModule)) {
    name = std::string(kFolder).append(path.substr(kModule.size())).append(".py");
  } else if (const std::size_t at = path.rfind(kFolder); at == 0 || (at != path.npos && path[at - 1] == '/')) {
    name = path.substr(at);
  }
  return find_example_script(name) != nullptr ? name : "";
}

bool has_own_loop(std::string_view program) {
  return program.ends_with("_no_trainer.py") && find_example_script(program) != nullptr;
}

}  // namespace memcalc::config
