"""What single operators ask of the allocator in a step, forward and backward: 300 modules of an operator each, at sizes drawn at random,
in float32 and under bfloat16 autocast. The loss is the mean square of what the operator gives.

usage: operator_streams.py measure OUT [--seconds N] [--device cpu] [--seed N] [--only PATTERN]   a row {"id", "precision", "forward", "backward"} each: bytes of requests in
                                                           order, negative where a block is freed; the second of two steps
       operator_streams.py record FOLDER [--only PATTERN]  a program of each (memcalc.record)
       operator_streams.py compare MEMCALC FOLDER MEASURED [--only PATTERN]
"""
import argparse
import gzip
import json
import math
import random
import re
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

# What each adds to OPERATORS: in this order, by which later_first() goes.
from operator_list import OPERATORS, SIZES
import operator_losses
import operator_library_calls
import operator_factorisations

ROOT = Path(__file__).resolve().parents[3]
SEED = 10021


def assigned(p):
    out = p.clone()
    out[:, 1:4] = p[:, :3] * 2
    out[:, 0] = 0
    return out


def mask_assigned(p, m):
    out = p.clone()
    out[m] = 0
    return out


def cases(seed=SEED):
    """Of each operator its sizes."""
    for name, (parameters, inputs, code) in OPERATORS.items():
        chooser = random.Random(f"{seed} {name}")
        yield name, {letter: chooser.choice(known) for letter, known in SIZES.items()}


def later_first(of_all):
    """Those of the last seed before the others."""
    of_all = list(of_all)
    first = list(OPERATORS).index("counts_of_experts")
    return of_all[first:] + of_all[:first]


def made(name, sizes, torch):
    """A module, and what else it takes."""
    nn, F = torch.nn, torch.nn.functional
    parameters, inputs, code = OPERATORS[name]
    shape = lambda word: [sizes[letter] for letter in word]
    names = dict(torch=torch, nn=nn, F=F, math=math, assigned=assigned, mask_assigned=mask_assigned)
    made_of, code = (re.match(r"M: (.*?\)): (.*)", code).groups()) if code.startswith("M: ") else (None, code)
    if made_of: made_of = re.sub(r"\{(\w)\}", lambda found: str(sizes[found[1]]), made_of)

    class Operator(nn.Module):
        def __init__(self):
            super().__init__()
            for key, word in parameters.items(): setattr(self, key, nn.Parameter(torch.randn(shape(word))))
            if made_of: self.m = eval(made_of, names)

        def forward(self, batch=None, **given):
            known = dict(names, self=self, **{key: getattr(self, key) for key in parameters}, **given)
            out = eval(code, known)
            return out.float().square().mean()

    def values(batch=None):
        found = {}
        for key, (word, most) in inputs.items():
            if word == "500": found[key] = torch.arange(500) * 7 % sizes[most]
            elif word == "unique": found[key] = torch.arange(min(200, sizes[most])) * 2
            elif word == "mask": found[key] = torch.arange(sizes[most]) % 3 == 0
            else: found[key] = torch.arange(1).expand(shape(word)).contiguous()
        return found

    return Operator, values


# ---- on a card --------------------------------------------------------------------------------------------------------
def stream_of(events, live):
    out = []
    for event in events:
        if event["action"] == "alloc":
            out.append(event["size"])
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed": out.append(-live.pop(event["addr"], 0))
    return out


def measure(a):
    import torch
    began, rows = time.time(), []
    on_card = a.device == "cuda"
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, False

    def taken():
        if not on_card: return []
        torch.cuda.synchronize()
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=100000, clear_history=True)
        return events

    def head():
        if on_card: rows.append(dict(gpu=torch.cuda.get_device_name(0), torch=torch.__version__))
        else: rows.append(dict(gpu=None))

    if on_card:  # both threads' workspaces of cuBLAS
        for dtype in (torch.float32, torch.bfloat16):
            w = torch.randn(256, 256, device="cuda", dtype=dtype, requires_grad=True)
            (w @ w + torch.nn.functional.linear(w, w, w[0])).sum().backward()
        del w
    head()
    for name, sizes in later_first(cases(a.seed)):
        if not re.search(a.only, name): continue
        for precision in ("fp32", "amp-bf16"):
            row = dict(id=name, precision=precision)
            if time.time() - began > a.seconds:
                row["error"] = "no time"
                rows.append(row)
                continue
            try:
                torch.manual_seed(0)
                kind, values = made(name, sizes, torch)
                module = kind().to(a.device)
                given = {key: value.to(a.device) for key, value in values().items()}
                live = {}
                for step in range(2):
                    for parameter in module.parameters(): parameter.grad = None
                    taken()
                    with torch.autocast(a.device, torch.bfloat16, enabled=precision != "fp32"): loss = module(**given)
                    row["forward"] = stream_of(taken(), live)
                    loss.backward()
                    row["backward"] = stream_of(taken(), live)
                    del loss
            except Exception as error: row = dict(id=name, precision=precision, error=repr(error)[:300])
            module = given = loss = None
            rows.append(row)
            if on_card and "CUDA error" in row.get("error", ""): break
            if not on_card and "error" in row: print(row, flush=True)
            if on_card and torch.cuda.memory_reserved() > 4e9: torch.cuda.empty_cache()
    with gzip.open(a.out, "wt") as out: out.write("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    print(len(rows), "rows in", round(time.time() - began, 1), "s;", sum("error" in row for row in rows), "errors", flush=True)


# ---- without one --------------------------------------------------------------------------------------------------------
def record(a):
    from programs import loaded
    warnings.simplefilter("ignore")
    sources = loaded(ROOT / "scripts/record_programs", "record_programs").recorder()
    import torch
    from memcalc.record import Variant
    Path(a.folder).mkdir(parents=True, exist_ok=True)
    part, parts = map(int, a.part.split("/"))
    for name, sizes in list(cases(a.seed))[part::parts]:
        path = Path(a.folder, name + ".json.gz")
        if path.exists() or not re.search(a.only, name): continue
        kind, values = made(name, sizes, torch)
        def example(batch): return {"batch": torch.empty(batch), **values()}  # the batch has no part in it
        try: sources.Source(kind, example, {"batch": 4}, [Variant("train")], name, "other", precisions=("float32", "autocast"), not_compiled="not asked").record(name).save(path)
        except BaseException as error: path.with_name(name + ".failed").write_text(traceback.format_exc())
        print(name, "" if path.exists() else "FAILED", flush=True)


def told(memcalc, path, precision):
    """The last step's requests: forward, backward; sizes as they are asked for (a block can be larger)."""
    from programs import PRECISIONS
    words = [memcalc, "trace", "--model", str(path), "--gpu", "h200-sxm", "--loop", "bare", "--bs", "4", "--optimizer", "sgd", *PRECISIONS[precision]]
    answer = subprocess.run([*words, "--events", "all", "--format", "tsv"], capture_output=True, text=True)
    if answer.returncode > 1: return answer.stderr.strip()
    sizes, asked = {}, []
    for line in subprocess.run([*words, "--format", "replay"], capture_output=True, text=True).stdout.splitlines():
        kind, *rest = line.split()
        if kind == "a": sizes[rest[0]] = int(rest[1])
        if kind in "af": asked.append(sizes[rest[0]] if kind == "a" else -sizes[rest[0]])
    found, last = {"forward": [], "backward": []}, None
    events = [line.split("\t") for line in answer.stdout.splitlines() if not line.startswith("#")]
    for (phase, _, *rest), size in zip(events, asked):
        if phase in found:
            if phase != last: found[phase] = []
            found[phase].append((size, rest[2] if len(rest) > 2 else ""))
        last = phase
    return found


def compare(a):
    """Sizes as the allocator rounds them, each phase."""
    import difflib
    rounded = lambda size: (abs(size) + 511) // 512 * 512 * (1 if size > 0 else -1)
    with gzip.open(a.measured, "rt") as lines: rows = [json.loads(line) for line in lines][1:]
    equal, same, asked, opaque = 0, 0, 0, []
    for row in rows:
        if "error" in row or not re.search(a.only, row["id"]): continue
        path = Path(a.folder, row["id"] + ".json.gz")
        asked += 1
        if not path.exists():
            print(f"{row['id']:28} {row['precision']:9} not recorded")
            continue
        names = json.loads(gzip.decompress(path.read_bytes())).get("opaque")
        said = told(a.memcalc, path, row["precision"])
        if isinstance(said, str):
            print(f"{row['id']:28} {row['precision']:9} {said[:160]}")
            continue
        wrong = []
        for phase in ("forward", "backward"):
            real, ours = [rounded(size) for size in row[phase]], [rounded(size) for size, _ in said[phase]]
            for tag, i, j, k, m in difflib.SequenceMatcher(None, real, ours, autojunk=False).get_opcodes():
                if tag != "equal": wrong.append(f"{phase} {i}: {real[i:j][:6]} told {[(size, said[phase][at][1][:40]) for at, size in zip(range(k, m), ours[k:m])][:5]}")
        def peak(sizes, start=0):
            most = now = start
            for size in sizes:
                now += rounded(size)
                most = max(most, now)
            return most, now
        real, ours = ([size for phase in ("forward", "backward") for size in sizes[phase]] for sizes in (row, {phase: [size for size, _ in said[phase]] for phase in said}))
        equal += not wrong
        same += peak(real) == peak(ours)
        if wrong: print(f"{row['id']:28} {row['precision']:9} peak {peak(real)[0]:>10} told {peak(ours)[0] - peak(real)[0]:+d} {names or ''}\n    " + "\n    ".join(wrong[: a.most]))
    print(asked, "asked;", equal, "with the same requests;", same, "with the same peak")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measured = command = commands.add_parser("measure")
    command.add_argument("out")
    command.add_argument("--seconds", type=float, default=60)
    command.add_argument("--device", default="cuda")
    command.set_defaults(call=measure)
    command = commands.add_parser("record")
    command.add_argument("folder")
    command.add_argument("--part", default="0/1")
    command.set_defaults(call=record)
    other = commands.add_parser("compare")
    for name in ("memcalc", "folder", "measured"): other.add_argument(name)
    other.add_argument("--most", type=int, default=4)
    other.set_defaults(call=compare)
    for each in (measured, command, other): each.add_argument("--only", default="")
    for each in (measured, command): each.add_argument("--seed", type=int, default=SEED)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
