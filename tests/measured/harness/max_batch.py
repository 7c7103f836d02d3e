"""The largest batch on the card: for each case the batch that memcalc names, and the next ones until one runs out of
memory (or, where it does not run, the ones before it). One forked child per run, one at a time: a run needs the card
for itself.
usage: max_batch.py CASES.jsonl OUT.jsonl [--budget SECONDS]"""
import argparse, gc, json, os, sys, time, traceback, warnings
warnings.filterwarnings("ignore"); T0 = time.time()
ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("out"); ap.add_argument("--budget", type=float, default=100); a = ap.parse_args()
import torch, transformers
import transformers.models.auto.modeling_auto
import cases, finetune, measure as M
M.TIMING = False
MOST = 4  # runs of a case

def outcome_of(case):
    """True: three steps ran; False: out of memory; None: something else, or the budget is spent."""
    if time.time() - T0 > a.budget: print("budget spent before", case["id"], case["batch_size"]); return None
    read, write = os.pipe(); pid = os.fork()
    if pid == 0:
        t = time.time()
        try: r = M.run_case(case, None); r["outcome"] = "runs"
        except torch.OutOfMemoryError as e: r = dict(cases.head(case), outcome="out of memory", error=str(e)[:600], reserved=torch.cuda.memory_reserved(), allocated=torch.cuda.memory_allocated(), retries=torch.cuda.memory_stats()["num_alloc_retries"], nvml=M.nvml_used(), gpu=torch.cuda.get_device_name(0), gpu_total=torch.cuda.get_device_properties(0).total_memory)
        except BaseException as e: r = dict(cases.head(case), outcome="failed", error=repr(e)[:600], tb=traceback.format_exc()[-600:])
        r["wall_s"] = time.time() - t
        open(a.out, "a").write(json.dumps(r) + "\n")
        print(case["id"], case["batch_size"], r["outcome"], "reserved %.0f MiB" % (r.get("peak_reserved", r.get("reserved", 0)) / 2**20), "retries", r.get("alloc_retries", r.get("retries")), "nvml", r.get("nvml_after_train", r.get("nvml")), r.get("error", "")[:150], "%.1fs" % r["wall_s"], flush=True)
        os.write(write, {"runs": b"1", "out of memory": b"0"}.get(r["outcome"], b"?")); os._exit(0)
    os.close(write); said = os.read(read, 1); os.close(read); os.waitpid(pid, 0)
    return {b"1": True, b"0": False}.get(said)

for case in cases.read(a.cases):
    first = outcome_of(case)
    if first is None: continue
    for _ in range(MOST - 1):
        case = dict(case, batch_size=case["batch_size"] + (1 if first else -1))
        if outcome_of(case) is not first: break
