"""Writes max_batch_cases.jsonl: the largest batch on an H200 by memcalc, for models of the measured rows.
usage: max_batch_cases.py MEMCALC > max_batch_cases.jsonl"""
import json, os, subprocess, sys, tempfile

from cases import write
from models import MODELS

CASES = [  # model, sequence, precision, more
    ("bert-large", 512, "amp-fp16", {}), ("gpt2", 1024, "bf16", {}), ("llama-3.2-1b", 2048, "bf16", {}),
    ("tinyllama-1.1b", 2048, "amp-bf16", {}), ("qwen2.5-0.5b", 1024, "bf16", {}), ("t5-base", 512, "bf16", {}),
    ("pythia-410m", 2048, "bf16", {}), ("vit-base", 0, "amp-bf16", {}), ("llama-2-7b", 2048, "bf16", {"lora": 16})]

with tempfile.TemporaryDirectory() as folder:
    for model, seq, precision, more in CASES:
        task, spec = MODELS[model]
        path = os.path.join(folder, f"{model}.json")
        with open(path, "w") as file: json.dump(spec, file)
        command = [sys.argv[1], "max-batch", "--model", path, "--precision", precision, "--task", task, "--loop", "bare",
                   "--optimizer", "adamw", "--gpu", "h200-sxm", "--format", "json"]
        if seq: command += ["--seq", str(seq)]
        if task in ("causal", "seq2seq"): command += ["--use-cache"]
        for key, value in more.items(): command += [f"--{key}", str(value)]
        facts = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["facts"]
        write([{"id": f"{model}-largest-{precision}", "model": model, "precision": precision, "loop": "bare", "optimizer": "adamw",
                "batch_size": facts["largest"], **({"sequence_length": seq} if seq else {}), **more}])
