#include "options.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "errors.h"
#include "keyword.h"
#include "values.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

Keyword size(const char* flag, std::optional<std::int64_t> ArchitectureChanges::*place, const char* description) {
  Keyword keyword = whole(
      flag, [=](Options & o) -> auto& { return o.sizes.*place; }, description);
  keyword.is_size = true;
  return keyword;
}

Keyword time(const char* flag, std::optional<double> TimeOptions::*place, const char* description) {
  return number(
      flag, [=](Options & o) -> auto& { return o.time.*place; }, description);
}

Keyword tie_size() {
  Keyword keyword = truth(
      "--tie", [](Options & o) -> auto& { return o.sizes.tie; },
      "True: the head shares the embedding's weight; False: it has one of its own");
  keyword.is_size = true;
  return keyword;
}

void set_mixed_precision(Options& o, const char* keyword, py::handle value, DType type) {
  if (!truth_from(keyword, value)) return;
  if (o.run.precision || o.run.mixed_precision) {
    throw OptionError(keyword, "fp16, bf16 and precision contradict each other: give one");
  }
  o.run.mixed_precision = type;
}

void set_optimizer(py::handle value, Options& o) {
  const std::string text = text_from("optimizer", "a name", value);
  o.run.optimizer = optimizer_from(text);
  if (o.run.optimizer) return;
  const std::vector<std::string> names(kOptimizerNames.begin(), kOptimizerNames.end());
  throw OptionError("optimizer", "optimizer: expected one of " + join(names) + ", found '" + one_line(text) + "'" +
                                     did_you_mean(text, names));
}

Inference& inference_of(Options& o) {
  if (!o.run.inference) o.run.inference.emplace();
  return *o.run.inference;
}

void set_infer(py::handle value, Options& o) {
  if (truth_from("infer", value)) (void)inference_of(o);
}

void set_cache_dtype(py::handle value, Options& o) {
  inference_of(o).key_value_cache_dtype = choice_from<DType>("kv_cache_dtype", value, kWeightDTypeNames);
}

// none, full, selective, or every-N: of the layers 0, N, 2N, ….
void set_checkpointing(py::handle value, Options& o) {
  constexpr std::string_view kEvery = "every-";
  const std::string text = text_from("checkpointing", "none, full, every-N or selective", value);
  if (!text.starts_with(kEvery)) {
    o.run.checkpointing = choice_from<Checkpointing>("checkpointing", value, kCheckpointingNames);
    return;
  }
  const auto number = py::reinterpret_steal<py::object>(PyLong_FromString(text.c_str() + kEvery.size(), nullptr, 10));
  if (!number) {
    PyErr_Clear();
    refuse("checkpointing", "every-N with a whole number of 1 or more", value);
  }
  o.run.checkpointing = Checkpointing::kFull;
  o.run.checkpoint_every = whole_from("checkpointing", number, 1);
}

// peft's own word for every linear layer but the head, which is the default, too.
void set_lora_targets(py::handle value, Options& o) {
  o.run.lora_targets.clear();
  if (py::isinstance<py::str>(value) && value.cast<std::string>() == "all-linear") return;
  o.run.lora_targets = texts_from("lora_targets", value);
}

void set_no_reshard(py::handle value, Options& o) {
  o.run.parallel.reshard_after_forward = !truth_from("no_reshard_after_forward", value);
}

// Megatron's own arguments, as the command line takes them: "name" or "name=value".
void set_megatron(py::handle value, Options& o) {
  o.run.parallel.megatron = parse_megatron_options(join(texts_from("megatron", value), ","));
}

void set_stage_layers(py::handle value, Options& o) {
  if (py::isinstance<py::str>(value) || !py::isinstance<py::sequence>(value)) {
    refuse("stage_layers", "a sequence of whole numbers", value);
  }
  o.run.parallel.stage_layers.clear();
  for (const py::handle each : value) {
    o.run.parallel.stage_layers.push_back(whole_from("stage_layers", each, 1));
  }
}

// Names of DeepSpeed's zero_optimization: "name=value".
void set_deepspeed(py::handle value, Options& o) {
  o.run.parallel.deepspeed = parse_deepspeed_options(join(texts_from("deepspeed", value), ","));
}

void set_lora_dtype(py::handle value, Options& o) {
  enum class AdapterDType : std::uint8_t { kFloat32, kBase };
  o.run.lora_in_base_dtype = choice_from<AdapterDType>("lora_dtype", value, kAdapterDTypeNames) == AdapterDType::kBase;
}

void set_bitsandbytes(py::handle value, Options& o) { o.run.bitsandbytes = py::cast<std::string>(value); }

const std::vector<Keyword>& keywords() {
  using R = RunOptions;
  using A = ArchitectureChanges;
  using P = Parallel;
  static const std::vector<Keyword> table = {
      whole("--bs", &R::batch_size, "sequences per micro-batch [1]", "batch_size"),
      whole("--seq", &R::sequence_length, "tokens per sequence [trained context, at most 2048]", "sequence_length"),
      whole("--target-seq", &R::target_sequence_length, "seq2seq: tokens per label sequence [as sequence_length]",
            "target_sequence_length"),
      whole("--image", &R::image_size, "pixels a side, for image models [the trained size]", "image_size"),
      choice<Task>("--task", &R::task, kTaskNames,
                   "seqcls, mlm, tokcls, causal, seq2seq, speech, image, contrastive [by family]"),
      truth("--padding", &R::padding, "some sequences are padded, so a mask is passed"),

      size("--layers", &A::layers, "layers; of an encoder-decoder: of each"),
      size("--hidden", &A::hidden, "width of the hidden states"),
      size("--heads", &A::heads, "attention heads"),
      size("--kv-heads", &A::kv_heads, "key and value heads, where they are grouped"),
      size("--head-dim", &A::head_dim, "width of a head"),
      size("--ffn", &A::ffn, "width of the feed-forward layers"),
      size("--vocab", &A::vocabulary, "rows of the embedding"),
      size("--max-positions", &A::max_positions, "positions that the model has"),
      tie_size(),

      choice<Precision>("--precision", &R::precision, kPrecisionNames,
                        "fp32, tf32, amp-fp16, amp-bf16, bf16, fp16 [fp32]"),
      special(
          "--fp16", "bool", [](py::handle v, Options& o) { set_mixed_precision(o, "fp16", v, DType::kFloat16); },
          "precision amp-fp16; of DeepSpeed, Megatron: fp16"),
      special(
          "--bf16", "bool", [](py::handle v, Options& o) { set_mixed_precision(o, "bf16", v, DType::kBFloat16); },
          "precision amp-bf16; of DeepSpeed, Megatron: bf16"),
      choice<DType>("--weights-dtype", &R::weights_dtype, kWeightDTypeNames,
                    "fp32, fp16 or bf16 [as the precision says]"),

      choice<Loop>("--loop", &R::loop, kLoopNames, "trainer (HF Trainer) or bare (a plain loop) [trainer]"),
      special("--optimizer", "str", set_optimizer, "name (docs/cli.md) or HF Trainer's optim [by loop]"),
      whole("--accum", &R::accumulation_steps, "micro-batches per optimizer step [1]", "accumulation_steps"),
      number("--clip-grad", &R::max_grad_norm, "clip at this norm, 0: never [trainer 1.0, bare never]",
             "max_grad_norm"),
      special("--checkpointing", "str", set_checkpointing, "none, full, every-N (layers) or selective [none]"),
      choice<Attention>("--attn", &R::attention, kAttentionNames, "sdpa, eager or flash [sdpa]", "attention"),
      whole("--skipped-steps", &R::skipped_steps, "first steps that the fp16 loss scaler skips [0]", "", 0),
      number("--dropout", &R::dropout, "every dropout probability [the model's own]"),
      truth("--compile", &R::compile, "torch.compile, the default mode"),
      choice<Float8>("--float8", &R::float8, kFloat8Names, "tensorwise, tensorwise-gather or rowwise [none]"),
      choice<CompiledParts>("--compile-parts", &R::compiled_parts, kCompiledPartsNames,
                            "model, layers, layers-loss [model; on several: layers]"),
      truth("--loss-in-loop", &R::loss_in_loop, "a plain loop computes the loss from the logits"),
      truth("--use-cache", &R::use_cache, "keep the KV cache, as plain loops over decoders do"),

      whole("--lora", &R::lora_rank, "peft adapters of this rank on a frozen base"),
      special("--lora-targets", "Sequence[str]", set_lora_targets, "ends of layer names [all linear layers]"),
      number("--lora-dropout", &R::lora_dropout, "dropout in front of the adapters [0]"),
      special("--lora-dtype", "str", set_lora_dtype, "fp32, or base: as the base's weights [fp32]"),
      truth("--lora-head", &R::lora_trains_head, "a classifier is trained in full (peft's task_type)"),
      choice<Quantization>("--quantize", &R::quantization, kQuantizationNames,
                           "nf4, nf4-double, int8; to infer also gptq4, awq4 [none]"),
      truth("--quantize-head", &R::packs_head, "the output head is packed, too (LitGPT)"),
      special("--bitsandbytes", "str", set_bitsandbytes, "its version; inputs kept before 0.43.2 [0.50]"),
      whole("--group-size", &R::group_size, "of gptq4, awq4: numbers that share a scale [128]"),
      truth("--prepare-kbit", &R::prepares_for_kbit,
            "prepare_model_for_kbit_training [where a quantised base gets adapters]"),
      truth("--liger", &R::liger, "Liger's fused kernels and loss (LLaMA, Mistral, Qwen)"),
      texts("--freeze", &R::frozen, "parts of parameter names not to train"),

      special("--infer", "bool", set_infer, "no training: one forward pass, or generate()"),
      whole(
          "--new-tokens", [](Options & o) -> auto& { return inference_of(o).new_tokens; },
          "tokens that generate() adds to each sequence (with infer)"),
      whole(
          "--beams", [](Options & o) -> auto& { return inference_of(o).beams; },
          "beams of generate()'s beam search [1] (with infer)"),
      special("--kv-cache-dtype", "str", set_cache_dtype, "fp32, fp16 or bf16 [as the activations] (with infer)"),

      truth("--activation-offload", &R::offload_activations, "saved tensors go to pinned host memory"),
      truth("--offload-optimizer", &R::offload_optimizer, "AdamW's states and step on the host (torchao)"),
      truth("--offload-gradients", &R::offload_gradients, "with it: gradients die once they are copied"),
      truth("--expandable", &R::expandable_segments, "the allocator's expandable_segments:True"),
      whole("--loader-workers", &R::dataloader_workers, "processes that load batches [0]", "", 0),
      whole("--prefetch-factor", &R::prefetch_factor, "batches each worker prepares ahead [2]"),
      truth("--pin-memory", &R::pin_memory, "batches pass through pinned memory [trainer: on]"),

      whole("--gpus", &R::gpus, "GPUs in all [tp x cp x pp]"),
      whole("--nodes", of_parallel(&P::nodes), "hosts that they are in [1]"),
      choice<DataParallel>("--parallel", of_parallel(&P::data_parallel), kDataParallelNames,
                           "ddp, dp, zero1, fsdp1, fsdp2, … (docs/parallel.md) [ddp]"),
      choice<Framework>("--framework", &R::framework, kFrameworkNames,
                        "torch, deepspeed or megatron [as the mode says]"),
      whole("--tp", of_parallel(&P::tensor), "ranks that share each layer's matrices [1]"),
      truth("--sp", of_parallel(&P::sequence_parallel), "sequence parallel between those matrices"),
      truth("--loss-parallel", of_parallel(&P::loss_parallel), "torch with --sp: logits stay split by vocabulary"),
      whole("--cp", of_parallel(&P::context), "ranks that share each sequence [1]"),
      choice<ContextParallel>("--cp-type", of_parallel(&P::context_type), kContextParallelNames,
                              "all-gather, ring or ulysses [all-gather]"),
      whole("--ep", of_parallel(&P::expert), "ranks that share the experts [1]"),
      whole("--pp", of_parallel(&P::pipeline), "stages of the pipeline [1]"),
      choice<PipelineSchedule>("--schedule", of_parallel(&P::schedule), kScheduleNames,
                               "gpipe, 1f1b, interleaved, zero-bubble or zbv [1f1b]"),
      whole("--virtual-stages", of_parallel(&P::virtual_stages), "model chunks on each rank, interleaved [1]"),
      special("--stage-layers", "Sequence[int]", set_stage_layers, "layers of each stage: 7,8,8,7 [even]"),
      whole("--micro-batches", of_parallel(&P::micro_batches), "in a step of the pipeline [as many as stages]"),
      whole("--hsdp-shard", of_parallel(&P::hsdp_shard), "FSDP: ranks that share one copy [all]"),
      choice<DType>("--fsdp-param-dtype", of_parallel(&P::fsdp_param_dtype), kWeightDTypeNames,
                    "fp32, fp16 or bf16, of gathered parameters"),
      choice<DType>("--fsdp-reduce-dtype", of_parallel(&P::fsdp_reduce_dtype), kWeightDTypeNames,
                    "the same, of gradients that are reduced"),
      special("--no-reshard-after-forward", "bool", set_no_reshard, "FSDP keeps what it has gathered"),
      truth("--keep-last-layer", of_parallel(&P::keep_last_layer),
            "FSDP2 keeps the last layer gathered until its backward"),
      truth("--ddp-bucket-view", of_parallel(&P::ddp_bucket_view), "DDP: gradient_as_bucket_view=True"),
      truth("--ddp-static-graph", of_parallel(&P::ddp_static_graph), "DDP: static_graph=True"),
      choice<OffloadTo>("--offload-states", of_parallel(&P::offload_states), kOffloadNames,
                        "host or nvme: sharded states and gradients"),
      choice<OffloadTo>("--offload-parameters", of_parallel(&P::offload_parameters), kOffloadNames,
                        "host or nvme: parameters (--infer: host)"),
      special("--deepspeed", "Sequence[str]", set_deepspeed, "its zero_optimization: name=value, …"),
      special("--megatron", "Sequence[str]", set_megatron, "Megatron's own arguments: name or name=value, …"),

      time("--tokens", &TimeOptions::tokens, "of the whole training: days, price, energy"),
      time("--sample-seconds", &TimeOptions::sample_seconds, "of a loader worker for a sample [0]"),
      time("--sample-bytes", &TimeOptions::sample_bytes, "read from storage for a sample [0]"),
      time("--storage-rate", &TimeOptions::storage_rate, "bytes/s of the storage"),
  };
  return table;
}

// Places in the table, of keywords under their own names and those of the command line's options: batch_size and bs.
const std::unordered_map<std::string, std::size_t>& places() {
  static const std::unordered_map<std::string, std::size_t> known = [] {
    std::unordered_map<std::string, std::size_t> made;
    for (std::size_t i = 0; i < keywords().size(); ++i) {
      made.emplace(keywords()[i].name, i);
      made.emplace(keyword_of(keywords()[i].flag), i);
    }
    return made;
  }();
  return known;
}

std::size_t place_of(const std::string& name) {
  if (const auto found = places().find(name); found != places().end()) return found->second;
  std::vector<std::string> names;
  for (const Keyword& each : keywords()) names.push_back(each.name);
  throw OptionError(name, "unknown option '" + one_line(name) + "'" + did_you_mean(name, names));
}

}  // namespace

std::string part_of_message(const std::string& message) {
  for (const Keyword& each : keywords()) {
    std::string words = each.name;
    for (char& c : words) c = c == '_' ? ' ' : c;
    if (ascii_lower(message).starts_with(words)) return each.name;
  }
  const std::size_t colon = message.find(": ");
  const std::size_t quote = message.find('\'');
  const std::size_t end = quote == std::string::npos ? quote : message.find('\'', quote + 1);
  if (quote < colon && end != std::string::npos) return message.substr(quote + 1, end - quote - 1);
  const std::string start = colon == std::string::npos ? "" : message.substr(0, colon);
  return start.find(' ') == std::string::npos ? start : "";
}

Options read_options(const py::dict& given) {
  std::vector<std::pair<std::size_t, py::handle>> found;
  found.reserve(given.size());
  for (const auto& item : given) found.emplace_back(place_of(py::str(item.first).cast<std::string>()), item.second);
  // In the table's order: fp16 and bf16 look at the precision before them.
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Options options;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [place, value] = found[i];
    const Keyword& keyword = keywords()[place];
    if (i > 0 && found[i - 1].first == place) {
      throw OptionError(keyword.name, keyword.name + " and " + keyword_of(keyword.flag) + " are the same: give one");
    }
    if (!value.is_none()) keyword.set(value, options);
  }
  return options;
}

py::list option_table() {
  py::list table;
  for (const Keyword& each : keywords()) {
    table.append(py::make_tuple(each.name, each.flag, each.type, each.description));
  }
  return table;
}

py::list size_keywords() {
  py::list names;
  for (const Keyword& each : keywords()) {
    if (!each.is_size) continue;
    names.append(each.name);
  }
  return names;
}

}  // namespace memcalc::python
