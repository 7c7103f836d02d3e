"""LoRA training of diffusion models as their scripts do it (denoisers.py), from latents and encoded prompts on or with the rest
of the pipeline on the card. Runs are drawn and predicted before they are measured. A case is a line {"id", "run", "harness"}:
memcalc's record of a run, and what no option says.

usage: diffusion.py draw SEED N OUT                         N: rounds over the networks and ways to hold them
       diffusion.py predict MEMCALC CASES OUT
       diffusion.py measure CASES OUT [--histories FOLDER] [--budget SECONDS] [--jobs N]       on a card, with diffusers, peft and accelerate
       diffusion.py compare CASES PREDICTED MEASURED [--rows OUT]
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from families import compare, lines_of, write_lines

ROOT = Path(__file__).resolve().parents[3]
GPU = "h200-sxm"
LARGEST = 110 << 30  # bytes that a drawn run may need, as predicted
# A network, how its frozen base is held, how many of its blocks may wait on the host.
DRAWN = (("flux.1-dev", None, 0), ("sd3-medium", None, 0), ("z-image-turbo", None, 0), ("sdxl", None, 0), ("qwen-image", None, 0),
         ("sd3.5-medium", None, 0), ("sd3.5-large", None, 0), ("flux.2-dev", None, 0), ("flux.1-dev", "nf4", 0), ("qwen-image", "nf4", 0),
         ("z-image-turbo", "nf4", 0), ("flux.1-dev", "fp8-cast", 28), ("qwen-image", "fp8-scaled", 45), ("flux.2-dev", "fp8-scaled", 26),
         ("z-image-turbo", "fp8-scaled", 20), ("flux.1-dev", "fp8-cast", 0), ("sdxl-pipeline", None, 0), ("flux.1-dev-pipeline", None, 0),
         ("sd3-medium-pipeline", None, 0), ("flux.1-kontext-dev", None, 0), ("sd-1.5", None, 0))


def draw(a):
    r = random.Random(a.seed)
    drawn = []
    for i in range(a.n):
        for name, quantized, most_swapped in DRAWN:
            is_large = name.startswith(("flux", "qwen"))
            run = dict(model=name, lora=r.choice([4, 8, 16, 32, 64]), image_size=r.choice([512, 640, 768, 1024, 1024]),
                       batch_size=r.choice([1, 1, 2] if is_large else [1, 1, 2, 3]), precision="amp-bf16", loop="bare",
                       optimizer=r.choice(["adamw", "adamw", "adamw-fused", "adamw-8bit"]))
            if name.startswith(("sdxl", "sd3-")) and r.random() < 0.3: run["precision"] = "amp-fp16"
            if name.startswith(("z-image", "flux.2")): run["batch_size"] = 1
            run["checkpointing"] = "full" if is_large or quantized or r.random() < 0.6 else "none"
            if quantized: run["quantize"] = quantized
            if most_swapped: run["blocks_to_swap"] = r.randrange(2, most_swapped + 1)
            if not quantized and r.random() < 0.3: run["lora_targets"] = r.choice([["to_q", "to_v"], ["to_k", "to_q", "to_v", "to_out.0"], ["to_q", "ff.net.2"]])
            if name.startswith("flux.2"): run.pop("lora_targets", None)
            if r.random() < 0.2: run["max_grad_norm"] = 0
            if r.random() < 0.25 and not name.startswith("sdxl") and not name.endswith("pipeline"):
                run["sequence_length"] = r.choice([96, 160, 320] if name == "z-image-turbo" else [100, 77, 333])
            case = dict(id=f"diffusion-{a.seed}-{len(drawn)}-{name}", run=run)
            if name.startswith("flux") and r.random() < 0.7: case["harness"] = {"without_cudnn_attention": True}
            drawn.append(case)
    write_lines(a.out, drawn)


def without_cudnn_attention(folder):
    """The card, as one on which PyTorch does not try cuDNN's attention first: memcalc asks for the capability 9.0."""
    path = Path(folder, "h200-as-9.1.json")
    spec = json.loads((ROOT / "specs/gpus" / f"{GPU}.json").read_text())
    path.write_text(json.dumps(spec | {"name": "h200-as-9.1", "aliases": [], "compute_capability_minor": 1}))
    return str(path)


def predict(a):
    sys.path.insert(0, str(ROOT / "scripts"))
    import memcalc_rows
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for case in lines_of(a.cases):
            gpu = without_cudnn_attention(folder) if case.get("harness", {}).get("without_cudnn_attention") else GPU
            words = ["--model", case["run"]["model"], *memcalc_rows.words_of(case["run"]), "--gpu", gpu]
            answer = subprocess.run([a.memcalc, *words, "--format", "json"], capture_output=True, text=True)
            row = dict(id=case["id"])
            if answer.returncode > 1: row["refused"] = answer.stderr.strip()
            else:
                report = json.loads(answer.stdout)
                row.update(allocated=report["memory"]["peak_allocated_bytes"], reserved=report["memory"]["peak_reserved_bytes"],
                           ms=1e3 * (report.get("time") or {}).get("step_seconds", 0), run=report["run"])
                if row["reserved"] > LARGEST: print(f"{case['id']}: {row['reserved'] / (1 << 30):.1f} GiB, too large", file=sys.stderr)
            said.append(row)
    write_lines(a.out, said)


# ---- on the card ----------------------------------------------------------------------------------------------------
def run_child(case, a):
    import denoisers
    row = {key: case[key] for key in ("id", "run", "harness") if key in case}
    if a.histories: case["history"] = os.path.join(a.histories, case["id"] + ".history.tsv")
    try: row.update(denoisers.one(case))
    except BaseException as error:
        import traceback
        row["error"] = repr(error)[:400] + traceback.format_exc()[-900:]
    with open(a.out, "a") as out: out.write(json.dumps(row) + "\n")
    print(f"{time.time() - a.began:.0f}", case["id"], row.get("peak_allocated"), row.get("step_ms_median"), row.get("wall_s"), row.get("error", "")[:300], flush=True)
    os._exit(0)


def need_of(case): return 2 + 1.1 * case.get("reserved", 30 << 30) / (1 << 30)


def measure(a):
    """Several runs side by side: peaks are each process's own; step times say nothing."""
    if a.histories: os.makedirs(a.histories, exist_ok=True)
    a.began, running = time.time(), {}  # pid: (GiB, when it began, id)
    todo = lines_of(a.cases)
    while todo or running:
        if time.time() - a.began > a.budget:
            for pid in running: os.kill(pid, signal.SIGKILL)
            print("out of time:", [case["id"] for case in todo], [each[2] for each in running.values()], flush=True)
            break
        used = sum(each[0] for each in running.values())
        case = next((case for case in todo if len(running) < a.jobs and (not running or used + need_of(case) < a.card)), None)
        if case is not None:
            todo.remove(case)
            pid = os.fork()  # nothing is imported before: diffusers starts CUDA
            if pid == 0: run_child(case, a)
            running[pid] = (need_of(case), time.time(), case["id"])
        pid, _ = os.waitpid(-1, os.WNOHANG) if running else (0, 0)
        running.pop(pid, None)
        for pid, (_, since, name) in list(running.items()):
            if time.time() - since < a.longest: continue
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            running.pop(pid)
            with open(a.out, "a") as out: out.write(json.dumps(dict(id=name, error="timed out")) + "\n")
        if case is None: time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function, names in ((draw, ("seed", "n", "out")), (predict, ("memcalc", "cases", "out")), (measure, ("cases", "out")),
                            (compare, ("cases", "predicted", "measured"))):
        command = commands.add_parser(function.__name__)
        for name in names: command.add_argument(name, type=int if name in ("seed", "n") else str)
        if function is measure:
            for name, kind, usual in (("budget", float, 230), ("jobs", int, 4), ("card", float, 132), ("longest", float, 90)):
                command.add_argument(f"--{name}", type=kind, default=usual)
            command.add_argument("--histories")
        if function is compare: command.add_argument("--rows")
        command.set_defaults(call=function)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
