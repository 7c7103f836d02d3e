"""cuDNN's workspaces for the convolutions of the shipped programs of timm and torchvision at the size that they were
recorded with, and of transformers' vision encoders' patches: those that tests/measured/convolutions_h100.jsonl.gz lacks.

usage: convolution_programs.py shapes OUT                   no card: distinct convolutions, one a line
       convolution_programs.py measure SHAPES OUT_DIR [--jobs N] [--budget SECONDS]     on a card
Writes OUT_DIR/MODE-BATCH.jsonl with the lines of convolutions_h100.jsonl.gz.
"""
import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get("MEMCALC_ROOT") or Path(__file__).resolve().parents[3])
BATCHES = (8, 16, 32, 64, 12, 24, 48, 5, 1, 2, 3, 4, 128, 96, 256)
MODES = ("bf16", "fp32", "fp16", "tf32")


def shapes(a):
    import timm
    import torch
    import torchvision
    found = {}
    for entry in json.loads((ROOT / "specs/programs/sources.json").read_text())["models"]:
        if entry.get("library") not in ("timm", "torchvision") or entry["model"].startswith("retinanet"): continue
        with torch.device("meta"):
            if entry["library"] == "timm":
                module = timm.create_model(entry["model"]).eval()
                edge = timm.get_pretrained_cfg(entry["model"]).input_size[-1]
            else: module, edge = torchvision.models.get_model(entry["model"], weights=None, weights_backbone=None).eval(), entry["image"]

        def seen(part, given, _, name=entry["name"]):
            x = given[0]
            if x.dim() != 4 or x.shape[2] != x.shape[3] or part.kernel_size[0] != part.kernel_size[1] or part.dilation != (1, 1): return
            if len(set(part.stride)) > 1 or isinstance(part.padding, str) or len(set(part.padding)) > 1: return
            if not x.is_contiguous(): return  # channels last: not measured here
            found.setdefault((x.shape[1], x.shape[2], x.shape[3], part.out_channels, part.groups, *part.kernel_size, part.stride[0], part.padding[0]), name)

        for part in module.modules():
            if isinstance(part, torch.nn.Conv2d): part.register_forward_hook(seen)
        with torch.no_grad(): module(torch.empty(1, 3, edge, edge, device="meta"))
    known = set()
    for line in gzip.open(ROOT / "tests/measured/convolutions_h100.jsonl.gz", "rt"):
        layout, mode, batch, *rest = json.loads(line)
        if layout == "nchw" and batch == 32 and mode == "bf16": known.add(tuple(rest[:9]))
    new = [key for key in found if key not in known]
    print(len(found), "convolutions,", len(new), "new")
    Path(a.out).write_text("".join(json.dumps([*key, found[key]]) + "\n" for key in new))


def measure(a):
    import torch
    from op_requests import pool
    began = time.time()
    keys = [json.loads(line)[:9] for line in Path(a.shapes).read_text().splitlines()]

    def one(batch, mode):
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = mode != "fp32", mode == "tf32"
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(mode, torch.float32)
        size = 2 if mode in ("fp16", "bf16") else 4

        def requested(what): return torch.cuda.memory_stats()["requested_bytes.all." + what]

        def beyond(call, result_bytes):
            try:
                torch.cuda.synchronize()
                before = requested("current")
                torch.cuda.reset_peak_memory_stats()
                made = call()
                found = requested("peak") - before - result_bytes(made)
                return found
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                return -2
            except RuntimeError: return -1

        torch.cuda.set_per_process_memory_fraction(0.16)
        with open(os.path.join(a.out, f"{mode}-{batch}.jsonl"), "w") as out:
            torch.zeros(1, device="cuda")
            for ci, h, w, co, g, kh, kw, s, p in keys:
                if batch * max(ci * h * w, co * h * w // (s * s)) * size > 2.5e9: continue
                if time.time() - began > a.budget: break
                try:
                    x, weight = torch.zeros(batch, ci, h, w, device="cuda", dtype=dtype), torch.zeros(co, ci // g, kh, kw, device="cuda", dtype=dtype)
                    backend = str(torch._C._select_conv_backend(x, weight, None, (s, s), (p, p), (1, 1), False, (0, 0), g)).split(".")[-1]
                    if backend != "Cudnn": continue
                    forward = beyond(lambda: torch.nn.functional.conv2d(x, weight, None, s, p, 1, g), lambda made: made.numel() * size)
                    above = torch.zeros(batch, co, (h + 2 * p - kh) // s + 1, (w + 2 * p - kw) // s + 1, device="cuda", dtype=dtype)
                    back = [beyond(lambda: torch.ops.aten.convolution_backward(above, x, weight, None, (s, s), (p, p), (1, 1), False, (0, 0), g, mask),
                                   lambda made: sum(t.numel() for t in made if t is not None) * size) for mask in ((True, False, False), (False, True, False))]
                    out.write(json.dumps(["nchw", mode, batch, ci, h, w, co, g, kh, kw, s, p, backend, forward, *back]) + "\n")
                    del x, weight, above
                except torch.OutOfMemoryError: torch.cuda.empty_cache()

    os.makedirs(a.out, exist_ok=True)
    jobs = [(batch, mode) for mode in MODES[:2] for batch in BATCHES] + [(batch, mode) for mode in MODES[2:] for batch in BATCHES]
    pool([(f"{mode}-{batch}", (lambda batch=batch, mode=mode: one(batch, mode))) for batch, mode in jobs], a.jobs, lambda said: print(said, flush=True), began + a.budget + 8)


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(required=True)
for function, names in ((shapes, ("out",)), (measure, ("shapes", "out"))):
    command = commands.add_parser(function.__name__)
    for name in names: command.add_argument(name)
    command.add_argument("--jobs", type=int, default=5)
    command.add_argument("--budget", type=float, default=150)
    command.set_defaults(call=function)
if __name__ == "__main__":
    a = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    a.call(a)
