// Runs drawn at random, as people type them.
#pragma once

#include <array>
#include <iterator>
#include <random>
#include <string>

namespace memcalc::test {

/// A run as people type it; most of them too large for the card.
[[nodiscard]] inline std::string drawn_run(std::mt19937& random) {
  const auto one_of = [&](const auto& list) { return std::string(list[random() % std::size(list)]); };
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  constexpr std::array kDecoders = {"gpt2",         "gpt2-medium", "llama-3.2-1b", "qwen2.5-0.5b",
                                    "qwen2.5-1.5b", "gemma-2-2b",  "opt-1.3b",     "llama-3.1-8b"};
  constexpr std::array kOthers = {"bert-large", "roberta-base", "t5-base", "vit-large", "resnet50", "convnext-base"};
  constexpr std::array kCards = {"t4",      "rtx-4060",        "rtx-3060-12gb",    "rtx-4090",
                                 "a10",     "rtx-4050-laptop", "h100-mig-1g.10gb", "v100-sxm2-16gb",
                                 "h100-sxm"};
  constexpr std::array kBatches = {"1", "2", "6", "16", "48", "64"};
  constexpr std::array kPrecisions = {"", " --bf16", " --fp16", " --precision bf16", " --precision tf32"};
  const bool decoder = chance(70);
  std::string line = "--model " + (decoder ? one_of(kDecoders) : one_of(kOthers)) + " --gpu " + one_of(kCards) +
                     " --bs " + one_of(kBatches) + one_of(kPrecisions);
  if (decoder) line += " --seq " + one_of(std::array{"512", "1024"});
  if (decoder && chance(20)) {
    line += " --infer";
    if (chance(50)) line = line.substr(0, line.find(" --seq")) + " --seq 512 --infer --new-tokens 16";
    return line;
  }
  if (decoder && chance(30)) line += " --lora 8";
  if (chance(30)) line += " --loop bare";
  if (chance(20)) line += " --optimizer " + one_of(std::array{"adamw-8bit", "sgd", "adafactor", "adamw"});
  if (chance(15)) line += " --accum 4";
  if (decoder && chance(15)) line += " --gpus 2 --parallel " + one_of(std::array{"ddp", "fsdp2"});
  return line;
}

}  // namespace memcalc::test
