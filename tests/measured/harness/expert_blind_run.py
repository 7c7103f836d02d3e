"""Times the cases of expert_blind.py, each in a process of its own: expert_blind_run.py CASES.jsonl OUT.jsonl SECONDS. A tiny LLaMA runs after
each, in its process, so that the bytes of a run are its own; what stood before it is the LLaMA after the run before."""
import gc, json, os, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import blind_steps, expert_parts, profile_steps

cases, out, seconds = sys.argv[1:]
end = time.time() + float(seconds)
lines = [json.loads(line) for line in Path(cases).read_text().splitlines()]
import torch, transformers.optimization  # noqa
import measure, models, finetune  # noqa
from importlib import import_module
for kind in ("llama", "gpt_oss", "gpt2", "qwen3_moe", "opt", "mixtral", "bert", "roberta"):
    try: import_module(f"transformers.models.{kind}.modeling_{kind}")
    except ImportError: pass
profile_steps.DEVICE = "cuda"


def tiny():
    model, batch = expert_parts.build("llama", 4, "bf16", "cuda")
    rows = []
    for _ in range(8):
        torch.cuda.synchronize(); t = time.perf_counter(); loss = model(**batch).loss; f = time.perf_counter() - t; torch.cuda.synchronize()
        t = time.perf_counter(); loss.backward(); b = time.perf_counter() - t; torch.cuda.synchronize()
        rows.append((1e3 * f, 1e3 * b))
    return [round(sorted(r[i] for r in rows[2:])[3], 3) for i in (0, 1)]


for case in lines:
    if time.time() > end: break
    child = os.fork()
    if child == 0:
        begin = time.time()
        try:
            row = dict(profile_steps.one(case), peak_reserved=torch.cuda.max_memory_reserved())
            gc.collect()
            row["tiny_llama_after_ms"] = tiny()
        except Exception as error: row = dict(case, error=repr(error)[:300])
        row["wall_s"] = round(time.time() - begin, 2)
        with open(out, "a") as f: f.write(json.dumps(row, separators=(",", ":")) + "\n")
        print(case["id"], row.get("step_ms_median"), case["predicted_ms"], row.get("host_ms"), row.get("peak_allocated"), row.get("peak_reserved"), case["predicted"].get("reserved"), row["wall_s"], row.get("error", ""), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
