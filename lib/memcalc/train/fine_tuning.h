// What is done to a model between its construction and its training: frozen parameters and adapters.
#pragma once

#include <string_view>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// All of run.fine_tuning that happens once the model stands, in the order in which scripts do it.
void apply_fine_tuning(Tape& tape, Model& model, const RunSpec& run);

/// from_pretrained(..., device_map={"": "cpu"}): ranks whose shards live on the host pack the base there, since a card
/// that cannot hold its shards cannot hold the whole base either.
[[nodiscard]] inline bool packs_on_host(const RunSpec& run) {
  return run.trains() && run.fine_tuning.quantization != Quantization::kNone &&
         run.parallel.data_parallel == DataParallel::kFsdp2 && run.parallel.offload_parameters == OffloadTo::kHost;
}

/// from_pretrained(..., quantization_config=BitsAndBytesConfig(...)): gives a model that was built on the meta device
/// its weights, quantised one by one. On several GPUs the process group is there before (TrainingArguments make it).
void load_quantized(Tape& tape, Model& model, const RunSpec& run, std::string_view model_type);

/// peft.prepare_model_for_kbit_training: frozen, and in float32 where not quantised.
void prepare_for_kbit_training(Tape& tape, Model& model);

/// requires_grad_(False) of every parameter whose name contains one of `fragments`, or, behind kFreezeExcept, of all
/// whose names begin as none of the patterns says. Throws Error(kUsage) for a fragment that no name contains.
void freeze_parameters(Tape& tape, Model& model, const std::vector<std::string>& fragments);

/// peft.get_peft_model(model, LoraConfig(...)): the base is frozen, adapters join the parameters.
void add_adapters(Tape& tape, Model& model, const RunSpec& run);

}  // namespace memcalc
