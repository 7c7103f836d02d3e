"""Peaks of full-size models for validation, both loops, without timing and FLOP counting; rows as in truth/*.jsonl.
usage: rows.py CASES.jsonl OUT.jsonl [--budget SECONDS] [--skip N]"""
import argparse, json, os, sys, time, traceback, warnings
warnings.filterwarnings("ignore"); T0 = time.time()
ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("out"); ap.add_argument("--budget", type=float, default=300); ap.add_argument("--skip", type=int, default=0); ap.add_argument("--direct"); a = ap.parse_args()
import torch, transformers, accelerate
from transformers import Trainer, TrainingArguments, TrainerCallback, default_data_collator
import transformers.models.auto.modeling_auto
import finetune, measure as M, measure_trainer as MT
M.TIMING = False
for i, l in enumerate([a.direct] if a.direct else open(a.cases)):
    c = json.loads(l); loop = c.pop("loop")
    if i < a.skip: continue
    if time.time() - T0 > a.budget: print("budget spent before", i, c["id"]); break
    pid = 0 if a.direct else os.fork()
    if pid == 0:
        t = time.time()
        if not a.direct: finetune.elsewhere(dict(c, loop=loop), "rows.py", [a.cases, a.out])
        try: r = MT.run_case(c) if loop == "trainer" else M.run_case(c, None)
        except BaseException as e: r = dict(case=c, error=repr(e)[:300], tb=traceback.format_exc()[-600:])
        r["loop"] = loop
        open(a.out, "a").write(json.dumps(r) + "\n")
        print(i, c["id"], loop, r.get("error") or "peak %.1f res %.1f MiB" % (r["peak_allocated"] / 2**20, r["peak_reserved"] / 2**20), "%.1fs" % (time.time() - t), flush=True); os._exit(0)
    os.waitpid(pid, 0)
