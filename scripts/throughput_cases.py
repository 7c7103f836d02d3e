"""The rows of tests/measured/published/mpt_throughput*.jsonl and megatron_recompute.jsonl as memcalc's options."""
import json
from pathlib import Path

from megatron_cases import micro_batches_option
from memcalc_pages import ROOT, specs_with

SPECS = ROOT / "specs"
CARDS = {"h100_80gb": "h100-sxm", "a100_80gb": "a100-sxm4-80gb", "a100_40gb": "a100-sxm4-40gb"}
NO_DROPOUT = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}


def gpt(row, **more):
    return {"model_type": "gpt2", "n_layer": row["layers"], "n_embd": row["hidden"], "n_head": row["heads"],
            "vocab_size": row["vocabulary"], "n_positions": row["sequence"], "activation_function": "gelu", **more}


def specs_of_triton(memcalc):
    """A directory like specs/ in which flash attention is as fast as Triton's of 2023: by compute capability as
    published_rates.json has it, the H100's in its own measured rates."""
    published, own = Path("measured/published_rates.json"), Path("measured/h100-sxm/rates.json")
    rates, measured = (json.loads((SPECS / path).read_text()) for path in (published, own))
    triton = rates["flash_attention_triton"]
    rates["flash_attention"] |= triton["8"]
    width = 128  # of the heads that were measured: lib/memcalc/spec/published_rates.cc
    of_datasheet = rates["products"]["reference"]["half_share"] * (1 + measured["flash"]["head"] / width)
    measured["flash"] |= {name: share * of_datasheet for name, share in triton["9"].items()}
    return specs_with(memcalc, {published: json.dumps(rates), own: json.dumps(measured)})


def ran_triton(row):
    """Whether attention was Triton's: llm-foundry's submit_benchmarks.py (b2a43a1, 2023-10) takes it by default, and its
    sweep.sh names no other. Of 128 cards and more sweep.py (5e85bd6, 2024-01) does: flash-attn 2.4.2 but for two models."""
    return row["gpus"] < 128 or not row["gpu"].startswith("h100") or row["model"] in ("MPT-13b", "MPT-30b")


def mpt_case(row, triton_specs):
    argv = ["--task", "causal", "--loop", "bare", "--precision", "fp32", "--optimizer", "adamw-for", "--gpu", CARDS[row["gpu"]],
            "--gpus", row["gpus"], "--parallel", "fsdp1", "--fsdp-param-dtype", "bf16", "--fsdp-reduce-dtype",
            "bf16" if row["mixed_precision"] == "PURE" else "fp32", "--bs", row["micro_batch"], "--seq", row["sequence"],
            "--accum", row["micro_batches"], "--checkpointing", row["checkpointing"]]
    if ran_triton(row): argv += ["--specs", triton_specs]
    return gpt(row, **NO_DROPOUT), [*argv, "--attn", "flash"]


def megatron_case(row):
    argv = ["--framework", "megatron", "--precision", "fp16", "--gpu", "a100-sxm4-80gb", "--gpus", row["gpus"],
            "--tp", row["tp"], "--pp", row["pp"], "--bs", row["micro_batch"], "--seq", row["sequence"],
            micro_batches_option(row["pp"]), row["micro_batches"], "--checkpointing", row["checkpointing"],
            "--megatron", "attention-backend=unfused"]
    if row["virtual_stages"] > 1: argv += ["--virtual-stages", row["virtual_stages"], "--schedule", "interleaved"]
    if row["sequence_parallel"]: argv.append("--sp")
    return gpt(row), argv
