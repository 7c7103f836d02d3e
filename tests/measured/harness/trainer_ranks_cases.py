"""Runs of transformers' Trainer on two GPUs drawn at random over families, sizes and options, for measure_trainer_ranks.py.
usage: trainer_ranks_cases.py > trainer_ranks_cases.jsonl"""
import random
import cases

rng = random.Random(20261123)
MODELS = {"llama-3-8b": [1, 2], "tinyllama-1.1b": [3, 4, 6], "mistral-7b": [1, 2], "llama-2-7b": [1, 2], "phi3-mini": [2, 3], "olmo2-1b": [2, 4], "pythia-410m": [6, 24], "phi-2": [2, 3],
          "qwen2.5-0.5b": [4, 8], "qwen3-0.6b": [4, 6], "smollm2-135m": [12, 30], "gpt2": [6, 12], "gpt2-medium": [6], "gemma-2b": [1, 2], "gemma3-1b": [3], "opt-125m": [6, 12], "llama-3.2-1b": [2, 3]}
UNTIED = ["llama-3-8b", "tinyllama-1.1b", "mistral-7b", "llama-2-7b", "phi3-mini", "olmo2-1b", "pythia-410m", "phi-2"]
TIED = [m for m in MODELS if m not in UNTIED]


def draw(kind, model, parallel, precisions, i, **more):
    precision, weights = rng.choice(precisions)
    run = dict(model=model, layers=rng.choice(MODELS[model]), batch_size=rng.choice([1, 2, 4]), sequence_length=rng.choice([128, 256, 512, 1024]), task="causal", precision=precision,
               weights_dtype=weights, loop="trainer", optimizer="adamw-fused", accumulation_steps=rng.choice([1, 1, 2, 4]), max_grad_norm=1.0, attention="sdpa", pin_memory=True, gpus=2, parallel=parallel)
    if rng.random() < .35: run.update(checkpointing="full")
    if parallel.startswith("ds-"): run.update(framework="deepspeed")
    harness = more.pop("harness", {}); run.update(more)
    return dict(id="trainer-%s-%s-%d" % (kind, model, i), **run, **harness)


AMP, PLAIN = ("amp-bf16", "fp32"), ("fp32", "fp32")
drawn = []
for i, model in enumerate(UNTIED + rng.sample(UNTIED, 3)):
    drawn.append(draw("fsdp2", model, "fsdp2", [AMP, ("amp-bf16", "bf16"), PLAIN, ("bf16", "bf16")], i, harness=dict(history=True) if i in (1, 6) else {}))
for i, model in enumerate(["gpt2", "gemma-2b", "qwen3-0.6b", "opt-125m"]):
    drawn.append(draw("fsdp2", model, "fsdp2", [AMP, ("amp-bf16", "bf16"), PLAIN], i + 11, harness=dict(history=True) if i == 0 else {}))
for i in range(12):
    model = rng.choice(["tinyllama-1.1b", "qwen2.5-0.5b", "gpt2", "mistral-7b", "smollm2-135m", "pythia-410m", "qwen3-0.6b", "llama-3.2-1b", "opt-125m"])
    stage = i % 3 + 1
    drawn.append(draw("zero%d" % stage, model, "ds-zero%d" % stage, [AMP, AMP, ("amp-bf16", "bf16"), PLAIN], i, harness=dict(history=True) if i < 3 else {}))
for i in range(2):
    drawn.append(draw("zero%d-offload" % (i + 2), rng.choice(["tinyllama-1.1b", "qwen2.5-0.5b"]), "ds-zero%d" % (i + 2), [AMP], i, offload_states="host"))
HALF = [("amp-bf16", "bf16")]
for i, (model, mode) in enumerate([("llama-3.2-1b", "fsdp2"), ("mistral-7b", "fsdp2"), ("qwen2.5-0.5b", "fsdp2"), ("tinyllama-1.1b", "ds-zero2"), ("qwen2.5-0.5b", "ds-zero1"), ("tinyllama-1.1b", "ds-zero3")]):
    drawn.append(draw("lora-" + mode.removeprefix("ds-"), model, mode, HALF, i, lora=rng.choice([8, 16]), harness=dict(history=True) if i in (1, 5) else {}))
for i, (model, mode, storage) in enumerate([("tinyllama-1.1b", "fsdp2", "bf16"), ("mistral-7b", "fsdp2", "bf16"), ("tinyllama-1.1b", "fsdp2", "uint8"), ("tinyllama-1.1b", "ds-zero2", "uint8"), ("tinyllama-1.1b", "ds-zero3", "uint8")]):
    drawn.append(draw("qlora-" + mode.removeprefix("ds-"), model, mode, HALF, i, lora=16, quantize="nf4", harness=dict(quant_storage=storage, limit=70, **(dict(history=True) if i in (0, 4) else {}))))
# Adapters where the first draw had few: ZeRO-3 with recomputation, biases, float32 weights, offload; DDP of packed bases.
BASES = [("tinyllama-1.1b", "ds-zero3", dict(checkpointing="full", harness=dict(history=True))), ("qwen2.5-0.5b", "ds-zero3", {}),
         ("llama-3.2-1b", "ds-zero3", dict(precision="fp32", weights_dtype="fp32")), ("tinyllama-1.1b", "ds-zero3", dict(offload_states="host", offload_parameters="host")),
         ("mistral-7b", "ds-zero3", dict(quantize="nf4", checkpointing="full", prepare_kbit=True)), ("qwen2.5-0.5b", "ds-zero3", dict(quantize="nf4-double")),
         ("tinyllama-1.1b", "ddp", dict(quantize="nf4", harness=dict(history=True))), ("qwen2.5-0.5b", "ddp", dict(quantize="nf4", checkpointing="full", prepare_kbit=True)),
         ("mistral-7b", "ddp", dict(quantize="int8")), ("llama-3.2-1b", "ddp", dict(checkpointing="full"))]
for i, (model, mode, more) in enumerate(BASES):
    more = dict(more); harness = more.pop("harness", {}); quantized = dict(quantize=more["quantize"], prepare_kbit=more.get("prepare_kbit", False)) if "quantize" in more else {}
    case = draw(("qlora-" if quantized else "lora-") + mode.removeprefix("ds-"), model, mode, HALF, i + 10, lora=rng.choice([8, 16]), harness=dict(harness, **(dict(limit=70) if quantized else {})))
    case.pop("checkpointing", None); case.update({k: v for k, v in more.items()}, **quantized)
    drawn.append(case)
cases.write(drawn)
