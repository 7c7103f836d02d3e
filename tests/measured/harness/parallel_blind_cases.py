"""Runs on many GPUs drawn at random, for the fake process group: what memcalc says of them is compared blind.

    parallel_blind_cases.py SEED COUNT

All run rank 0; the rows of rows_parallel_blind_h200.jsonl are of the rank that memcalc named the largest and of one more.
"""
import json, random, sys
R = random.Random(int(sys.argv[1]))
DEC = ["llama-3.2-1b", "tinyllama-1.1b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-0.6b", "gemma-2b", "gemma2-2b", "gemma3-1b", "phi3-mini", "olmo2-1b", "mistral-7b", "llama-3-8b"]
OTHER = ["gpt2", "gpt2-medium", "opt-125m", "opt-1.3b", "opt-350m", "pythia-410m", "pythia-1b", "phi-2"]
ENC = ["bert-base", "bert-large", "roberta-base", "distilbert-base", "electra-base", "bert-large-mlm", "distilbert-tok", "llama-seqcls", "gpt2-seqcls"]
S2S = ["t5-base", "bart-base", "mt5-small", "flan-t5-small"]
VIT = ["vit-base", "vit-large", "resnet50", "convnext_tiny"]
MOE = ["mixtral-8x0.3b", "qwen3-moe-1b", "deepseek-v2-small", "gpt-oss-small"]
HEADS = {"llama-3.2-1b": 8, "tinyllama-1.1b": 4, "qwen2.5-0.5b": 2, "qwen2.5-1.5b": 2, "qwen3-0.6b": 8, "gemma-2b": 1, "gemma2-2b": 4, "gemma3-1b": 1, "phi3-mini": 1, "olmo2-1b": 16, "mistral-7b": 8, "llama-3-8b": 8}
LAYERS = {"llama-3.2-1b": 16, "tinyllama-1.1b": 22, "qwen2.5-0.5b": 24, "qwen2.5-1.5b": 28, "qwen3-0.6b": 28, "mistral-7b": 32, "llama-3-8b": 32}
BIG = {"mistral-7b", "llama-3-8b", "phi3-mini"}

def base(models, tokens=(512, 1024, 2048, 3000)):
    m = R.choice(models); c = dict(model=m, precision=R.choice(["fp32", "amp-bf16", "bf16", "bf16"]))
    if m in VIT: c["batch"] = R.choice([2, 4, 6, 8, 16])
    else:
        c["seq"] = R.choice([128, 200, 256, 384, 512]) if m in ENC + S2S + ["gpt2", "gpt2-medium"] else R.choice([256, 512, 640, 1024, 2048])
        c["batch"] = max(1, R.choice(tokens) // c["seq"])
    if m.startswith("gpt-oss"): c["attn"] = "eager"  # its sinks need it
    if m in BIG: c["precision"] = "bf16"; c["layers"] = R.choice([4, 6, 8])
    if R.random() < .3 and m not in ("resnet50", "convnext_tiny"): c["ckpt"] = "full"
    if R.random() < .25: c["optimizer"] = R.choice(["adamw-fused", "sgd", "sgdm", "adamw-for"])
    return c

def sharded(c):
    """FSDP2's own options."""
    c["mode"] = "fsdp2"
    if R.random() < .6: c.update(precision="fp32", mp=True)
    if c.get("mp") and R.random() < .3: c["reduce"] = "bf16"
    if R.random() < .3: c["reshard"] = False
    return c

def draw():
    k = R.choice(["ddp", "ddp", "zero1", "fsdp1", "fsdp2", "fsdp2", "fsdp2", "hsdp", "tp", "ddp-tp", "fsdp2-tp", "cp", "fsdp2-cp", "tp-cp", "pp", "pp", "fsdp2-pp", "ddp-pp", "tp-pp", "ep", "lora", "offload"])
    w = R.choice([2, 3, 4, 6, 8, 16, 32, 64])
    everything = DEC + OTHER + ENC + S2S + VIT + MOE
    if k == "ddp":
        c = base(everything); c["mode"] = "ddp"; c["bucket_view"] = R.random() < .3; c["static_graph"] = R.random() < .2
    elif k == "zero1": c = base(DEC + OTHER + ENC); c["mode"] = "zero1"; c.pop("optimizer", None)
    elif k == "fsdp1":
        c = base(DEC + OTHER + ENC); c["mode"] = "fsdp1"
        if R.random() < .6: c.update(precision="fp32", mp=True)
    elif k == "fsdp2": c = sharded(base(everything))
    elif k == "hsdp": c = sharded(base(DEC + OTHER)); w = R.choice([4, 8, 16]); c["hsdp"] = R.choice([x for x in (2, 4, 8) if x < w])
    elif k == "lora": c = sharded(base(["llama-3.2-1b", "qwen2.5-0.5b", "tinyllama-1.1b", "gemma-2b"])); c["lora"] = R.choice([8, 16]); c.pop("reshard", None)
    elif k == "offload": c = sharded(base(["llama-3.2-1b", "qwen2.5-0.5b", "tinyllama-1.1b"])); c["layers"] = R.choice([2, 4]); c["offload"] = True; c.pop("optimizer", None)
    elif k == "ep": c = base(MOE); c.update(mode="ep", optimizer="adamw-for", precision="bf16"); c.pop("ckpt", None); w = R.choice([2, 4, 8])
    else:
        models = [m for m in DEC if HEADS[m] > 1] if "tp" in k else [m for m in DEC if m in LAYERS] if "pp" in k else DEC
        c = base(models); tp = R.choice([x for x in (2, 4, 8) if HEADS[c["model"]] % x == 0]) if "tp" in k else 1
        cp = R.choice([2, 4]) if "cp" in k else 1; pp = R.choice([2, 4]) if "pp" in k else 1; dp = R.choice([2, 4, 8]) if "fsdp2" in k or "ddp" in k else 1
        w = tp * cp * pp * dp
        c["mode"] = next(x for x in ("fsdp2", "ddp", "pp", "cp", "tp") if x in k)
        if "fsdp2" in k: sharded(c)
        elif "tp" in k and "ddp" not in k: c["optimizer"] = "adamw-for"
        c.update({n: v for n, v in (("tp", tp), ("cp", cp), ("pp", pp)) if v > 1})
        if cp > 1: c["rotate"] = R.choice(["allgather", "alltoall"]); c["seq"] = R.choice([1024, 2048, 4096])
        if pp > 1:
            c["schedule"] = R.choice(["gpipe", "1f1b"] + (["interleaved"] if k == "pp" else []))
            if c["schedule"] == "interleaved": c["chunks"] = 2
            c["layers"] = pp * c.get("chunks", 1) * R.choice([1, 2])
            c["micro_batches"] = pp * R.choice([1, 2, 3]); c["batch"] = c["micro_batches"] * R.choice([1, 2]); c["seq"] = R.choice([256, 512, 1024])
            c.setdefault("config", {})["tie_word_embeddings"] = False
    if R.random() < .2 and "pp" not in c: c["accum"] = 2
    c.update(world=w, fake=True, ranks=[0], limit=60)
    words = [k, c["model"], f"w{w}"] + [f"{n}{c[n]}" for n in ("tp", "cp", "pp", "hsdp", "layers", "micro_batches", "batch", "seq", "accum", "lora") if n in c]
    words += [c["precision"]] + [str(c[n]) for n in ("optimizer", "reduce", "schedule", "rotate") if n in c] + [n for n in ("mp", "ckpt", "bucket_view", "static_graph") if c.get(n)] + (["noreshard"] if c.get("reshard") is False else [])
    c["id"] = "-".join(words)
    return c

def main():
    seen, out = set(), 0
    while out < int(sys.argv[2]):
        c = draw()
        if c["id"] in seen: continue
        seen.add(c["id"])
        print(json.dumps(c)); out += 1

if __name__ == "__main__": main()
