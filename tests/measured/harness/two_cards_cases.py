"""Cases for two_cards.py: ten layouts of one model, and runs on two cards drawn at random.

    two_cards_cases.py SEED [KINDS MODEL LAYERS] > two_cards_cases_SEED.jsonl

KINDS: "first" (those of seed 5003), "more" (of seed 7003: each way with more of its options, encoders and images among them),
"third" (of seed 8003: sequence parallelism, both kinds of context parallelism and DeepSpeed's ZeRO among them, layouts first),
"fourth" (of seed 10003: each way once, the Trainer under torchrun among them; what is profiled comes last, in processes of its own)
"fifth" (of seed 11003: layouts of four sequences a card, some of them and a run that the host binds once more later; what is
recorded or profiled comes last. Its MODEL may be "drawn": one of FRESH), or "turns" and "sixth" (of seed 12003: the layouts, for
layout_turns.py, and the other runs, for two_cards.py and measure_deepspeed.py), or "later-turns" and "seventh" (of seed 13003: the same
with tensor parallelism of another model, more of them profiled, and drawn runs).
"""
import random, sys

import cases

R = random.Random(int(sys.argv[1]))
KINDS, MODEL, LAYERS = (sys.argv[2:] + ["first", "mistral-7b", "12"][len(sys.argv) - 2:])[:3]
MIXED = dict(fsdp_param_dtype="bf16", fsdp_reduce_dtype="fp32", precision="fp32", weights_dtype="fp32")
PRECISIONS = {"fp32": "fp32", "amp-bf16": "fp32", "bf16": "bf16"}
COMMON = dict(task="causal", loop="bare", optimizer="adamw", accumulation_steps=1, max_grad_norm=0.0, attention="sdpa", gpus=2)
DECODERS = ["tinyllama-1.1b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-0.6b", "gemma-2b", "olmo2-1b", "phi-2", "pythia-1b", "gpt2-medium", "gpt2-large", "opt-1.3b"]
SPLIT = ["tinyllama-1.1b", "qwen2.5-1.5b", "qwen3-0.6b", "olmo2-1b"]  # two ranks divide their heads
MORE = DECODERS + ["llama-3.2-1b", "smollm2-135m", "gpt2", "phi3-mini"]
OTHERS = ["bert-large", "bert-large-mlm", "roberta-large-mlm", "vit-base", "vit-large"]
FEWER = {"phi3-mini": 12, "mistral-7b": 8, "phi-2": 16}  # layers: what two cards build in seconds
DEEPSPEED = [("reduce_bucket_size", 500000000), ("stage3_max_live_parameters", 1000000000), ("stage3_max_reuse_distance", 1000000000), ("stage3_param_persistence_threshold", 100000), ("stage3_prefetch_bucket_size", 50000000), ("sub_group_size", 1000000000)]
LATER = ("third", "fourth", "fifth")
FRESH = ["phi-4-mini", "granite-3.0-8b", "olmo-2-7b", "gemma-2-9b"]  # of which no layout was measured
IMAGES = ["resnet152", "convnext_base", "vit-large", "vgg16"]
TRACED = ("ddp-b2", "fsdp2-b2", "fsdp1-b2", "zero1-b2", "tp2-b4", "fsdp2-b1x2")
if KINDS in ("turns", "sixth"): FRESH = [m for m in FRESH if m != "phi-4-mini"]
LATER_FRESH = ["granite-3.0-8b", "qwen3-8b", "falcon3-7b", "gemma-7b", "starcoder2-7b", "yi-6b", "llama-3.2-3b", "deepseek-llm-7b", "olmo-7b", "phi-3.5-mini"]  # of 1B to 8B, of which none was by then
if MODEL == "drawn": MODEL = R.choice(LATER_FRESH if KINDS in ("later-turns", "seventh") else FRESH)
WIDE = dict(model=MODEL, layers=int(LAYERS), precision="bf16", weights_dtype="bf16", sequence_length=2048)


def layouts():
    """Of some layers of a large model: four sequences of 2,048 tokens in a step."""
    ways = {"ddp-b2": dict(parallel="ddp"), "zero1-b2": dict(parallel="zero1"), "ddp-b2-ckpt": dict(parallel="ddp", checkpointing="full"), "fsdp2-b2": dict(parallel="fsdp2"), "fsdp2-b2-noreshard": dict(parallel="fsdp2", no_reshard_after_forward=True),
            "fsdp2-b1x2": dict(parallel="fsdp2", batch_size=1, accumulation_steps=2), "fsdp2-b2-ckpt": dict(parallel="fsdp2", checkpointing="full"), "fsdp1-b2": dict(parallel="fsdp1"),
            "tp2-b4": dict(tp=2, batch_size=4, optimizer="adamw-for"), "pp2-1f1b-b1x4": dict(pp=2, schedule="1f1b", micro_batches=4, batch_size=1)}
    for name, way in ways.items():
        how = dict(time_s=1.6, limit=22, **({} if KINDS == "fourth" else dict(beside=name in ("ddp-b2", "fsdp2-b2", "pp2-1f1b-b1x4"), **(dict(trace_step=True, trace_steps=2) if name in ("ddp-b2", "fsdp2-b2", "fsdp2-b2-ckpt", "tp2-b4", "pp2-1f1b-b1x4") else {})) if KINDS == "third" else dict(trace_step=True, **(dict(trace_steps=3) if KINDS == "more" else {})) if name in ("ddp-b2", "fsdp2-b2", "fsdp2-b2-ckpt", "fsdp1-b2", "tp2-b4", "zero1-b2") else {}))
        run = {**COMMON, **WIDE, "batch_size": 2, **way}
        if "pp" in run: del run["accumulation_steps"]
        yield dict(id=f"{MODEL.split('-7b')[0] if KINDS not in LATER else MODEL + '-'}{LAYERS}l-w2-{name}", **run, **how)
    for name, way in {"b2": {}, "b2-ckpt": dict(checkpointing="full")}.items() if KINDS == "more" else {"b2": {}}.items() if KINDS in LATER else ():  # what one card takes for the same
        yield dict(id=f"{MODEL.split('-7b')[0] if KINDS not in LATER else MODEL + '-'}{LAYERS}l-w1-{name}", **{**COMMON, **WIDE, "batch_size": 2, "gpus": 1, "parallel": "none", **way}, time_s=1.6, limit=22, **(dict(trace_step=True, trace_steps=3) if KINDS != "fourth" else {}))


def layouts_of_four():
    """Of some layers of a model that nobody laid out before: eight sequences of 2,048 tokens in a step; first the layouts, then some of them again."""
    ways = {"ddp-b4": dict(parallel="ddp"), "zero1-b4": dict(parallel="zero1"), "ddp-b4-ckpt": dict(parallel="ddp", checkpointing="full"), "fsdp2-b4": dict(parallel="fsdp2"), "fsdp2-b4-noreshard": dict(parallel="fsdp2", no_reshard_after_forward=True),
            "fsdp2-b2x2": dict(parallel="fsdp2", batch_size=2, accumulation_steps=2), "fsdp2-b4-ckpt": dict(parallel="fsdp2", checkpointing="full"), "fsdp1-b4": dict(parallel="fsdp1"), "fsdp1-b4-ckpt": dict(parallel="fsdp1", checkpointing="full"),
            "ddp-b2x2": dict(parallel="ddp", batch_size=2, accumulation_steps=2)}
    for stage in (2, 3): ways["ds-zero%d-b4" % stage] = dict(parallel="zero%d" % stage, framework="deepspeed", deepspeed=dict(DEEPSPEED if stage == 3 else DEEPSPEED[:1]))
    for name, way in {**ways, "w1-b4": dict(gpus=1, parallel="none")}.items():
        run = {**COMMON, **WIDE, "batch_size": 4, **way}
        yield dict(id=f"{MODEL}-{LAYERS}l-{name if name[0] == 'w' else 'w2-' + name}", **run, time_s=2.8, limit=24, beside=name in ("ddp-b4", "fsdp2-b4", "fsdp1-b4"))


def base(models):
    precision = R.choice(["amp-bf16", "bf16", "bf16"])
    length = R.choice([512, 1024, 2048])
    model = R.choice(models)
    if model.startswith("gpt2"): length = min(length, 1024)
    c = {**COMMON, "model": model, "precision": precision, "weights_dtype": PRECISIONS[precision], "sequence_length": length, "batch_size": max(1, R.choice([4096, 8192, 16384]) // length)}
    if R.random() < .3: c["checkpointing"] = "full"
    return c


def drawn():
    """Each way once, in a drawn order."""
    kinds = ["ddp", "zero1", "fsdp1", "fsdp2", "fsdp2-mixed", "fsdp2-offload", "tp", "pp", "cp", "fsdp2-lora"]
    R.shuffle(kinds)
    for kind in kinds:
        c = base(SPLIT if kind in ("tp", "pp", "cp") else [m for m in DECODERS if m not in ("gpt2-medium", "gpt2-large", "opt-1.3b", "phi-2")] if "lora" in kind else DECODERS)
        if kind in ("ddp", "zero1", "fsdp1"): c["parallel"] = kind
        elif kind in ("tp", "cp"): c.update({kind: 2, "optimizer": "adamw-for" if kind == "tp" else "adamw"})
        elif kind == "pp": c.update(pp=2, schedule=R.choice(["gpipe", "1f1b", "interleaved"]), micro_batches=R.choice([4, 8]), batch_size=R.choice([1, 2]), tie=False, precision="bf16", weights_dtype="bf16"); c.pop("checkpointing", None); c.pop("accumulation_steps")
        else:
            c["parallel"] = "fsdp2"
            if R.random() < .3: c["no_reshard_after_forward"] = True
        if c.get("schedule") == "interleaved": c["virtual_stages"] = 2; c["layers"] = 16
        if kind in ("fsdp1", "fsdp2-mixed", "fsdp2-offload", "fsdp2-lora") and (kind != "fsdp1" or R.random() < .5): c.update(MIXED)
        if kind == "cp": c["cp_type"] = R.choice(["all-gather", "ring"]); c["sequence_length"] = 4096; c["batch_size"] = R.choice([1, 2])
        if kind == "fsdp2-offload": c.update(layers=4, offload_states="host", offload_parameters="host"); c.pop("no_reshard_after_forward", None)
        if kind == "fsdp2-lora": c["lora"] = R.choice([8, 16]); c.pop("no_reshard_after_forward", None)
        if kind not in ("pp", "cp") and R.random() < .35: c["accumulation_steps"] = R.choice([2, 4])
        words = [kind, c["model"]] + [f"{n}{c[n]}" for n in ("layers", "batch_size", "sequence_length", "accumulation_steps", "micro_batches", "lora") if c.get(n, 1) != 1] + [c["precision"]]
        words += [str(c[n]) for n in ("schedule", "cp_type") if n in c] + [n for n in ("checkpointing", "no_reshard_after_forward") if c.get(n)]
        yield dict(id="w2-" + "-".join(words), **c, time_s=1.2, limit=20, **(dict(trace_step=True) if kind in ("fsdp2", "fsdp2-mixed", "ddp") else {}))


def more():
    """Each way with its options, in a drawn order: what is bound by the card, the links and the host."""
    kinds = ["ddp", "ddp-other", "ddp-accumulated", "zero1", "fsdp1", "fsdp1-mixed", "fsdp2", "fsdp2-other", "fsdp2-accumulated", "fsdp2-mixed", "fsdp2-offload", "tp", "pp-1f1b", "pp-interleaved", "cp-ring", "fsdp2-lora"]
    if KINDS == "third": kinds = [k for k in kinds if k not in ("fsdp2-offload", "pp-1f1b", "fsdp1-mixed")] + ["tp-sequence", "pp-gpipe", "cp-all-gather", "ds-zero1", "ds-zero2", "ds-zero3"]
    R.shuffle(kinds)
    for kind in kinds:
        way, _, option = kind.partition("-")
        c = base(SPLIT + ["llama-3.2-1b"] if way in ("tp", "pp", "cp") else OTHERS if option == "other" else ["tinyllama-1.1b", "qwen2.5-0.5b", "llama-3.2-1b"] if option in ("lora", "offload") else MORE + ["mistral-7b"])
        if c["model"] in FEWER: c["layers"] = FEWER[c["model"]]
        if c["model"] == "gpt2": c["sequence_length"] = min(c["sequence_length"], 1024)
        if option == "other":
            c.pop("task"); c["sequence_length"] = R.choice([128, 256, 512]); c["batch_size"] = R.choice([8, 16, 32, 64]); c["other"] = True
            if c["model"].startswith("vit"): del c["sequence_length"]
        if way in ("ddp", "zero1", "fsdp1", "fsdp2"): c["parallel"] = way
        if way == "tp": c.update(tp=2, optimizer="adamw-for")
        if option == "sequence": c.update(sp=True, tie=False, optimizer="adamw")
        if way == "ds": c.update(parallel=kind, framework="deepspeed", deepspeed=dict(DEEPSPEED if option == "zero3" else DEEPSPEED[:1]), precision="bf16", weights_dtype="bf16")
        if way == "cp": c.update(cp=2, cp_type=option, sequence_length=4096, batch_size=R.choice([1, 2]))
        if way == "pp":
            c.update(pp=2, schedule=option, micro_batches=R.choice([4, 8]), batch_size=R.choice([1, 2, 4]), tie=False, precision="bf16", weights_dtype="bf16"); c.pop("checkpointing", None); c.pop("accumulation_steps")
            if option == "interleaved": c["virtual_stages"] = 2
            if option == "interleaved" and c["model"] in ("tinyllama-1.1b",): c["layers"] = 20
        if option in ("mixed", "offload", "lora"): c.update(MIXED)
        if option == "accumulated": c["accumulation_steps"] = R.choice([2, 4]); c["batch_size"] = max(1, c["batch_size"] // 2)
        if way == "fsdp2" and option not in ("lora", "offload") and R.random() < .4: c["no_reshard_after_forward"] = True
        if option == "offload": c.update(layers=4, offload_states="host", offload_parameters="host", batch_size=R.choice([1, 2]))
        if option == "lora": c["lora"] = R.choice([8, 16])
        words = [kind, c["model"]] + [f"{n}{c[n]}" for n in ("layers", "batch_size", "sequence_length", "accumulation_steps", "micro_batches", "lora") if c.get(n, 1) != 1] + [c["precision"]]
        words += [n for n in ("checkpointing", "no_reshard_after_forward") if c.get(n)]
        if KINDS == "third": yield dict(id="w2-" + "-".join(words), **c, time_s=1.6, limit=22, **(dict(trace_step=True, trace_steps=2) if way == "cp" or kind in ("tp-sequence", "fsdp2", "fsdp2-accumulated", "zero1") else {})); continue
        yield dict(id="w2-" + "-".join(words), **c, time_s=2, limit=22, **(dict(trace_step=True, trace_steps=2) if kind in ("ddp", "fsdp1", "fsdp2", "fsdp2-accumulated", "fsdp2-mixed", "zero1") else {}))


def fourth():
    """Each way once, in a drawn order."""
    kinds = ["ddp", "ddp-accumulated", "zero1", "fsdp1", "fsdp2", "fsdp2-accumulated", "fsdp2-lora", "tp", "tp-sequence", R.choice(["cp-ring", "cp-all-gather"]), "trainer-ddp", "trainer-fsdp2"]
    R.shuffle(kinds)
    for kind in kinds:
        way, _, option = kind.partition("-")
        c = base([m for m in SPLIT if m != "olmo2-1b"] + ["llama-3.2-1b"] if way == "tp" else SPLIT + ["llama-3.2-1b"] if way == "cp" else ["tinyllama-1.1b", "qwen2.5-0.5b", "llama-3.2-1b"] if option == "lora" else ["tinyllama-1.1b", "olmo2-1b", "pythia-1b", "phi-2"] if way == "trainer" else MORE)
        if c["model"] in FEWER: c["layers"] = FEWER[c["model"]]
        if c["model"] == "gpt2": c["sequence_length"] = min(c["sequence_length"], 1024)
        if way in ("ddp", "zero1", "fsdp1", "fsdp2"): c["parallel"] = way
        if way == "tp": c.update(tp=2, optimizer="adamw-for")
        if option == "sequence": c.update(sp=True, tie=False, optimizer="adamw")
        if way == "cp": c.update(cp=2, cp_type=option, sequence_length=4096, batch_size=R.choice([1, 2]))
        if way == "trainer": c.update(loop="trainer", optimizer="adamw-fused", max_grad_norm=1.0, pin_memory=True, parallel=option, precision="amp-bf16", weights_dtype="fp32")
        if option == "lora" or way in ("fsdp1", "fsdp2") and R.random() < .4: c.update(MIXED)
        if option == "lora": c["lora"] = R.choice([8, 16])
        if option == "accumulated": c["accumulation_steps"] = R.choice([2, 4]); c["batch_size"] = max(1, c["batch_size"] // 2)
        if way == "fsdp2" and option != "lora" and R.random() < .4: c["no_reshard_after_forward"] = True
        words = [kind, c["model"]] + [f"{n}{c[n]}" for n in ("layers", "batch_size", "sequence_length", "accumulation_steps", "lora") if c.get(n, 1) != 1] + [c["precision"]]
        words += [n for n in ("checkpointing", "no_reshard_after_forward") if c.get(n)]
        yield dict(id="w2-" + "-".join(words), **c, time_s=1.6, limit=26, **(dict(timed_steps=14) if way == "trainer" else {}))


def fifth():
    """Each way once, in a drawn order."""
    kinds = ["ddp-image", "ddp-image", "fsdp2-lora", "trainer-fsdp1", "fsdp1", "fsdp1-mixed", "tp", "tp-sequence", "pp-" + R.choice(["1f1b", "interleaved", "gpipe"]), "trainer-fsdp2"]
    R.shuffle(kinds); images = R.sample(IMAGES, 2)
    for kind in kinds:
        way, _, option = kind.partition("-")
        c = base([m for m in SPLIT if m != "olmo2-1b"] + ["llama-3.2-1b"] if way in ("tp", "pp") else ["tinyllama-1.1b", "qwen2.5-0.5b", "llama-3.2-1b"] if option == "lora" else ["tinyllama-1.1b", "olmo2-1b", "pythia-1b", "phi-2"] if way == "trainer" else MORE)
        if c["model"] in FEWER: c["layers"] = FEWER[c["model"]]
        if c["model"] == "gpt2": c["sequence_length"] = min(c["sequence_length"], 1024)
        if option == "image":
            for key in ("task", "sequence_length", "attention", "checkpointing"): c.pop(key, None)
            c.update(model=images.pop(), batch_size=R.choice([32, 64, 128]), other=True)
            if c["model"].startswith("vit"): c["attention"] = "sdpa"
        if way in ("ddp", "fsdp1", "fsdp2"): c["parallel"] = way
        if way == "tp": c.update(tp=2, optimizer="adamw-for")
        if option == "sequence": c.update(sp=True, tie=False, optimizer="adamw")
        if way == "pp":
            c.update(pp=2, schedule=option, micro_batches=R.choice([4, 8]), batch_size=R.choice([2, 4]), tie=False, precision="bf16", weights_dtype="bf16"); c.pop("checkpointing", None); c.pop("accumulation_steps")
            if option == "interleaved": c["virtual_stages"] = 2
            if option == "interleaved" and c["model"] == "tinyllama-1.1b": c["layers"] = 20
        if way == "trainer": c.update(loop="trainer", optimizer="adamw-fused", max_grad_norm=1.0, pin_memory=True, parallel=option, precision="amp-bf16", weights_dtype="fp32")
        if option in ("lora", "mixed"): c.update(MIXED)
        if option == "lora": c["lora"] = R.choice([8, 16])
        words = [kind, c["model"]] + [f"{n}{c[n]}" for n in ("layers", "batch_size", "sequence_length", "accumulation_steps", "micro_batches", "lora") if c.get(n, 1) != 1] + [c["precision"]] + [n for n in ("checkpointing",) if c.get(n)]
        yield dict(id="w2-" + "-".join(words), **c, time_s=2, limit=26, **(dict(timed_steps=14) if way == "trainer" else {}))


def in_order():
    """Layouts, other runs with a small one of theirs again and again between them, layouts again, DeepSpeed's, what is recorded or profiled."""
    wide, other = [c for c in layouts_of_four() if "framework" not in c], [*fifth()]
    small = next(c for c in other if c["id"].startswith("w2-tp-" + c["model"]))
    again = lambda c, n: dict(c, id=f"{c['id']}-again{n}", beside=True)
    found = [*wide, *other[:4], again(small, 1), *other[4:7], again(small, 2), *other[7:], again(small, 3)]
    found += [again(c, 1) for c in wide if c["id"].endswith(("w2-ddp-b4-ckpt", "w2-fsdp2-b4-ckpt", "w2-fsdp2-b4"))]
    found += [c for c in layouts_of_four() if "framework" in c]
    found += [dict(c, id=c["id"] + "-recorded", time_s=0, history=True) for c in other if c.get("parallel") == "fsdp1"][:2]
    return found + [dict(c, id=c["id"] + "-profiled", time_s=.3, trace_step=True, trace_steps=3, beside=False) for c in wide if c["id"].endswith(("w2-ddp-b4-ckpt", "w2-fsdp2-b4-ckpt", "w2-fsdp1-b4"))]


def in_turns():
    """Layouts and what one card takes; some are profiled in the end."""
    for c in layouts_of_four():
        if "framework" in c: continue
        name = c["id"].split("l-", 1)[1]
        yield dict(c, time_s=1.3, beside=False, **(dict(trace_step=True) if name in ("w1-b4", "w2-ddp-b4", "w2-fsdp1-b4") else {}))


def in_later_turns():
    """The same and a LLaMA's tensor parallelism; four layouts and one card's step are profiled in the end."""
    found = [c for c in layouts_of_four() if "framework" not in c]
    found.append({k: v for k, v in dict(found[-1], id="yi-6b-6l-w2-tp2-b4", model="yi-6b", layers=6, gpus=2, tp=2, optimizer="adamw-for").items() if k != "parallel"})
    for c in found:
        name = c["id"].split("l-", 1)[1]
        yield dict(c, time_s=1.2, beside=False, **(dict(trace_step=True) if name in ("w1-b4", "w2-ddp-b4", "w2-fsdp2-b4", "w2-fsdp1-b4", "w2-ddp-b4-ckpt", "w2-tp2-b4") else {}))


def sixth():
    """Some ways, drawn; what is not understood, profiled: an image model under DDP, FSDP1's memory in both ranks, DeepSpeed's ZeRO."""
    kinds = R.sample(["ddp", "ddp-accumulated", "zero1", "fsdp2", "fsdp2-accumulated", "tp", "pp-1f1b", "cp-ring", "trainer-ddp", "trainer-fsdp2"], 5)
    for kind in kinds:
        way, _, option = kind.partition("-")
        c = base([m for m in SPLIT if m != "olmo2-1b"] + ["llama-3.2-1b"] if way in ("tp", "pp", "cp") else ["tinyllama-1.1b", "olmo2-1b", "pythia-1b", "phi-2"] if way == "trainer" else MORE)
        if c["model"] in FEWER: c["layers"] = FEWER[c["model"]]
        if c["model"] == "gpt2": c["sequence_length"] = min(c["sequence_length"], 1024)
        if way in ("ddp", "zero1", "fsdp2"): c["parallel"] = way
        if way == "tp": c.update(tp=2, optimizer="adamw-for")
        if way == "cp": c.update(cp=2, cp_type=option, sequence_length=4096, batch_size=R.choice([1, 2]))
        if way == "pp": c.update(pp=2, schedule=option, micro_batches=R.choice([4, 8]), batch_size=R.choice([2, 4]), tie=False, precision="bf16", weights_dtype="bf16"); c.pop("checkpointing", None); c.pop("accumulation_steps")
        if way == "trainer": c.update(loop="trainer", optimizer="adamw-fused", max_grad_norm=1.0, pin_memory=True, parallel=option, precision="amp-bf16", weights_dtype="fp32")
        if option == "accumulated": c["accumulation_steps"] = R.choice([2, 4]); c["batch_size"] = max(1, c["batch_size"] // 2)
        words = [kind, c["model"]] + [f"{n}{c[n]}" for n in ("layers", "batch_size", "sequence_length", "accumulation_steps", "micro_batches") if c.get(n, 1) != 1] + [c["precision"]] + [n for n in ("checkpointing",) if c.get(n)]
        yield dict(id="w2-" + "-".join(words), **c, time_s=1.4, limit=22, **(dict(timed_steps=12) if way == "trainer" else {}))
    if KINDS == "seventh": return
    image = dict(COMMON, model="vgg16", batch_size=128, precision="bf16", weights_dtype="bf16", parallel="ddp")
    for key in ("task", "attention"): del image[key]
    yield dict(id="w2-ddp-image-vgg16-batch_size128-bf16", **image, other=True, time_s=.6, limit=20, beside=False, trace_step=True, trace_steps=3)
    yield dict(id="w2-fsdp1-qwen3-0.6b-batch_size8-sequence_length512-amp-bf16-recorded", **{**COMMON, "model": "qwen3-0.6b", "batch_size": 8, "sequence_length": 512, "precision": "amp-bf16", "weights_dtype": "fp32", "parallel": "fsdp1"}, history=True, ranks=[0, 1], limit=20)
    for c in layouts_of_four():
        if "framework" in c: yield dict(c, time_s=1.6, limit=30, beside=False, trace_step=True, trace_steps=2)


IN_TURNS = {"fifth": in_order, "turns": in_turns, "sixth": sixth, "later-turns": in_later_turns, "seventh": sixth}


def described(case):
    """A plain loop over a decoder holds its cache, but not with checkpointing, nor in stages."""
    if case.pop("other", False): return case
    if not case.get("checkpointing") and "pp" not in case and (KINDS not in ("sixth", "seventh") or case["loop"] != "trainer"): case["use_cache"] = True  # the Trainer none: seed 10003 told its DDP with one
    return case


if __name__ == "__main__":
    if KINDS in IN_TURNS: cases.write(map(described, IN_TURNS[KINDS]())); sys.exit()
    found = [*(drawn() if KINDS == "first" else fourth() if KINDS == "fourth" else more()), *layouts()]
    if KINDS in LATER: found.sort(key=lambda c: 2 if c.get("framework") else "w2-" == c["id"][:3])  # layouts, other runs, DeepSpeed's
    if KINDS == "fourth": found += [dict(c, id=c["id"] + "-profiled", time_s=.3, trace_step=True, trace_steps=3, beside=False) for c in found if c["id"].rsplit("-w2-")[-1] in TRACED or c["id"].endswith("-w1-b2")]
    cases.write(map(described, found))
