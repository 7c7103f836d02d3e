"""cuDNN's workspaces for convolutions of the shipped programs, at sizes at random or at the size that they were recorded with.

usage: convolution_networks.py shapes OUT [--only PATTERN]     no card: distinct convolutions, one a line, with the edge of the images
       convolution_networks.py measure SHAPES OUT_DIR [--seed N] [--jobs N] [--budget SECONDS] [--recorded]     on a card
Writes OUT_DIR/N.jsonl with the lines of convolution_samples_h200.jsonl.gz; --recorded: every line of SHAPES at eight batches.
"""
import argparse
import json
import os
import random
import re
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get("MEMCALC_ROOT") or Path(__file__).resolve().parents[3])
EDGES = (128, 160, 192, 224, 240, 256, 288, 320, 352, 384, 416, 448, 512, 576, 640, 704, 800, 1024)
BATCHES = (1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 10, 12, 16, 16, 20, 24, 32, 32, 40, 48, 64, 96, 128)
RECORDED_BATCHES = (16, 8, 4, 32, 2, 1, 64, 24)
MODES = ("bf16", "fp32", "bf16", "fp32", "fp16", "tf32")
MOST_ELEMENTS = 4e8


def shapes(a):
    """A line: channels in, height, width, channels out, groups, window, strides, padding, dilation (two each), layout, edge, program."""
    import torch
    sys.path.insert(0, str(ROOT / "scripts"))
    from programs import DETECTORS, entries, loaded
    programs = loaded(ROOT / "scripts/record_programs", "record_programs")
    programs.ROOT, programs.PROGRAMS = ROOT, ROOT / "specs/programs"
    sources, found = programs.recorder(), {}
    from memcalc.record._run import takes_dtype
    for entry in entries():
        try:
            source = programs.source_of(sources, entry)
            edge = source.symbols.get("image")
            if edge is None or not re.search(a.only, entry["name"]): continue
            # YOLO looks at what comes of a forward pass when it is made.
            with torch.device("cpu" if entry["library"] == "ultralytics" else "meta"): module = source.make(torch.float32) if takes_dtype(source.make) else source.make()
            module = module.to("meta")
            given = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in source.example(**{**source.symbols, "batch": 2}).items()}

            def seen(part, inputs, _, name=entry["name"], edge=edge * entry.get("latent_pixels", 1)):
                x = inputs[0]
                if x.dim() != 4 or isinstance(part.padding, str): return
                layout = "nchw" if x.is_contiguous() else "nhwc"
                found.setdefault((x.shape[1], x.shape[2], x.shape[3], part.out_channels, part.groups, *part.kernel_size, *part.stride, *part.padding,
                                  *part.dilation, layout), (edge, name))

            for part in module.modules():
                if isinstance(part, torch.nn.Conv2d): part.register_forward_hook(seen)
            before = len(found)
            with torch.no_grad():
                if entry["name"].startswith(DETECTORS) or entry["library"] == "ultralytics": without_loss(module, edge, torch)
                elif source.step is not None: source.step(module, given)
                else: module(**{key: value for key, value in given.items() if key not in ("y", "noise")})
        except Exception as error:  # after the backbone: what a loss finds depends on values
            print(entry["name"], type(error).__name__, str(error)[:80], flush=True)
        print(entry["name"], len(found) - before, flush=True)
    Path(a.out).write_text("".join(json.dumps([*key, *value]) + "\n" for key, value in found.items()))
    print(len(found), "convolutions")


def without_loss(module, edge, torch):
    """A detector's convolutions: what comes before looks at numbers."""
    x = torch.empty(2, 3, edge, edge, device="meta")
    if hasattr(module, "_predict_once"): return module._predict_once(x)
    features = list(module.backbone(x).values())
    if not hasattr(module, "rpn"): return module.head(features)
    module.rpn.head(features)
    if module.roi_heads.mask_head is not None:
        regions = module.roi_heads.mask_head(torch.empty(256, 256, 14, 14, device="meta"))
        module.roi_heads.mask_predictor(regions)


def measured(torch, layout, mode, n, c, h, w, k, g, kh, kw, sh, sw, ph, pw, dh, dw):
    """A line of a file of samples; None where it is too large or not cuDNN's."""
    oh, ow = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    if min(oh, ow) < 1 or max(n * c * h * w, n * k * oh * ow) > MOST_ELEMENTS: return None
    if 2 * n * oh * ow * k * (c // g) * kh * kw > (2e11 if mode == "fp32" else 1e12): return None
    torch.backends.cudnn.allow_tf32 = mode == "tf32"
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mode, torch.float32)
    form = torch.channels_last if layout == "nhwc" else torch.contiguous_format

    def requested(what): return torch.cuda.memory_stats()["requested_bytes.all." + what]

    def beyond(call):
        torch.cuda.reset_peak_memory_stats()
        made = call()
        found = requested("peak") - requested("current")
        del made
        return found

    x = torch.zeros(n, c, h, w, device="cuda", dtype=dtype).contiguous(memory_format=form)
    weight = torch.zeros(k, c // g, kh, kw, device="cuda", dtype=dtype)
    rest = ((sh, sw), (ph, pw), (dh, dw))
    backend = str(torch._C._select_conv_backend(x, weight, None, *rest, False, (0, 0), g)).split(".")[-1]
    if backend != "Cudnn": return None
    if layout == "nhwc": weight = weight.contiguous(memory_format=form)
    above = torch.zeros(n, k, oh, ow, device="cuda", dtype=dtype).contiguous(memory_format=form)
    found = [beyond(lambda: torch.nn.functional.conv2d(x, weight, None, *rest, g))]
    found += [beyond(lambda: torch.ops.aten.convolution_backward(above, x, weight, None, *rest, False, (0, 0), g, mask))
              for mask in ((True, False, False), (False, True, False))]
    return [layout, mode, n, c, h, w, k, g, kh, kw, sh, ph, pw, dh, backend, *found] if sh == sw and dh == dw else None


def drawn(keys, r):
    *key, layout, edge, _ = r.choice(keys)
    c, h, w, *rest = key
    other = edge if r.random() < 0.15 else r.choice([n for n in EDGES if edge / 2 <= n <= 1.8 * edge] or [edge])
    return layout, r.choice(MODES), r.choice(BATCHES), c, -(-h * other // edge), -(-w * other // edge), *rest


def worker(a, number, keys):
    import torch
    began = time.time()
    torch.cuda.set_per_process_memory_fraction(0.032)
    r = random.Random(1000 * a.seed + number)
    if a.recorded:
        todo = [(layout, mode, batch, *key) for batch in RECORDED_BATCHES for *key, layout, _, _ in keys for mode in ("bf16", "fp32")]
        todo = iter(todo[number::a.jobs])
    count = 0
    with open(os.path.join(a.out, f"{number}.jsonl"), "w") as out:
        while time.time() - began < a.budget:
            what = next(todo, None) if a.recorded else drawn(keys, r)
            if what is None: break
            try: row = measured(torch, *what)
            except RuntimeError:
                torch.cuda.empty_cache()
                continue
            if row is None: continue
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
            count += 1
            if count % 50 == 0: out.flush()
    print(number, count, "rows in", round(time.time() - began), "s", flush=True)


def measure(a):
    os.makedirs(a.out, exist_ok=True)
    keys = [json.loads(line) for line in Path(a.shapes).read_text().splitlines()]
    children = []
    for number in range(a.jobs):
        pid = os.fork()
        if pid == 0:
            worker(a, number, keys)
            os._exit(0)
        children.append(pid)
    for pid in children: os.waitpid(pid, 0)


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(required=True)
for function, names in ((shapes, ("out",)), (measure, ("shapes", "out"))):
    command = commands.add_parser(function.__name__)
    for name in names: command.add_argument(name)
    for name, kind, usual in (("seed", int, 2921), ("jobs", int, 8), ("budget", float, 150)): command.add_argument(f"--{name}", type=kind, default=usual)
    command.add_argument("--only", default="")
    command.add_argument("--recorded", action="store_true")
    command.set_defaults(call=function)
if __name__ == "__main__":
    a = parser.parse_args()
    a.call(a)
