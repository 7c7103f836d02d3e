"""Peaks of full-size models for validation, both loops, without timing and FLOP counting; rows as in
tests/measured/trainer.jsonl.
usage: rows.py CASES.jsonl OUT.jsonl [--budget SECONDS] [--skip N] [--jobs N]
With several jobs on the card NVML's readings are nobody's own, so they are left out."""
import argparse, json, os, sys, time, traceback, warnings
warnings.filterwarnings("ignore"); T0 = time.time()
ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("out"); ap.add_argument("--budget", type=float, default=300); ap.add_argument("--skip", type=int, default=0); ap.add_argument("--jobs", type=int, default=1); ap.add_argument("--direct"); a = ap.parse_args()
import torch, transformers, accelerate
from transformers import Trainer, TrainingArguments, TrainerCallback, default_data_collator
import transformers.models.auto.modeling_auto
import cases, finetune, measure as M, measure_trainer as MT
from op_requests import pool
M.TIMING = False


def measure(i, c):
    loop = c["loop"] if "loop" in c else "bare"; t = time.time()
    if not a.direct: finetune.elsewhere(c, "rows.py", [a.cases, a.out])
    try: r = MT.run_case(c) if loop == "trainer" else M.run_case(c, None)
    except BaseException as e: r = dict(cases.head(c), error=repr(e)[:300], tb=traceback.format_exc()[-600:])
    if a.jobs > 1: r = {k: v for k, v in r.items() if not k.startswith("nvml")}
    open(a.out, "a").write(json.dumps(r) + "\n")
    print(i, c["id"], loop, r.get("error") or "peak %.1f res %.1f MiB" % (r["peak_allocated"] / 2**20, r["peak_reserved"] / 2**20), "%.1fs" % (time.time() - t), flush=True)


if a.direct: measure(0, cases.flat(json.loads(a.direct))); os._exit(0)
todo = [(i, c) for i, c in enumerate(cases.read(a.cases)) if i >= a.skip]
pool([(c["id"], (lambda i=i, c=c: measure(i, c))) for i, c in todo], a.jobs, lambda s: None, T0 + a.budget)
