"""LoRA and QLoRA of transformers' Trainer under FSDP2 with parameters on the host, drawn at random, for measure_trainer_ranks.py:
rank 0 of a fake process group, on a CUDA runtime that computes nothing.
usage: trainer_offload_cases.py > trainer_offload_cases.jsonl"""
import random
import cases

rng = random.Random(20261124)
MODELS = {"tinyllama-1.1b": [2, 3], "mistral-7b": [1], "qwen2.5-0.5b": [2, 4], "llama-3.2-1b": [1, 2], "smollm2-135m": [6, 12], "pythia-410m": [4, 6], "gpt2": [4, 6], "qwen3-0.6b": [2, 3]}
drawn = []
for i in range(20):
    model = list(MODELS)[i % len(MODELS)]
    run = dict(model=model, layers=rng.choice(MODELS[model]), batch_size=rng.choice([1, 2, 4]), sequence_length=rng.choice([128, 256, 512]), task="causal", precision="amp-bf16", weights_dtype="bf16",
               loop="trainer", optimizer="adamw-fused", accumulation_steps=rng.choice([1, 1, 2, 4]), max_grad_norm=1.0, attention="sdpa", pin_memory=True, gpus=rng.choice([2, 2, 4]), parallel="fsdp2",
               offload_parameters="host", offload_states="host", lora=rng.choice([8, 16]))
    if rng.random() < .5: run.update(checkpointing="full")
    harness = dict(fake=True, nocard=True, limit=150)
    if i % 4 != 3: run.update(quantize=rng.choice(["nf4", "nf4-double"]), quant_storage="bf16", prepare_kbit=rng.random() < .5)
    drawn.append(dict(id="trainer-%s-offload-fsdp2-%s-%d" % ("qlora" if "quantize" in run else "lora", model, i), **run, **harness))
cases.write(drawn)
