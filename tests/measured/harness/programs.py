"""The shipped programs (specs/programs) on a card, each as it was recorded: module, inputs and loss are made by the
recorder's own code from specs/programs/sources.json. Runs are drawn and predicted before they are measured. A case is a
line {"id", "name", "prec", "batch", "options", "symbols", "optimizer", "blind"}, with "lora" the rank of adapters, or one of families.py's or
other_programs.py's ("source").

usage: programs.py draw SEED N MEMCALC OUT [--only PATTERN] [--kinds] [--largest GiB]   N cases of each program, with what memcalc
                                                             said ("blind"); --kinds: of one program of each kind
       programs.py measure CASES OUT HISTORIES [--budget SECONDS] [--jobs N] [--memory GiB] [--keep all] [--untimed]
                             [--turns FOLDER]                on a card
       programs.py compare CASES MEASURED [--rows OUT]

Several cases run side by side until their three steps are done; each is then alone on the machine for its step time, also of
two processes of this script with one folder of --turns. A step whose time is off is profiled behind that (OUT.profiles). The
allocator's history is kept (HISTORIES/ID.history.tsv, history.py's form) where peaks differ from what was said.
"""
import argparse
import contextlib
import fcntl
import functools
import gc
import gzip
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("MEMCALC_ROOT") or HERE.parents[2])
GPU = "h200-sxm"
LARGEST = 62 << 30  # bytes that a drawn run may reserve, as predicted
LONGEST = 1.5       # seconds of its step
PROFILED = 0.05     # a step that is farther off is profiled
LARGEST_OF_VIDEO, LONGEST_OF_VIDEO = 90 << 30, 15
PRECISIONS = {"bf16": ["--precision", "bf16"], "amp-bf16": ["--precision", "amp-bf16", "--weights-dtype", "fp32"],
              "fp32": ["--precision", "fp32", "--weights-dtype", "fp32"]}
RECORDED_AS = {"bf16": "bfloat16", "amp-bf16": "autocast", "fp32": "float32"}
DETECTORS = ("retinanet", "fcos", "ssd", "fasterrcnn", "maskrcnn")  # torchvision's
OPTION = {"sequence": "--seq", "image": "--image", "target": "--target-seq"}


def lines_of(path): return [json.loads(line) for line in Path(path).read_text().splitlines()]


def entries():
    """Of each program that is a whole model: how it was recorded. A step of diffusers' scripts: diffusion.py."""
    known = json.loads((ROOT / "specs/programs/sources.json").read_text())["models"]
    return [each for each in known if "of" not in each and not each.get("step") and not each.get("part")]


def kind_of(entry):
    """What a stream is recorded of (streams.py): the type of transformers' configuration, the class of diffusers' network and
    whether it is trained by its scripts' step, of others the name without version of size."""
    if entry["library"] == "transformers": return entry["config"]["model_type"]
    if entry["library"] == "diffusers": return entry["model"] + ("-edits" if entry.get("edits") else "") + ("-step" if entry.get("step") else "")
    if entry["library"] == "ultralytics": return re.match(r"yolov?[0-9]+", entry["model"])[0]
    if entry["library"] == "own": return entry["model"]
    return entry["library"] + "-" + re.match(r"[a-z]+", entry["model"].removeprefix("tf_").removeprefix("wide_"))[0]


# ---- drawn and predicted --------------------------------------------------------------------------------------------
def question(case):
    """The words for memcalc: those of scripts/any_module_page."""
    return ["--model", case["name"], "--gpu", GPU, "--loop", "bare", "--bs", case["batch"], "--no-remedies", *PRECISIONS[case["prec"]],
            *case["options"]]


def said(memcalc, case):
    answer = subprocess.run([memcalc, *map(str, question(case)), "--format", "json"], capture_output=True, text=True)
    if answer.returncode > 1: return {"refused": answer.stderr.strip()}
    report = json.loads(answer.stdout)
    return {"allocated": report["memory"]["peak_allocated_bytes"], "reserved": report["memory"]["peak_reserved_bytes"],
            "step_ms": 1e3 * (report.get("time") or {}).get("step_seconds", 0), "use_cache": report["run"].get("use_cache", False)}


def sizes_of(name, symbol, known, draw):
    """A size of a symbol at random; None: as recorded."""
    if known.get("fixed"): return None
    least, most, default = known.get("minimum", 1), known.get("maximum", 1 << 30), known["default"]
    if symbol == "batch": return draw.choice([1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64])
    if symbol == "sequence":
        fitting = [n for n in (100, 197, 333, 512, 777, 1024, default) if least <= n <= most]
        return draw.choice(fitting) if fitting else default
    if symbol == "target": return draw.choice([3, 5, 8, 13]) if default <= 16 else draw.choice([20, 40, 77, 128])
    multiple = known.get("multiple", 1)
    if draw.random() < 0.6: return None
    near = [n for n in (160, 192, 224, 256, 288, 320, 384, 448, 512, 608, 704) if n % multiple == 0] if multiple <= 32 else []
    near = [n for n in near if least <= n <= most and default / 2 <= n <= 1.5 * default]
    return draw.choice(near) if near else None


def drawn_case(entry, program, precisions, draw, memcalc, i, seed, largest=LARGEST):
    symbols = {key: sizes_of(entry["name"], key, known, draw) for key, known in program["symbols"].items()}
    symbols = {key: program["symbols"][key]["default"] if value is None else value for key, value in symbols.items()}
    case = dict(id=f"programs-{seed}-{i}-{entry['name']}", name=entry["name"])
    drawn = draw.choice(precisions)
    for prec, optimizer, checkpointing in ((drawn, "adamw", "none"), (drawn, "sgd", "none"), (precisions[0], "sgd", "none"), (precisions[0], "sgd", "full")):
        batch = symbols["batch"]
        while True:
            case.update(prec=prec, batch=batch, symbols={**symbols, "batch": batch}, optimizer=optimizer, checkpointing=checkpointing)
            unit = {"image": entry.get("latent_pixels", 1)}  # memcalc is asked in pixels
            case["options"] = [word for key, value in symbols.items() if key in OPTION
                               for word in (OPTION[key], str(value * unit.get(key, 1)))]
            if optimizer != "adamw": case["options"] += ["--optimizer", optimizer]
            if checkpointing != "none": case["options"] += ["--checkpointing", checkpointing]
            case["blind"] = said(memcalc, case)
            if "refused" in case["blind"]:  # Mamba-2 takes chunks
                if symbols.get("sequence") == program["symbols"].get("sequence", {}).get("default"): return case
                symbols["sequence"] = program["symbols"]["sequence"]["default"]
                continue
            of_video = isinstance(entry.get("image"), list)
            most, longest = (LARGEST_OF_VIDEO, LONGEST_OF_VIDEO) if of_video else (largest, LONGEST)
            if case["blind"]["reserved"] <= most and case["blind"]["step_ms"] <= 1e3 * longest: return case
            if batch == 1 or program["symbols"]["batch"].get("fixed"): break
            batch = max(1, batch // 2)
    return dict(case, blind=dict(case["blind"], too_large=True))


def draw(a):
    seed, chooser = a.seed, random.Random(a.seed)
    cases = []
    for i in range(a.n):
        drawn = entries()
        if a.kinds:
            chooser.shuffle(drawn)
            drawn = list({kind_of(entry): entry for entry in drawn}.values())
        for entry in drawn:
            if not re.search(a.only, entry["name"]): continue
            program = json.loads(gzip.decompress((ROOT / "specs/programs" / f"{entry['name']}.json.gz").read_bytes()))
            trained = [each.get("precisions") for each in program["forwards"] if each.get("mode", "train") == "train"]
            precisions = [prec for prec, recorded in RECORDED_AS.items() if any(each is None or recorded in each for each in trained)]
            before = [each["prec"] for each in cases if each["name"] == entry["name"]]
            case = drawn_case(entry, program, [p for p in precisions if p not in before] or precisions, chooser, a.memcalc, i, seed, a.largest << 30)
            cases.append(case)
            told = case["blind"]
            print(case["id"], case["prec"], case["batch"], *case["options"], told.get("refused") or f"{told['reserved'] / 2**30:.1f} GiB", flush=True)
    Path(a.out).write_text("".join(json.dumps(case) + "\n" for case in cases))


# ---- on the card ----------------------------------------------------------------------------------------------------
def loaded(path, name):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def values_of(name, value, case, torch):
    """An input with numbers that the recording's policies hold for."""
    shape = value.shape
    objects = case["symbols"].get("target", 1)
    if value.device.type == "meta": return torch.zeros(shape, dtype=value.dtype)
    if not value.is_floating_point(): return value.clone()
    if case["name"].startswith("yolo"):
        # Each object is 96 pixels wide and high, and no two of an image meet.
        image = case["symbols"]["image"]
        if name == "batch_idx": return torch.arange(case["batch"]).repeat_interleave(objects).float()
        if name == "cls": return torch.randint(0, 80, shape).float()
        if name == "bboxes":
            side = image // 100
            places = torch.arange(case["batch"] * objects) % objects
            centres = torch.stack([places % side, places // side], 1) * 100.0 + 50.0
            return torch.cat([centres, torch.full_like(centres, 96.0)], 1) / image
    if case["name"].startswith(DETECTORS) and name != "images":
        import detectors
        return detectors.boxes_of(case["name"], *value.shape[:2], torch) if name == "boxes" else value.clone()
    if name == "boxes": return torch.rand(shape) * 0.3 + 0.2  # centre, width and height, of the image
    if name == "input_boxes":
        return torch.tensor([100.0, 100.0, 400.0, 500.0]).expand(shape).contiguous()
    if name in ("masks", "mask_labels"): return (torch.rand(shape) > 0.5).float()
    return torch.randn(shape)


def settle(module, use_cache):
    """What the recording's policies say: no layer is left out at random; and whether there is a cache."""
    for part in module.modules():
        for owner in (part, getattr(part, "config", None)):
            for key in [key for key in vars(owner) if "layerdrop" in key] if owner is not None else ():
                if isinstance(getattr(owner, key), float): setattr(owner, key, 0.0)
        config = getattr(part, "config", None)
        if config is None or not hasattr(config, "use_cache"): continue
        if part is module or not use_cache: config.use_cache = use_cache


def add_lora(network, rank):
    """Adapters on all linear layers of a network of diffusers, in float32 as peft makes them beside 16-bit weights."""
    import torch
    from diffusers.training_utils import cast_training_params
    from peft import LoraConfig
    network.requires_grad_(False)
    layers = [name for name, each in network.named_modules() if isinstance(each, torch.nn.Linear)]
    network.add_adapter(LoraConfig(r=rank, lora_alpha=rank, init_lora_weights="gaussian", target_modules=layers))
    cast_training_params([network], dtype=torch.float32)


@contextlib.contextmanager
def profiled(row, told, write, lock):
    """A step under the profiler, where its time is not what was said; nothing is timed in this process after it."""
    found = row.get("step_ms") or row["step_ms_median"]
    if not told or abs(found / told - 1) < PROFILED:
        yield
        return
    import torch
    from torch.profiler import ProfilerActivity, profile
    import profile_steps
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as p:
        yield
        torch.cuda.synchronize()
    lock.leave()
    write(dict(step_ms=found, told_ms=told, **profile_steps.operators(p)))


def tiny_llama():
    """Times steps of a tiny LLaMA: forward and backward over the reference host's, as blind_steps.py does."""
    of_host = loaded(ROOT / "python/memcalc/measure/_host.py", "of_host")
    of_host.TINY_MODELS = dict(llama=of_host.TINY_MODELS["llama"])
    (llama,) = of_host.tiny_models().values()
    of_host.timed(*llama, 3)

    def took(): return [round(each / there, 3) for each, there in zip(of_host.middle(of_host.timed(*llama, 7)), of_host.REFERENCE_MODELS["llama"])]
    return took


def one(case, device, histories, lock, keep, times, write=lambda row: None, profile=contextlib.nullcontext):
    import torch
    import warnings
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ROOT / "scripts"))
    programs = loaded(ROOT / "scripts/record_programs", "record_programs")
    programs.ROOT, programs.PROGRAMS = ROOT, ROOT / "specs/programs"
    sources = programs.recorder()
    from memcalc.record._run import _call_loss, takes_dtype
    if "source" in case:
        import other_programs
        source = other_programs.source_of(case, sources)
    else:
        entry = next(each for each in entries() if each["name"] == case["name"])
        source = programs.source_of(sources, entry | ({"target": case["symbols"]["target"]} if "target" in entry else {}))
    use_cache = case["blind"].get("use_cache", False)
    fitting = [each for each in source.variants if each.mode == "train" and each.keys.get("cache", use_cache) == use_cache]
    variant = min(fitting, key=lambda each: 0 if each.inputs is None else len(each.inputs))  # memcalc's plain loop passes no more
    example = source.example(**case["symbols"])
    given = {name: values_of(name, value, case, torch) if isinstance(value, torch.Tensor) else value for name, value in example.items()
             if variant.inputs is None or name in variant.inputs}
    prec, on_card = case["prec"], device == "cuda"
    dtype = torch.bfloat16 if prec == "bf16" else torch.float32
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, prec != "fp32"
    AUTOCAST = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
    row, recorder = {}, None
    if case["name"].startswith(DETECTORS):
        import detectors
        detectors.hold(objects=8)
    if on_card:
        import history
        recorder = history.Rec(True)
        if "memory_share" in case: torch.cuda.set_per_process_memory_fraction(case["memory_share"])  # a smaller card
        torch.zeros(1, device=device)
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        recorder.mark("start")
        row["gpu"] = torch.cuda.get_device_name(0)
    began = time.time()
    with torch.device(device): module = source.make(dtype) if takes_dtype(source.make) else source.make()
    if not takes_dtype(source.make) and dtype != torch.float32: module = module.to(dtype)
    if any(p.device.type != device for p in module.parameters()): module = module.to(device)
    settle(module, use_cache)
    if case.get("checkpointing", "none") == "full":
        (module.gradient_checkpointing_enable if hasattr(module, "gradient_checkpointing_enable") else module.enable_gradient_checkpointing)()
    batch = {name: (value.to(dtype) if value.is_floating_point() else value).to(device) if isinstance(value, torch.Tensor) else value
             for name, value in given.items()}
    if recorder is not None: recorder.mark("built model and batch")
    gc.collect()
    if on_card:
        torch.cuda.empty_cache()
        recorder.mark("empty_cache")
        row["start"] = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    if "lora" in case: add_lora(module, case["lora"])
    row["params"] = sum(p.numel() for p in module.parameters())
    row["build_s"] = round(time.time() - began, 2)
    module.train()
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = {"adamw": torch.optim.AdamW, "adamw-fused": functools.partial(torch.optim.AdamW, fused=True), "adam": torch.optim.Adam,
                 "sgd": torch.optim.SGD}[case["optimizer"]](trained, lr=1e-5)
    scaler = torch.amp.GradScaler(device, enabled=prec == "amp-fp16")

    def forward():
        with torch.autocast(device, AUTOCAST.get(prec, torch.bfloat16), enabled=prec in AUTOCAST):
            if source.step is not None: output = source.step(module, batch)
            elif source.loss is None: output = module(**batch, **variant.arguments)
            else: output = {"loss": _call_loss(source.loss, module, batch, variant.arguments)}
        return output if isinstance(output, torch.Tensor) else output["loss"]

    def update():
        if case.get("clip"):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()

    def mark(name):
        if recorder is not None: recorder.mark(name)

    for step in range(case.get("steps", 3) if on_card else 1):
        optimizer.zero_grad(set_to_none=True)
        mark(f"step {step} zero_grad")
        loss = forward()
        mark(f"step {step} forward")
        scaler.scale(loss).backward()
        mark(f"step {step} backward")
        del loss
        mark(f"step {step} del loss")
        update()
        mark(f"step {step} optimizer")
        if prec == "amp-fp16": row["skipped_steps"] = row.get("skipped_steps", 0) + (scaler.get_scale() < 65536 * 0.5 ** row.get("skipped_steps", 0))
    if not on_card: return write(row)
    torch.cuda.synchronize()
    row.update(allocated=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved(), retries=torch.cuda.memory_stats()["num_alloc_retries"])
    row["memory_s"] = round(time.time() - began, 2)
    told = case["blind"]
    differs = abs(row["allocated"] - told.get("allocated", 0)) > 1024 or abs(row["reserved"] / max(told.get("reserved", 1), 1) - 1) > 2e-3
    if keep == "all" or differs: recorder.write(os.path.join(histories, case["id"] + ".history.tsv"), dict(case))
    torch.cuda.memory._record_memory_history(enabled=None)
    if not times: return write(row)
    lock.alone()
    timed_llama = tiny_llama()
    row["tiny"] = [timed_llama()]

    def full():
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        scaler.scale(loss).backward()
        del loss
        update()

    for _ in range(3): full()
    torch.cuda.synchronize()
    began = time.time()
    full()
    torch.cuda.synchronize()
    count = max(3, min(10, int(2 / (time.time() - began))))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for i in range(count):
        full()
        events[i + 1].record()
    torch.cuda.synchronize()
    row["step_ms"] = round(sorted(events[i].elapsed_time(events[i + 1]) for i in range(count))[count // 2], 3)
    host = []
    for _ in range(3):  # from an idle card: what the host takes until all is launched
        torch.cuda.synchronize()
        began = time.time()
        full()
        host.append(1e3 * (time.time() - began))
    row["host_ms"] = round(sorted(host)[1], 2)
    torch.cuda.synchronize()
    row["tiny"].append(timed_llama())
    write(row)
    with profile(row): full()


class Turns:
    """Many share the card, or one has it alone; who waits to be alone lets no more in."""

    def __init__(self, folder): self.folder, self.files = folder, None

    def _files(self):
        if self.files is None: self.files = [open(os.path.join(self.folder, name), "w") for name in ("turn", "card")]
        return self.files

    def _take(self, how):
        turn, card = self._files()
        fcntl.flock(card, fcntl.LOCK_UN)
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(card, how)
        fcntl.flock(turn, fcntl.LOCK_UN)

    def leave(self): fcntl.flock(self._files()[1], fcntl.LOCK_UN)
    def share(self): self._take(fcntl.LOCK_SH)
    def alone(self):
        while not os.path.exists(os.environ.get("PROGRAMS_GATE", "/")): time.sleep(0.05)  # until nothing else runs on the machine
        self._take(fcntl.LOCK_EX)


def run_child(case, a, turns):
    head, written = dict(id=case["id"]), []

    def append(path, row):
        with open(path, "a") as out: out.write(json.dumps(row, separators=(",", ":")) + "\n")

    def write(row):
        written.append(row)
        append(a.out, head | row)
        print(f"{time.time() - a.began:.0f}", case["id"], json.dumps(row.get("measured") or [row.get(key) for key in ("peak_allocated", "step_ms_median", "wall_s")])[:200],
              row.get("error", "")[:200], flush=True)

    def profile(row): return profiled(row, case["blind"].get("step_ms"), lambda found: append(a.out + ".profiles", head | found), turns)

    turns.share()
    try:
        if "config" in case:  # of a family
            import families
            import measure
            measure.BEFORE_TIMING = turns.alone
            write(families.one_case(case))
        elif "run" in case:  # of diffusion.py
            import denoisers
            if a.keep == "all" or case.get("keep"): case["history"] = os.path.join(a.histories, case["id"] + ".history.tsv")
            if a.untimed: write(dict(run=case["run"], **denoisers.one(case)))
            else: denoisers.one(case, turns.alone, lambda row: write(dict(run=case["run"], **row)), profile)
        else: one(case, a.device, a.histories, turns, a.keep, not a.untimed, lambda row: write(dict(measured=row)), profile)
    except BaseException as error:
        import traceback
        told = dict(error=f"{type(error).__name__}: {error}"[:500], where=traceback.format_exc()[-1200:])
        if not written: write(told)
        else: print(case["id"], told, flush=True)
    sys.stdout.flush()
    os._exit(0)


def measure(a):
    import tempfile
    a.began = time.time()
    os.makedirs(a.histories, exist_ok=True)
    sys.path.insert(0, str(HERE))
    import torch
    import torchvision  # noqa: F401  before the children are made
    import transformers  # noqa: F401
    import transformers.models.auto.modeling_auto  # noqa: F401
    import timm  # noqa: F401
    assert not torch.cuda.is_initialized()
    if a.turns: os.makedirs(a.turns, exist_ok=True)
    turns = Turns(a.turns or tempfile.mkdtemp())
    todo = lines_of(a.cases)
    todo = [case for case in todo if "refused" not in case.get("blind", {}) and "too_large" not in case.get("blind", {})]
    running = {}  # pid: (GiB, when it began, id)
    print("imports", round(time.time() - a.began, 1), len(todo), "cases", flush=True)
    while todo or running:
        now = time.time()
        if now - a.began > a.budget:
            for pid in running: os.kill(pid, signal.SIGKILL)
            print("out of time:", len(todo), "cases not begun;", [each[2] for each in running.values()], flush=True)
            break
        used = sum(each[0] for each in running.values())
        for case in todo[:12]:
            need = 1.3 + 1.1 * (case.get("blind") or case.get("predicted"))["reserved"] / 2**30
            if len(running) < a.jobs and (not running or used + need < a.memory):
                todo.remove(case)
                pid = os.fork()
                if pid == 0: run_child(case, a, turns)
                running[pid] = (need, now, case["id"])
                break
        else: time.sleep(0.03)
        pid, _ = os.waitpid(-1, os.WNOHANG) if running else (0, 0)
        if pid: running.pop(pid, None)
        for pid, (_, since, name) in list(running.items()):
            if now - since > a.longest:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                running.pop(pid)
                with open(a.out, "a") as out: out.write(json.dumps(dict(id=name, error="timed out")) + "\n")
    print("done in", round(time.time() - a.began), "s", flush=True)


def percentile(errors, share): return sorted(errors)[min(len(errors) - 1, int(share * len(errors)))]


def compare(a):
    cases, kept, found = {case["id"]: case for case in lines_of(a.cases)}, [], []
    for row in lines_of(a.measured):
        case = cases.get(row["id"])
        if case is None or "config" in case: continue
        of = {key: case[key] for key in ("name", "prec", "batch", "options")}
        if "error" in row:
            print(f"{row['id']:60} {row['error'][:150]}")
            kept.append({**of, "measured": {"error": row["error"]}, "blind": case["blind"]})
            continue
        measured, blind = row["measured"], case["blind"]
        errors = [100 * (blind[key] / measured[key] - 1) if measured.get(key) and blind[key] else None for key in ("allocated", "reserved", "step_ms")]
        found.append((errors, blind["allocated"] == measured["allocated"], blind["reserved"] == measured["reserved"]))
        print(f"{row['id']:60} {case['prec']:9} {case['batch']:3} {blind['allocated'] - measured['allocated']:+13d} {errors[0]:+8.3f} % {errors[1]:+8.3f} % " +
              (f"{errors[2]:+.0f} %" if errors[2] is not None else ""))
        kept.append({**of, "gpu": measured["gpu"], "measured": {key: measured[key] for key in ("params", "allocated", "reserved", "step_ms") if key in measured},
                     "blind": {key: round(blind[key], 2) for key in ("allocated", "reserved", "step_ms")}})
    for i, name in enumerate(("allocated", "reserved", "time")):
        sizes = [abs(each[0][i]) for each in found if each[0][i] is not None]
        if not sizes: continue
        exact = sum(each[i + 1] for each in found) if i < 2 else 0
        print(f"{name}: exact {exact} of {len(sizes)}, median {percentile(sizes, 0.5):.3f} %, p90 {percentile(sizes, 0.9):.3f} %, worst {max(sizes):.2f} %")
    if a.rows: Path(a.rows).write_text("".join(json.dumps(row) + "\n" for row in kept))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function, names in ((draw, ("seed", "n", "memcalc", "out")), (measure, ("cases", "out", "histories")), (compare, ("cases", "measured"))):
        command = commands.add_parser(function.__name__)
        for name in names: command.add_argument(name, type=int if name in ("seed", "n") else str)
        if function is measure:
            for name, kind, usual in (("budget", float, 480), ("jobs", int, 5), ("memory", int, 130), ("keep", str, "differing"), ("device", str, "cuda"),
                                      ("longest", float, 90)):
                command.add_argument(f"--{name}", type=kind, default=usual)
        if function is measure:
            command.add_argument("--untimed", action="store_true")
            command.add_argument("--turns")
        if function is draw:
            command.add_argument("--only", default="")
            command.add_argument("--kinds", action="store_true")
            command.add_argument("--largest", type=int, default=LARGEST >> 30)
        if function is compare: command.add_argument("--rows")
        command.set_defaults(call=function)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
