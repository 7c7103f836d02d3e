"""Runs on many GPUs drawn at random, for the fake process group: what memcalc says of them is compared blind.

    parallel_blind_cases.py SEED COUNT

All run rank 0; the rows of rows_parallel_blind_h200.jsonl are of the rank that memcalc named the largest and of one more.
"""
import random, sys

import cases

R = random.Random(int(sys.argv[1]))
DEC = ["llama-3.2-1b", "tinyllama-1.1b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-0.6b", "gemma-2b", "gemma2-2b", "gemma3-1b", "phi3-mini", "olmo2-1b", "mistral-7b", "llama-3-8b"]
OTHER = ["gpt2", "gpt2-medium", "opt-125m", "opt-1.3b", "opt-350m", "pythia-410m", "pythia-1b", "phi-2"]
ENC = ["bert-base", "bert-large", "roberta-base", "distilbert-base", "electra-base", "bert-large-mlm", "distilbert-tok", "llama-seqcls", "gpt2-seqcls"]
S2S = ["t5-base", "bart-base", "mt5-small", "flan-t5-small"]
VIT = ["vit-base", "vit-large", "resnet50", "convnext_tiny"]
MOE = ["mixtral-8x0.3b", "qwen3-moe-1b", "deepseek-v2-small", "gpt-oss-small"]
HEADS = {"llama-3.2-1b": 8, "tinyllama-1.1b": 4, "qwen2.5-0.5b": 2, "qwen2.5-1.5b": 2, "qwen3-0.6b": 8, "gemma-2b": 1, "gemma2-2b": 4, "gemma3-1b": 1, "phi3-mini": 1, "olmo2-1b": 16, "mistral-7b": 8, "llama-3-8b": 8}
LAYERS = {"llama-3.2-1b": 16, "tinyllama-1.1b": 22, "qwen2.5-0.5b": 24, "qwen2.5-1.5b": 28, "qwen3-0.6b": 28, "mistral-7b": 32, "llama-3-8b": 32}
MIXED = dict(fsdp_param_dtype="bf16", fsdp_reduce_dtype="fp32")
BIG = {"mistral-7b", "llama-3-8b", "phi3-mini"}

def base(models, tokens=(512, 1024, 2048, 3000)):
    m = R.choice(models); c = dict(model=m, precision=R.choice(["fp32", "amp-bf16", "bf16", "bf16"]))
    if m in VIT: c["batch_size"] = R.choice([2, 4, 6, 8, 16])
    else:
        c["sequence_length"] = R.choice([128, 200, 256, 384, 512]) if m in ENC + S2S + ["gpt2", "gpt2-medium"] else R.choice([256, 512, 640, 1024, 2048])
        c["batch_size"] = max(1, R.choice(tokens) // c["sequence_length"])
    if m.startswith("gpt-oss"): c["attention"] = "eager"  # its sinks need it
    if m in BIG: c["precision"] = "bf16"; c["layers"] = R.choice([4, 6, 8])
    if R.random() < .3 and m not in ("resnet50", "convnext_tiny"): c["checkpointing"] = "full"
    if R.random() < .25: c["optimizer"] = R.choice(["adamw-fused", "sgd", "sgdm", "adamw-for"])
    return c

def sharded(c):
    """FSDP2's own options."""
    c["parallel"] = "fsdp2"
    if R.random() < .6: c.update(precision="fp32", **MIXED)
    if "fsdp_param_dtype" in c and R.random() < .3: c["fsdp_reduce_dtype"] = "bf16"
    if R.random() < .3: c["no_reshard_after_forward"] = True
    return c

def draw():
    k = R.choice(["ddp", "ddp", "zero1", "fsdp1", "fsdp2", "fsdp2", "fsdp2", "hsdp", "tp", "ddp-tp", "fsdp2-tp", "cp", "fsdp2-cp", "tp-cp", "pp", "pp", "fsdp2-pp", "ddp-pp", "tp-pp", "ep", "lora", "offload"])
    w = R.choice([2, 3, 4, 6, 8, 16, 32, 64])
    everything = DEC + OTHER + ENC + S2S + VIT + MOE
    if k == "ddp":
        c = base(everything); c["parallel"] = "ddp"; c["ddp_bucket_view"] = R.random() < .3; c["ddp_static_graph"] = R.random() < .2
    elif k == "zero1": c = base(DEC + OTHER + ENC); c["parallel"] = "zero1"; c.pop("optimizer", None)
    elif k == "fsdp1":
        c = base(DEC + OTHER + ENC); c["parallel"] = "fsdp1"
        if R.random() < .6: c.update(precision="fp32", **MIXED)
    elif k == "fsdp2": c = sharded(base(everything))
    elif k == "hsdp": c = sharded(base(DEC + OTHER)); w = R.choice([4, 8, 16]); c["hsdp_shard"] = R.choice([x for x in (2, 4, 8) if x < w])
    elif k == "lora": c = sharded(base(["llama-3.2-1b", "qwen2.5-0.5b", "tinyllama-1.1b", "gemma-2b"])); c["lora"] = R.choice([8, 16]); c.pop("no_reshard_after_forward", None)
    elif k == "offload": c = sharded(base(["llama-3.2-1b", "qwen2.5-0.5b", "tinyllama-1.1b"])); c["layers"] = R.choice([2, 4]); c["offload_states"] = c["offload_parameters"] = "host"; c.pop("optimizer", None)
    elif k == "ep": c = base(MOE); c.update(optimizer="adamw-for", precision="bf16"); c.pop("checkpointing", None); w = c["ep"] = R.choice([2, 4, 8])
    else:
        models = [m for m in DEC if HEADS[m] > 1] if "tp" in k else [m for m in DEC if m in LAYERS] if "pp" in k else DEC
        c = base(models); tp = R.choice([x for x in (2, 4, 8) if HEADS[c["model"]] % x == 0]) if "tp" in k else 1
        cp = R.choice([2, 4]) if "cp" in k else 1; pp = R.choice([2, 4]) if "pp" in k else 1; dp = R.choice([2, 4, 8]) if "fsdp2" in k or "ddp" in k else 1
        w = tp * cp * pp * dp
        if "fsdp2" in k: sharded(c)
        elif "ddp" in k: c["parallel"] = "ddp"
        elif "tp" in k and "ddp" not in k: c["optimizer"] = "adamw-for"
        c.update({n: v for n, v in (("tp", tp), ("cp", cp), ("pp", pp)) if v > 1})
        if cp > 1: c["cp_type"] = R.choice(["all-gather", "ring"]); c["sequence_length"] = R.choice([1024, 2048, 4096])
        if pp > 1:
            c["schedule"] = R.choice(["gpipe", "1f1b"] + (["interleaved"] if k == "pp" else []))
            if c["schedule"] == "interleaved": c["virtual_stages"] = 2
            c["layers"] = pp * c.get("virtual_stages", 1) * R.choice([1, 2])
            c["micro_batches"] = pp * R.choice([1, 2, 3]); c["batch_size"] = R.choice([1, 2]); c["sequence_length"] = R.choice([256, 512, 1024])
            c["tie"] = False
    if R.random() < .2 and "pp" not in c: c["accumulation_steps"] = 2
    c.update(gpus=w, loop="bare", fake=True, ranks=[0], limit=60)
    words = [k, c["model"], f"w{w}"] + [f"{n}{c[n]}" for n in ("tp", "cp", "pp", "hsdp_shard", "layers", "micro_batches", "batch_size", "sequence_length", "accumulation_steps", "lora") if n in c]
    words += [c["precision"]] + [str(c[n]) for n in ("optimizer", "fsdp_reduce_dtype", "schedule", "cp_type") if n in c] + [n for n in ("checkpointing", "ddp_bucket_view", "ddp_static_graph", "no_reshard_after_forward") if c.get(n)]
    c["id"] = "-".join(words)
    return c

def main():
    seen, out = set(), 0
    while out < int(sys.argv[2]):
        c = draw()
        if c["id"] in seen: continue
        seen.add(c["id"])
        cases.write([c]); out += 1

if __name__ == "__main__": main()
