"""Profiles training steps: seconds of every operator by its shapes, the host's milliseconds by phase, the step's time.

usage: profile_steps.py CASES.jsonl OUT.jsonl [--budget SECONDS] [--done FILE …]

One line a case: step_ms (median, least), host_ms [forward, backward, optimizer] each from an idle card, busy_ms (sum of the
kernels), and `ops`: [operator, shapes, types, scalars, calls, microseconds, [[kernel, microseconds] of the first call]].
Kernels' names are numbers into `names`. Resumable: cases whose id stands in OUT or in a --done file are left out.
"""
import argparse, gc, json, os, sys, time, traceback
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent if HERE.parent.name == "harness" else HERE.parents[2] / "tests/measured/harness"))
import torch  # noqa: E402

TIMED = CARD_FREE = lambda row: None  # blind_steps.py: called when the step is timed, and when the card is empty
WARM = lambda: None  # after the first two steps
MORE = lambda row, full, sync: None  # when the step and its peak are known
AMP = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
TYPE = {"bf16": torch.bfloat16, "fp16": torch.float16}


def vision(case):
    run, how = case["run"], case["harness"]
    kind, name = how["kind"], how["name"]
    with torch.device(DEVICE):
        if kind == "timm":
            import timm
            model = timm.create_model(name)
        else:
            import torchvision
            kw = dict(weights=None, weights_backbone=None) if "segmentation" in how else {}
            make = torchvision.models.segmentation if "segmentation" in how else torchvision.models
            if name in ("googlenet", "inception_v3"): kw = dict(aux_logits=False, init_weights=False)
            model = getattr(make, name)(**kw)
    model = model.to(TYPE.get(run["precision"], torch.float32))
    if how.get("channels_last"): model = model.to(memory_format=torch.channels_last)
    size, n = run.get("image_size", 224), run["batch_size"]
    x = torch.randn(n, 3, size, size, device=DEVICE, dtype=TYPE.get(run["precision"], torch.float32))
    if how.get("channels_last"): x = x.to(memory_format=torch.channels_last)
    y = torch.randint(5, 20, (n, size, size) if "segmentation" in how else (n,), device=DEVICE)

    def loss_of(**batch):
        out = model(batch["x"])
        if isinstance(out, dict): out = out["out"]
        return torch.nn.functional.cross_entropy(out, batch["y"])
    return model, dict(x=x, y=y), loss_of


def text(case):
    import measure
    flat = dict(id=case["id"], **case["run"], **case["harness"])
    if "config" in flat and "model_type" in flat["config"]:
        import models
        config = flat.pop("config")
        models.MODELS[case["id"]] = (flat.get("task", "causal"), config)
        flat["model"] = case["id"]
    model, batch, _, _ = measure.build(flat)
    if flat.get("padding"):
        mask = torch.ones(flat["batch_size"], flat["sequence_length"], dtype=torch.long, device=DEVICE)
        mask[1::2, flat["sequence_length"] // 2:] = 0
        batch["attention_mask"] = mask
    import finetune
    model = finetune.apply(model, flat)

    def loss_of(**batch):
        out = (model if compiled is None else compiled)(**batch)
        return out if torch.is_tensor(out) else out.loss
    compiled = torch.compile(model) if flat.get("compile") else None
    return model, batch, loss_of


def events_of(profile):
    """(operators, kernels): [correlation, name, shapes, types, scalars, begin] and [operator's correlation, name, begin, us]."""
    operators, kernels = {}, []
    for e in profile.profiler.kineto_results.events():
        if str(e.device_type()).endswith("CUDA"):
            if e.linked_correlation_id() > 0 or e.duration_ns() > 0:
                kernels.append((e.linked_correlation_id(), e.name(), e.start_ns(), e.duration_ns() / 1e3))
        else:
            operators[e.correlation_id()] = e
    kernels.sort(key=lambda k: k[2])
    return operators, kernels


def concrete(e):
    out = []
    for c in e.concrete_inputs():
        out.append(c if isinstance(c, (int, float, bool, str)) or c is None or (isinstance(c, list) and len(c) < 9 and all(isinstance(i, (int, float, bool)) for i in c)) else None)
    return out


def operators(profile):
    ops, kernels = events_of(profile)
    names, table, busy, count = {}, {}, 0.0, 0
    number = lambda name: names.setdefault(name[:120], len(names))
    first = {}
    for link, name, _, us in kernels:
        if name.startswith(("aten::", "ProfilerStep", "autograd::", "Optimizer.", "## ")) or name.endswith("Backward0"): continue  # annotations
        busy += us
        count += 1
        e = ops.get(link)
        if e is None: key = ("?", "", "", "")
        else: key = (e.name(), json.dumps(e.shapes()), json.dumps([t[:14] for t in e.dtypes()]), json.dumps(concrete(e)))
        row = table.setdefault(key, [set(), 0.0, []])
        row[0].add(link)
        row[1] += us
        if key not in first: first[key] = link
        if first[key] == link: row[2].append([number(name), round(us, 2)])
    rows = [[k[0], json.loads(k[1] or "[]"), json.loads(k[2] or "[]"), json.loads(k[3] or "[]"), len(v[0]), round(v[1], 1), v[2]] for k, v in table.items()]
    return dict(busy_ms=round(busy / 1e3, 3), kernels=count, names=list(names), ops=rows)


class Loop:
    """A plain training loop of a case: forward, backward, step and a full step of them."""

    def __init__(self, case):
        import measure
        run = case["run"]
        torch.manual_seed(0)
        self.precision, self.accumulation, self.norm = run["precision"], run.get("accumulation_steps", 1), run.get("max_grad_norm")
        if DEVICE == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
            torch.backends.cudnn.allow_tf32 = self.precision != "fp32"
        self.model, self.batch, self.loss_of = vision(case) if case["harness"].get("kind") in ("tv", "timm") else text(case)
        gc.collect()
        if DEVICE == "cuda": torch.cuda.empty_cache()  # as measure.py: what building the model left behind (a tied head's own weight) moves later blocks
        self.model.train()
        self.optimizer = measure.make_opt(run, [p for p in self.model.parameters() if p.requires_grad])
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=self.precision == "amp-fp16")

    def forward(self):
        with torch.autocast(DEVICE, dtype=AMP.get(self.precision, torch.bfloat16), enabled=self.precision in AMP):
            return self.loss_of(**self.batch)

    def backward(self, loss): self.scaler.scale(loss / self.accumulation if self.accumulation > 1 else loss).backward()

    def step(self):
        if self.norm:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def zero_grad(self): self.optimizer.zero_grad(set_to_none=True)

    def full(self):
        self.zero_grad()
        for _ in range(self.accumulation):
            loss = self.forward()
            self.backward(loss)
            del loss
        self.step()

    def phases(self):
        """Seconds of forward, backward and optimizer, each from an idle card."""
        self.zero_grad(); synchronize(); begin = time.perf_counter()
        loss = self.forward(); forward = time.perf_counter() - begin; synchronize(); begin = time.perf_counter()
        self.backward(loss); backward = time.perf_counter() - begin; del loss; synchronize(); begin = time.perf_counter()
        self.step(); step = time.perf_counter() - begin; synchronize()
        return forward, backward, step

    def steps(self, count):
        """Milliseconds of as many steps, by events of the card."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for number in range(count): self.full(); marks[number + 1].record()
        synchronize()
        return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def synchronize():
    if DEVICE == "cuda": torch.cuda.synchronize()


def one(case):
    how = case["harness"]
    loop, sync = Loop(case), synchronize
    full = loop.full
    row = dict(case, gpu=torch.cuda.get_device_name(0) if DEVICE == "cuda" else "cpu", torch=torch.__version__)
    begin = time.time()
    full(); sync()
    row["first_s"] = round(time.time() - begin, 2)
    full(); sync()
    WARM()
    if DEVICE == "cuda" and not how.get("untimed"):
        begin = time.time(); full(); sync(); once = time.time() - begin
        n = max(5 if once < 0.2 else 3, min(20, int(0.3 / once)))
        times = sorted(loop.steps(n))
        row.update(step_ms_median=round(times[n // 2], 3), step_ms_min=round(times[0], 3), step_n=n)
        host = list(zip(*(loop.phases() for _ in range(5 if once < 0.1 else 2 if once < 0.4 else 1))))
        row["host_ms"] = [round(1e3 * sorted(h)[len(h) // 2], 2) for h in host]
        row["peak_allocated"], row["peak_reserved"] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        MORE(row, full, sync)
    row["params"] = sum(p.numel() for p in loop.model.parameters())
    row["n_param_tensors"] = sum(1 for _ in loop.model.parameters())
    from torch.profiler import ProfilerActivity as PA, profile
    acts = [PA.CPU, PA.CUDA] if DEVICE == "cuda" else [PA.CPU]
    TIMED(row)
    if not how.get("no_profile"):
        with profile(activities=acts, record_shapes=True) as p:
            full(); sync()
            del full, loop
            gc.collect()
            if DEVICE == "cuda": torch.cuda.empty_cache()
            CARD_FREE(row)
        row.update(operators(p))
        if how.get("timeline"):  # where the card waits
            _, kernels = events_of(p)
    return row


def main():
    global DEVICE
    parser = argparse.ArgumentParser()
    parser.add_argument("cases"); parser.add_argument("out")
    parser.add_argument("--budget", type=float, default=560)
    parser.add_argument("--done", nargs="*", default=[])
    parser.add_argument("--device", default="cuda")
    a = parser.parse_args()
    DEVICE = a.device
    end = time.time() + a.budget
    done = set()
    for path in [a.out, *a.done]:
        if os.path.exists(path):
            for line in open(path):
                try: done.add(json.loads(line)["id"])
                except Exception: pass
    cases = [json.loads(line) for line in open(a.cases) if line.strip()]
    left = [c for c in cases if c["id"] not in done]
    while left and time.time() < end:
        case = left[0]
        child = os.fork()  # one for each: what the profiler leaves in a process makes later launches slower
        if child == 0:
            with open(a.out + ".now", "w") as f: f.write(case["id"])
            begin = time.time()
            try: row = one(case)
            except Exception as error: row = dict(case, error=repr(error)[:300], where=traceback.format_exc()[-400:])
            row["wall_s"] = round(time.time() - begin, 2)
            with open(a.out, "a") as f: f.write(json.dumps(row, separators=(",", ":")) + "\n")
            print(case["id"], row.get("step_ms_median"), row.get("busy_ms"), row.get("host_ms"), row["wall_s"], row.get("error", "")[:150], flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            with open(a.out, "a") as f: f.write(json.dumps(dict(case, error=f"process ended with {status}")) + "\n")
        left = left[1:]


if __name__ == "__main__": main()
