#!/usr/bin/env python3
"""Random combinations of options: each is answered or refused, and what is answered is consistent.

    random_runs.py MEMCALC [--runs 20000] [--seed 16] [--processes 2] [--show-refused]

Demanded of each run: status 0, 1 or 2; at most 5 s of the processor; at status 2 one line on stderr and nothing else;
else categories that sum to the peak, exact lower bound <= allocated <= reserved, MFU below 1, finite seconds. A finding
is printed as a command line; exit status 1 where there is any.
"""
import argparse
import json
import math
import random
import re
import shlex
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from process import message_problem, run

SCHEMA = Path(__file__).resolve().parents[2] / "docs/run.schema.json"
SECONDS = 12.0  # remedies of loops that generate do so once more for each: of online DPO of 671B 2.8 s, on a busy core 6; else under 2

ENCODERS = "bert-base bert-large roberta-large distilbert-base electra-small-discriminator".split()
DECODERS = ("gpt2 gpt2-xl pythia-70m pythia-1b gpt-neox-20b opt-125m llama-2-7b llama-3-8b llama-3.2-1b llama-3.1-70b tinyllama-1.1b "
            "smollm2-135m mistral-7b mixtral-8x7b qwen2.5-0.5b qwen2.5-7b qwen3-0.6b qwen3-30b-a3b gemma-2b gemma-2-2b gemma-3-1b "
            "gpt-oss-20b deepseek-v2-lite").split()
TEXT_TO_TEXT = "t5-small flan-t5-base bart-base whisper-tiny whisper-small".split()
EXPERTS = "mixtral-8x7b qwen3-30b-a3b gpt-oss-20b deepseek-v2-lite".split()
STAGED = "llama-3.2-1b tinyllama-1.1b smollm2-135m qwen2.5-0.5b qwen3-0.6b gemma-2b llama-3-8b".split()
FAMILIES = "bert gpt2 llama mistral opt qwen2 t5".split()  # --arch
IMAGES = ("vit-base-patch16-224 clip-vit-base-patch32 resnet50 resnet18 convnext_tiny efficientnet_b0 swin_t densenet121 mobilenet_v2 "
          "vgg16").split()

# Values of options that take a number or free text; others have those of the schema, or NUMBERS within its bounds.
VALUES = {
    "--bs": (1, 2, 3, 4, 8, 16), "--seq": (64, 128, 257, 512, 1024), "--target-seq": (16, 128), "--image": (128, 224, 256),
    "--layers": (2, 3, 4, 8), "--hidden": (256, 1024), "--heads": (4, 16), "--kv-heads": (2, 4), "--head-dim": (32, 64),
    "--ffn": (512, 4096), "--vocab": (1000, 32003), "--max-positions": (512, 2048),
    "--checkpointing": ("none", "full", "selective", "every-2", "every-3"), "--float8": ("tensorwise", "tensorwise-gather", "rowwise"),
    "--compile-parts": ("model", "layers", "layers-loss"), "--compile-mode": ("default", "reduce-overhead"), "--dropout": (0, 0.1, 0.5), "--clip-grad": (0, 0.5, 1.0),
    "--accum": (2, 4), "--skipped-steps": (1, 2), "--lora": (1, 8, 64), "--lora-targets": ("all-linear", "q_proj,v_proj", "query,value", "c_attn", "fc1"),
    "--lora-dropout": (0.05, 0.1), "--card": ("mine,24GB,sm89,1008GB/s,165TFLOPS", "mine,80GiB,sm90"), "--memory": (8, 24, 80), "--power-limit": (500, 600), "--margin": (0.5, 2), "--bitsandbytes": ("0.41.1", "0.50"), "--liger-kernel": ("0.8.0", "0.8.2"), "--group-size": (32, 64, 128), "--freeze": ("embed", "layers.0", "mlp", "encoder"),
    "--loader-workers": (1, 4), "--prefetch-factor": (2, 4), "--new-tokens": (1, 7, 64), "--beams": (2, 4), "--gpus": (1, 2, 4, 8, 16),
    "--nodes": (1, 2), "--tp": (2, 4), "--cp": (2, 4), "--ep": (2, 4), "--pp": (2, 4), "--virtual-stages": (2, 3), "--stage-layers": ("2,2", "3,5", "6,6"),
    "--micro-batches": (2, 4, 8), "--hsdp-shard": (2, 4),
    "--gpu": ("h100-sxm", "h200-sxm", "a100-sxm4-80gb", "rtx-4090", "t4", "v100-sxm2-32gb", "l4", "b200-sxm-180gb", "mi300x-192gb", "tpu-v4"),
    "--tokens": ("1e9", "15e12"), "--sample-seconds": (0.001, 0.5), "--sample-bytes": (150528, 4096), "--storage-rate": (1e8, 5e9),
}
NUMBERS = (1, 2, 4)
NOT_DRAWN = {"--model", "--arch"}  # one of them names the model
# Options that exist in a run only beside another one whose value begins so.
NEEDS = {**dict.fromkeys(("--fsdp-param-dtype", "--fsdp-reduce-dtype", "--no-reshard-after-forward", "--hsdp-shard"), ("--parallel", "fsdp")),
         **dict.fromkeys(("--ddp-bucket-view", "--ddp-static-graph"), ("--parallel", "ddp")), "--keep-last-layer": ("--parallel", "fsdp2"),
         "--float8": ("--compile", ""), "--sp": ("--tp", ""), "--loss-parallel": ("--sp", ""), "--bitsandbytes": ("--quantize", "nf4"), "--liger-kernel": ("--liger", ""), "--stage-layers": ("--pp", ""),
         "--group-size": ("--quantize", "gptq4"), "--quant-storage": ("--quantize", "nf4"), "--quantize-head": ("--quantize", "nf4"), "--sample-bytes": ("--storage-rate", ""), "--cp-type": ("--cp", ""), "--schedule": ("--pp", ""),
         "--virtual-stages": ("--schedule", "interleaved"), "--micro-batches": ("--pp", ""), "--beams": ("--new-tokens", ""),
         "--kv-cache-dtype": ("--new-tokens", ""), "--prefetch-factor": ("--loader-workers", ""), "--offload-gradients": ("--offload-optimizer", ""),
         "--lora-targets": ("--lora", ""), "--lora-dropout": ("--lora", ""), "--lora-dtype": ("--lora", ""), "--lora-head": ("--lora", ""),
         "--prepare-kbit": ("--quantize", ""), "--no-prepare-kbit": ("--quantize", ""), "--compile-parts": ("--compile", ""), "--compile-mode": ("--compile", ""),
         "--skipped-steps": ("--precision", "amp-fp16"), "--loss-in-loop": ("--loop", "bare")}

# How often an option is drawn in a run of each kind. What is not named here is drawn in runs of the kind "any".
OFTEN = {
    "single": {"--seq": .7, "--precision": .6, "--loop": .6, "--optimizer": .45, "--checkpointing": .3, "--gpu": .4, "--accum": .15, "--clip-grad": .15,
               "--attn": .15, "--padding": .1, "--target-seq": .3, "--pin-memory": .04, "--tokens": .05, "--dropout": .1, "--compile": .1,
               "--compile-parts": .3, "--compile-mode": .2, "--task": .08, "--layers": .15, "--activation-offload": .06, "--expandable": .08, "--weights-dtype": .1, "--image": .2,
               "--use-cache": .05, "--loss-in-loop": .1, "--skipped-steps": .3, "--offload-optimizer": .06, "--offload-gradients": .5, "--require-fit": .05},
    "loader": {"--loader-workers": .8, "--prefetch-factor": .5, "--pin-memory": .3, "--storage-rate": .5, "--sample-bytes": .5, "--sample-seconds": .4,
               "--gpu": .6, "--seq": .5, "--tokens": .3, "--precision": .4, "--require-fit": .2},
    "sizes": {"--layers": .5, "--hidden": .5, "--heads": .4, "--kv-heads": .2, "--head-dim": .2, "--ffn": .4, "--vocab": .4, "--max-positions": .25,
              "--tie": .2, "--no-tie": .2, "--seq": .6, "--precision": .4, "--loop": .3},
    "infer": {"--infer": 1, "--seq": .7, "--precision": .6, "--new-tokens": .4, "--beams": .2, "--quantize": .3, "--kv-cache-dtype": .4, "--gpu": .4,
              "--group-size": .6, "--quantize-head": .4, "--offload-parameters": .1, "--expandable": .1, "--attn": .15, "--layers": .1, "--padding": .05},
    "tuning": {"--lora": .8, "--quantize": .4, "--seq": .7, "--bf16": .5, "--loop": .5, "--checkpointing": .3, "--lora-targets": .12, "--lora-dropout": .2,
               "--lora-dtype": .15, "--bitsandbytes": .15, "--lora-head": .1, "--prepare-kbit": .25, "--no-prepare-kbit": .15, "--liger": .15, "--liger-kernel": .05,
               "--optimizer": .3, "--gpu": .3, "--layers": .1, "--expandable": .05},
    "frozen": {"--freeze": 1, "--seq": .7, "--bf16": .5, "--loop": .5, "--optimizer": .3, "--gpu": .3, "--checkpointing": .2},
    "torch": {"--gpus": 1, "--parallel": .85, "--seq": .7, "--precision": .6, "--loop": .9, "--checkpointing": .25, "--optimizer": .15, "--nodes": .15,
              "--ddp-bucket-view": .2, "--ddp-static-graph": .2, "--offload-states": .08, "--per-rank": .25, "--compile": .08, "--loss-in-loop": .04},
    "trainer": {"--gpus": 1, "--parallel": 1, "--seq": .8, "--bf16": .8, "--lora": .55, "--quantize": .2, "--quant-storage": .2, "--checkpointing": .4,
                "--accum": .3, "--offload-states": .1, "--weights-dtype": .2, "--optimizer": .15, "--margin": .1, "--per-rank": .1},
    "fsdp": {"--gpus": 1, "--parallel": 1, "--seq": .7, "--precision": .3, "--loop": 1, "--fsdp-param-dtype": .5, "--fsdp-reduce-dtype": .3,
             "--no-reshard-after-forward": .25, "--hsdp-shard": .25, "--keep-last-layer": .15, "--offload-states": .15, "--checkpointing": .25,
             "--compile": .35, "--compile-parts": .3, "--float8": .5, "--per-rank": .2, "--optimizer": .1, "--nodes": .1, "--gpu": .2},
    "mesh": {"--gpus": 1, "--loop": 1, "--seq": .6, "--precision": .5, "--parallel": .5, "--tp": .7, "--sp": .7, "--loss-parallel": .7, "--cp": .4,
             "--cp-type": .5, "--checkpointing": .2, "--per-rank": .2},
    "stages": {"--gpus": 1, "--pp": 1, "--loop": 1, "--seq": .6, "--precision": .4, "--schedule": .8, "--virtual-stages": .7, "--micro-batches": .6,
               "--stage-layers": .3, "--checkpointing": .2, "--per-rank": .3, "--parallel": .2, "--tp": .15},
    "experts": {"--gpus": 1, "--ep": 1, "--loop": 1, "--seq": .6, "--precision": .4, "--framework": .4, "--bf16": .3, "--checkpointing": .2, "--tp": .1,
                "--per-rank": .2},
    "deepspeed": {"--gpus": 1, "--parallel": 1, "--seq": .7, "--loop": .9, "--bf16": .5, "--fp16": .2, "--offload-states": .25, "--offload-parameters": .15,
                  "--cp": .12, "--cp-type": .15, "--deepspeed": .3, "--checkpointing": .2, "--per-rank": .25, "--accum": .1, "--gpu": .2},
    "megatron": {"--framework": 1, "--gpus": 1, "--seq": .8, "--bf16": .7, "--parallel": .3, "--tp": .5, "--sp": .4, "--pp": .3, "--cp": .15, "--ep": .1,
                 "--micro-batches": .4, "--virtual-stages": .5, "--schedule": .5, "--megatron": .4, "--checkpointing": .3, "--per-rank": .25},
}
# Values that mostly fit the kind; a value that stands there twice is drawn twice as often.
BARE, FEW, MANY = ("bare",) * 19 + ("trainer",), (2, 4), (4, 8, 8, 16)
FITTING = {("deepspeed", "--parallel"): ("ds-zero1", "ds-zero2", "ds-zero3"), ("deepspeed", "--loop"): BARE, ("deepspeed", "--gpus"): MANY,
           ("deepspeed", "--cp-type"): ("ulysses",), ("megatron", "--framework"): ("megatron",), ("megatron", "--parallel"): ("megatron-dist", "ddp"),
           ("megatron", "--gpus"): MANY, ("megatron", "--schedule"): ("1f1b", "interleaved", "interleaved"), ("megatron", "--ep"): (2, 2, 4),
           ("trainer", "--gpus"): (2, 4, 8), ("trainer", "--parallel"): ("fsdp2", "fsdp2", "ds-zero1", "ds-zero2", "ds-zero3"),
           ("trainer", "--quantize"): ("nf4", "nf4", "nf4-double"), ("trainer", "--quant-storage"): ("bf16",),
           ("torch", "--loop"): ("bare", "bare", "bare", "trainer"), ("fsdp", "--parallel"): ("fsdp1", "fsdp2", "fsdp2", "fsdp2"),
           ("fsdp", "--loop"): BARE, ("fsdp", "--gpus"): (2, 4, 8), ("fsdp", "--precision"): ("fp32", "bf16"), ("mesh", "--loop"): BARE,
           ("fsdp", "--fsdp-param-dtype"): ("bf16", "bf16", "bf16", "fp16"), ("mesh", "--gpus"): MANY, ("mesh", "--parallel"): ("fsdp2",),
           ("mesh", "--cp-type"): ("all-gather", "ring", "ring"), ("stages", "--loop"): BARE, ("stages", "--gpus"): MANY, ("stages", "--pp"): (2, 2, 4),
           ("stages", "--parallel"): ("fsdp2", "ddp"), ("stages", "--stage-layers"): ("8,8", "7,9", "10,12", "14,14", "12,12"),
           ("experts", "--loop"): BARE, ("experts", "--gpus"): FEW, ("experts", "--ep"): FEW, ("experts", "--framework"): ("megatron",),
           ("infer", "--quantize"): ("none", "nf4", "int8", "gptq4", "gptq4", "awq4"), ("torch", "--parallel"): ("ddp", "ddp", "ddp", "dp", "zero1", "fsdp1", "fsdp2"),
           ("infer", "--precision"): ("bf16", "fp16", "bf16", "fp32"), ("tuning", "--quantize"): ("nf4", "nf4-double", "int8", "none")}
WEIGHTS = {"single": 26, "loader": 5, "sizes": 6, "infer": 8, "tuning": 11, "frozen": 2, "trainer": 8, "torch": 9, "fsdp": 8, "mesh": 5, "stages": 5, "experts": 4,
           "deepspeed": 7, "megatron": 8, "any": 6}
OF_DECODERS = {"trainer": 1, "megatron": 1, "deepspeed": 1, "mesh": 1, "stages": 1, "fsdp": .8, "tuning": .6, "torch": .5, "sizes": .6}


def table_of():
    """{option: its values, () for a flag} of `memcalc estimate`: the schema of a run's record, the numbers of VALUES."""
    def values(row):
        if row["type"] == "boolean": return ()
        if row["type"] == "object":  # --megatron, --deepspeed: one name of the list
            return tuple(name if each["type"] == "boolean" and row is not schema["deepspeed"] else f"{name}={value}"
                         for name, each in row["properties"].items() for value in values(each) or ("true", "false"))
        if row["x-flag"] in VALUES: return VALUES[row["x-flag"]]
        if row.get("x-unit") == "elements": return (1_000_000, 50_000_000)
        least, most = row.get("minimum", 1), row.get("maximum", 1e9)
        return tuple(row.get("enum") or row.get("examples") or [n for n in NUMBERS if least <= n <= most] or [least])
    schema = json.loads(SCHEMA.read_text())["properties"]
    table = {row.get("x-flag", f"--{name}"): values(row) for name, row in schema.items()}
    table.update({row["x-negative-flag"]: () for row in schema.values() if "x-negative-flag" in row})
    table.update({"--per-rank": (), "--require-fit": ()})  # of the answer, not of the run
    return {name: values for name, values in table.items() if name not in NOT_DRAWN}


def draw(generator, table):
    """A command line without the executable."""
    kind = generator.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if kind == "experts": models = EXPERTS
    elif kind == "stages": models = STAGED
    elif generator.random() < OF_DECODERS.get(kind, 0): models = DECODERS
    else: models = generator.choices((ENCODERS, DECODERS, TEXT_TO_TEXT, IMAGES), (3, 5, 2, 3))[0]
    drawn = {name for name, share in OFTEN.get(kind, {}).items() if generator.random() < share}
    if kind == "any": drawn = set(generator.sample(sorted(set(table) - {"--bs"}), generator.randint(1, 4)))
    elif generator.random() < .1: drawn.add(generator.choice(sorted(set(table) - {"--bs"})))
    if models is IMAGES: drawn -= {"--seq", "--task"}
    else: drawn.discard("--image")
    if models is not TEXT_TO_TEXT and generator.random() < .95: drawn.discard("--target-seq")
    chosen = {name: str(generator.choice(FITTING.get((kind, name)) or table[name])) if table[name] else "" for name in sorted(drawn)}
    for name, (other, beginning) in NEEDS.items():  # mostly: now and then it is given all the same, and refused
        fits = other in chosen and chosen[other].startswith(beginning)
        if name in chosen and not fits and generator.random() < .95: del chosen[name]
    name = ["--arch", generator.choice(FAMILIES)] if kind == "sizes" and generator.random() < .5 else ["--model", generator.choice(models)]
    argv = [*name, "--bs", str(generator.choice(table["--bs"]))]
    for name, value in chosen.items(): argv += [name, value] if value else [name]
    return argv


def numbers(value, path=""):
    if isinstance(value, dict):
        for key, each in value.items(): yield from numbers(each, f"{path}.{key}")
    elif isinstance(value, list):
        for i, each in enumerate(value): yield from numbers(each, f"{path}[{i}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool): yield path, value


def report_problem(report):
    """What contradicts itself in an answer; None: nothing."""
    memory, clock = report["memory"], report.get("time") or {}
    total = sum(memory["categories"].values())
    allocated, reserved = memory["peak_allocated_bytes"], memory["peak_reserved_bytes"]
    if total != allocated: return f"categories sum to {total}, allocated {allocated}"
    if any(size < 0 for size in memory["categories"].values()): return "a category below 0"
    if not memory["exact_lower_bound_bytes"] <= allocated <= reserved:
        return f"lower bound {memory['exact_lower_bound_bytes']}, allocated {allocated}, reserved {reserved}"
    for rank in report.get("ranks") or ():
        if rank["peak_allocated_bytes"] > rank["peak_reserved_bytes"]: return f"rank {rank['rank']}: allocated > reserved"
    if not clock.get("mfu", 0) < 1: return f"MFU {clock['mfu']}"
    for path, value in numbers(clock):
        if not math.isfinite(value) or value < 0: return f"time{path} is {value}"
    return None


def problem_of(outcome):
    if outcome.blocked: return "did not end"
    if outcome.status == -signal.SIGXCPU: return f"more than {outcome.seconds:.0f} s"
    if outcome.status < 0: return f"signal {-outcome.status}"
    if outcome.status not in (0, 1, 2): return f"status {outcome.status}: {outcome.err.decode(errors='replace').strip()}"
    if outcome.seconds > SECONDS: return f"{outcome.seconds:.1f} s"
    if outcome.status == 2: return message_problem(outcome) or (outcome.out and "an answer beside the error") or None
    if outcome.err: return "stderr beside an answer: " + outcome.err.decode(errors="replace").strip()[:200]
    # Python reads NaN and Infinity, which JSON lacks; here they are refused.
    def no_number(word): raise ValueError(f"{word} is not JSON")
    try: return report_problem(json.loads(outcome.out, parse_constant=no_number))
    except ValueError as error: return f"not JSON: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memcalc")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show-refused", action="store_true", help="the commonest reasons, digits left out")
    options = parser.parse_args()
    generator, table, start = random.Random(options.seed), table_of(), time.time()
    asked = [draw(generator, table) for _ in range(options.runs)]
    counts, reasons, slowest, found, used = Counter(), Counter(), (0.0, []), 0, Counter()
    with ThreadPoolExecutor(options.processes) as pool:
        outcomes = pool.map(lambda argv: run([options.memcalc, *argv, "--format", "json"]), asked)
        for argv, outcome in zip(asked, outcomes):
            problem = problem_of(outcome)
            counts["found" if problem else "refused" if outcome.status == 2 else "answered"] += 1
            if outcome.status == 2: reasons[re.sub(r"\d+", "N", outcome.err.decode(errors="replace").strip()[16:96])] += 1
            elif not problem: used.update(word for word in argv if word in table)
            slowest = max(slowest, (outcome.seconds, argv), key=lambda each: each[0])
            if problem: print(f"{problem}\n    memcalc {shlex.join(argv)}", flush=True)
    print(f"{options.runs} runs: {counts['answered']} answered, {counts['refused']} refused, {counts['found']} wrong; "
          f"slowest {slowest[0]:.1f} s (memcalc {shlex.join(slowest[1])}); {time.time() - start:.0f} s in all")
    never, rarest = sorted(set(table) - set(used)), used.most_common()[:-9:-1]
    print(f"options in answered runs: {len(table) - len(never)} of {len(table)}; "
          + (f"never {' '.join(never)}; " if never else "") + "seldom " + ", ".join(f"{name} {count}" for name, count in rarest))
    if options.show_refused:
        for reason, count in reasons.most_common(40): print(f"{count:6} {reason}")
    if counts["answered"] < options.runs / 5:
        print("fewer than a fifth were answered: the options that are drawn no longer fit each other")
        return 1
    return 1 if counts["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
