"""One card: the host's time by phase on tiny models (with and without checkpointing), launches by operator, full-size steps as
timelines, several processes at once. usage: host_steps.py OUTDIR SECONDS"""
import os, sys, time, traceback
HERE = os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0, HERE)
import cases
from host_clock import *
DIR, BUDGET, START = sys.argv[1], float(sys.argv[2]), time.time()
out = Out(os.path.join(DIR, "steps.jsonl"))
left = lambda: BUDGET - (time.time() - START)


def reference():
    import torch
    x = torch.randn(8, 64, device="cuda"); m = torch.nn.Identity(); lin = torch.nn.Linear(64, 64, device="cuda")
    def per(f, n=400):
        best = []
        for _ in range(5):
            torch.cuda.synchronize(); t = time.perf_counter()
            for _ in range(n): f()
            best.append((time.perf_counter() - t) / n * 1e6)
        return round(sorted(best)[2], 2)
    out(kind="reference", module_us=per(lambda: m(x)), add_us=per(lambda: x + x), linear_us=per(lambda: lin(x)), cpu=next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if "model name" in l), ""), cores=os.cpu_count())


def tiny_models():
    import torch
    for family in ("llama", "bert", "gpt2", "gemma3", "mixtral", "gpt_neox", "t5", "vit", "qwen3"):
        for dtype, amp in (("bfloat16", None), ("float32", "bf16")):
            if family == "mixtral" and amp: continue
            model, batch = tiny(family, 8, dtype)
            for ckpt in (False, True):
                if left() < 60: return
                if ckpt: model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
                out(kind="tiny", family=family, dtype=dtype, amp=bool(amp), ckpt=ckpt, layers=8, parameters=sum(1 for _ in model.parameters()), **host_phases(model, batch, torch.optim.AdamW(model.parameters(), lr=1e-5), amp, 11))
            del model
    for name, make in (("adamw-fused", lambda p: torch.optim.AdamW(p, fused=True)), ("sgd", lambda p: torch.optim.SGD(p, lr=1e-3)), ("sgdm", lambda p: torch.optim.SGD(p, lr=1e-3, momentum=.9)), ("adamw-for", lambda p: torch.optim.AdamW(p, foreach=False))):
        model, batch = tiny("bert", 8)
        out(kind="optimizer", name=name, parameters=sum(1 for _ in model.parameters()), **host_phases(model, batch, make(model.parameters()), None, 11))


def launches():
    import torch
    for family, dtype, amp in (("mixtral", "bfloat16", None), ("gemma3", "bfloat16", None), ("gpt2", "float32", 1), ("t5", "float32", 1), ("vit", "float32", 1), ("llama", "bfloat16", None)):
        if left() < 50: return
        model, batch = tiny(family, 2, dtype)
        def fwd():
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp is not None): return model(**batch).loss
        fwd().backward(); torch.cuda.synchronize()
        loss = []
        f = launches_by_op(lambda: loss.append(fwd())); b = launches_by_op(lambda: loss[0].backward())
        out(kind="launches", family=family, layers=2, dtype=dtype, amp=bool(amp), forward=f, backward=b)


CASES = [dict(id="gemma3-1b-b2-s1024-bf16", model="gemma3-1b", batch_size=2, sequence_length=1024, precision="bf16"),
         dict(id="mixtral-8x0.3b-b2-s1024-bf16", model="mixtral-8x0.3b", batch_size=2, sequence_length=1024, precision="bf16"),
         dict(id="vit-large-b32-amp-bf16", model="vit-large", batch_size=32, precision="amp-bf16"),
         dict(id="resnet50-b128-amp-fp16", model="resnet50", batch_size=128, precision="amp-fp16"),
         dict(id="gpt2-xl-b4-s1024-bf16-ckpt", model="gpt2-xl", batch_size=4, sequence_length=1024, precision="bf16", checkpointing="full"),
         dict(id="bert-large-b4-s512-tf32", model="bert-large", batch_size=4, sequence_length=512, precision="tf32"),
         dict(id="llama-3.2-1b-b4-s1024-bf16-ckpt", model="llama-3.2-1b", batch_size=4, sequence_length=1024, precision="bf16", checkpointing="full")]


def full_size(case):
    import torch, measure as M
    prec = case.get("precision", "fp32"); torch.backends.cuda.matmul.allow_tf32 = prec == "tf32"; torch.backends.cudnn.allow_tf32 = prec != "fp32"
    amp = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(prec)
    m, batch, cfg, task = M.build(case); m.train(); opt = M.make_opt(case, list(m.parameters())); scaler = torch.amp.GradScaler("cuda", enabled=prec == "amp-fp16")
    def fwd():
        with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None): o = m(**batch)
        return o if torch.is_tensor(o) else o.loss
    def full():
        opt.zero_grad(set_to_none=True); l = fwd(); scaler.scale(l).backward(); del l; scaler.step(opt); scaler.update()
    for _ in range(2): full()
    steps = event_steps(full, 1.0, 12)
    phases = {k: [] for k in "fbo"}
    for _ in range(4):
        e = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        opt.zero_grad(set_to_none=True); torch.cuda.synchronize(); e[0].record(); l = fwd(); e[1].record(); scaler.scale(l).backward(); del l; e[2].record(); scaler.step(opt); scaler.update(); e[3].record(); torch.cuda.synchronize()
        for k, j in zip("fbo", range(3)): phases[k].append(e[j].elapsed_time(e[j + 1]))
    class Loop:  # host_phases wants a model and an optimizer
        pass
    host = host_phases(lambda **b: fwd(), batch, opt, None, 6, 1) if prec != "amp-fp16" else {}
    t = timeline(full, os.path.join(DIR, case["id"] + ".timeline.json.gz"))
    out(**cases.head(case), kind="step", **steps, phase_ms={k: round(middle(v), 2) for k, v in phases.items()}, host=host, timeline=t)


def jitter(rank, world, ready):
    """A tiny LLaMA's layers in forward, by the host's clock: [steps][layers] microseconds."""
    import torch
    model, batch = tiny("llama", 8, "bfloat16"); marks = []
    for layer in model.model.layers: layer.register_forward_pre_hook(lambda *a: marks.append(time.perf_counter()))
    opt = torch.optim.AdamW(model.parameters()); rows = []; steps = []
    for i in range(16):
        if i == 4:  # together from here
            open(f"{ready}.{rank}", "w").close()
            end = time.time() + 20
            while not all(os.path.exists(f"{ready}.{r}") for r in range(world)) and time.time() < end: time.sleep(.001)
        marks.clear(); torch.cuda.synchronize(); t0 = time.perf_counter(); loss = model(**batch).loss; t1 = time.perf_counter(); torch.cuda.synchronize(); t2 = time.perf_counter(); loss.backward(); t3 = time.perf_counter(); opt.step(); opt.zero_grad()
        if i >= 4: rows.append([round(1e6 * (b - a)) for a, b in zip(marks, marks[1:])]); steps.append([round(1e3 * (t1 - t0), 2), round(1e3 * (t3 - t2), 2)])
    out(kind="jitter", world=world, rank=rank, layers_us=rows, forward_backward_ms=steps)


def child(parts, limit):
    """Each part in a process of its own, all at once."""
    pids = []
    for name, part in parts:
        pid = os.fork()
        if pid == 0:
            try: part()
            except BaseException: out(kind="error", part=name, trace=traceback.format_exc()[-700:])
            os._exit(0)
        pids.append(pid)
    end = time.time() + limit
    while pids and time.time() < end:
        pids = [p for p in pids if os.waitpid(p, os.WNOHANG)[0] == 0]; time.sleep(.02)
    for p in pids: os.kill(p, 9); os.waitpid(p, 0)
    if pids: out(kind="error", part=parts[0][0], trace="killed")


def main():
    import torch, transformers, torchvision
    import transformers.models.auto.modeling_auto
    import transformers.models.bert.modeling_bert, transformers.models.llama.modeling_llama, transformers.models.gpt2.modeling_gpt2, transformers.models.mixtral.modeling_mixtral
    import transformers.models.gemma3.modeling_gemma3, transformers.models.qwen3.modeling_qwen3, transformers.models.gpt_neox.modeling_gpt_neox, transformers.models.vit.modeling_vit, transformers.models.t5.modeling_t5
    out(kind="start", torch=torch.__version__, transformers=transformers.__version__, imports_s=round(time.time() - START, 1))
    child([("reference", reference)], 15)
    child([("tiny", tiny_models)], max(5, left() - 55))
    child([("launches", launches)], 18)
    for world in (1, 4):
        if left() > 45: child([("jitter", lambda r=r: jitter(r, world, os.path.join("/tmp", f"ready{os.getpid()}_{world}"))) for r in range(world)], 12)
    for case in CASES:
        if left() < 9: break
        t = time.time(); child([(case["id"], lambda: full_size(case))], min(14, left() - 2)); print(case["id"], round(time.time() - t, 1), flush=True)
    out(kind="done", seconds=round(time.time() - START, 1))


if __name__ == "__main__": main()
