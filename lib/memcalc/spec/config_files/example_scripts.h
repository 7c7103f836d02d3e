// Internal to spec/config_files: the scripts of transformers' examples/pytorch, which are known by their names, and
// FastChat's, whose names are common words and which are known by their folder. Covered by
// tests/unit/example_scripts_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace memcalc::config {

/// What a script keeps of the evaluation set for its compute_metrics: nothing, the logits, or the tokens that they are
/// most of (preprocess_logits_for_metrics).
enum class Metrics : std::uint8_t { kNone, kLogits, kTokens };

struct ExampleScript {
  std::string_view names{};        // without "_no_trainer" and ".py", by blanks; with the folder, where one tells it
  std::string_view task{};         // --task; empty: not modelled, as `why` says
  std::string_view masking_key{};  // the task is mlm where this argument is on
  std::string_view length_key{};   // one of these says how many tokens a sequence has
  // Where it does not: so many. 0: as many as the model has positions.
  std::int64_t length = 0;
  std::int64_t own_loop_length = 0;  // of run_…_no_trainer.py; 0: the same
  std::int64_t most_length = 0;      // and not more than that; 0: no limit
  std::int64_t target_length = 0;    // 0: none
  bool pads = false;                 // each text is a sequence, so that most batches have padding and a mask
  bool pads_to_max = false;          // pad_to_max_length, of the Trainer's: all of them to that length
  bool pads_always = false;          // the same, and no argument changes it
  bool patches_attention = false;    // flash-attn in the place of Llama's attention
  bool has_adapters = false;         // FastChat's LoraArguments
  Metrics metrics = Metrics::kNone;
  bool makes_models = false;     // of a configuration, where no model is named
  bool takes_overrides = false;  // of that configuration
  std::string_view model{};      // where none is named
  std::string_view why{};
};

/// Of "run_glue.py", "run_glue_no_trainer.py", "run_speech_recognition_seq2seq_streaming.py" and
/// "fastchat/train/train.py". Null: no such script.
[[nodiscard]] const ExampleScript* find_example_script(std::string_view program);

/// "fastchat/train/train.py" of a path to it, or of the module fastchat.train.train; empty: none that is known so.
[[nodiscard]] std::string script_in_folder(std::string_view path);

/// A loop of its own with accelerate in place of the Trainer: run_glue_no_trainer.py.
[[nodiscard]] bool has_own_loop(std::string_view program);

}  // namespace memcalc::config
