"""The allocator's whole history (from before model construction through some steps) with the operator and the Python frame
of every request and free. One forked child per case, both loops.

usage: history.py CASES.jsonl OUT_DIR [--jobs N] [--budget SECONDS] [--light]
Writes OUT_DIR/<loop>-<id>.history.tsv (pack it: gzip -n9). --light: no operators, no frames (full-size models).

Marks are counters of the allocator (allocations, frees, segments so far), so taking one costs no event. C++ frames come
from TORCH_SYMBOLIZE_MODE=dladdr: the autograd node and the innermost ATen operator.
"""
import argparse, gc, json, os, re, sys, tempfile, time, warnings
import cases
os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")
warnings.filterwarnings("ignore")
T0 = time.time()
OPS = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)"); OPS_M = re.compile(r"_ZN2at4_ops(\d+)(\w+)")
NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\("); NODE_M = re.compile(r"_ZN5torch8autograd(?:9generated)?(\d+)(\w+)")
MISC = (("InputBuffer", "InputBuffer"), ("validate_outputs", "validate_outputs"), ("CUDABlas", "CUDABlas"), ("getCurrentCUDABlasHandle", "cublasHandle"), ("getCUDABlasLtWorkspace", "cublasLtWorkspace"), ("getWorkspace", "workspace"), ("cached_cast", "cached_cast"), ("autocast", "autocast"))


def attribute(frames):
    """frames, innermost first -> (operators 'node>outer>inner', python 'file:function:line<caller')."""
    node = None; ops = []; py = []; misc = []
    for fr in frames:
        n, fn = fr["name"], fr["filename"]
        if fn.endswith(".py"):
            if any(k in fn for k in ("/transformers/", "/accelerate/", "/torch/", "/peft/")) and not fn.endswith(("nn/modules/module.py", "_contextlib.py", "grad_mode.py", "memory.py", "_jit_internal.py", "_compile.py", "generic.py")):
                py.append("%s:%s:%d" % (fn.rsplit("/", 1)[1], n, fr["line"]))
            continue
        m = OPS.search(n)
        if m: o = m.group(1)
        else:
            m = OPS_M.match(n); o = m.group(2)[:int(m.group(1))] if m else None
        if o and (not ops or ops[-1] != o): ops.append(o)
        if node is None:
            m = NODE.search(n)
            if m: node = m.group(1)
            elif "5apply" in n:
                m = NODE_M.match(n)
                if m: node = m.group(2)[:int(m.group(1))]
        for k, v in MISC:
            if k in n and v not in misc: misc.append(v)
    return ">".join(([node] if node else []) + ops[::-1][-3:]) + ("|" + ",".join(misc) if misc else ""), "<".join(py[:2])


class Rec:
    def __init__(self, light, ckpt=False):
        import torch
        self.torch = torch; self.marks = []; self.light = light
        torch.cuda.init()
        kw = dict(context=None, stacks="python") if light else dict(context="alloc" if ckpt else "all", stacks="all")  # a stack taken at a free while checkpointing's early-stop exception is in flight loses the exception
        torch.cuda.memory._record_memory_history(enabled="all", max_entries=3000000, **kw)

    def mark(self, name):
        s = self.torch.cuda.memory_stats()
        g = lambda k: s.get(k, 0)
        self.marks.append([g("allocation.all.allocated"), g("allocation.all.freed"), g("segment.all.allocated"), g("segment.all.freed"), name, g("allocated_bytes.all.current"), g("reserved_bytes.all.current"), g("allocated_bytes.all.peak")])

    def write(self, path, head):
        torch = self.torch
        tr = torch.cuda.memory._snapshot()["device_traces"][0]
        seen = {}; rows = []; c = [0, 0, 0, 0]; marks = []; k = 0
        idx = {"alloc": 0, "free_completed": 1, "segment_alloc": 2, "segment_free": 3}
        def due():
            nonlocal k
            while k < len(self.marks) and all(c[i] >= self.marks[k][i] for i in range(4)):
                marks.append([len(rows)] + self.marks[k][4:]); k += 1
        due()
        base = min([e["addr"] for e in tr if e.get("addr", 0) > 0] or [0])
        live = {}
        for e in tr:
            a = e["action"]
            if a in ("snapshot", "free_requested"): continue      # free_requested is always followed by its free_completed here
            if a == "alloc": live[e["addr"]] = e["size"]
            size = live.pop(e["addr"], e["size"]) if a == "free_completed" else e["size"]
            op = fr = ""
            if not self.light and a in ("alloc", "free_completed"):
                f = e.get("frames") or []
                key = tuple((x["name"], x["filename"], x["line"]) for x in f)
                if key not in seen: seen[key] = attribute(f)
                op, fr = seen[key]
            rows.append((a, e.get("addr", 0) - base, size, e.get("stream", 0), op, fr))
            c[idx.get(a, 3)] += 1
            due()
        while k < len(self.marks): marks.append([len(rows)] + self.marks[k][4:] + ["unreached"]); k += 1
        ids = {}; out = []
        with open(path, "w") as f:
            f.write("# " + json.dumps(dict(head, gpu=torch.cuda.get_device_name(0), torch=torch.__version__, peak_allocated=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved(), alloc_retries=torch.cuda.memory_stats()["num_alloc_retries"])) + "\n")
            f.write("# marks: [rows so far, phase just ended, allocated, reserved, max allocated]\n")
            for m in marks: f.write("# " + json.dumps(m) + "\n")
            f.write("action\taddress\tsize\tstream" + ("" if self.light else "\top\tframe") + "\n")
            for r in rows: f.write("\t".join(map(str, r[:4] if self.light else r)) + "\n")
        if not self.light:
            lf = max((e.get("frames") or [] for e in tr if e["action"] == "alloc"), key=len, default=[])
            open(path + ".frames.txt", "w").write("\n".join("%s %s:%d" % (x["name"][:200], x["filename"], x["line"]) for x in lf[:120]))
        return len(rows)


def padded(case, torch, S, V, n, task):
    """The padding of measure_trainer.py: every second sequence is padded to half."""
    am = torch.ones(n, S, dtype=torch.long, device="cuda"); am[1::2, S // 2:] = 0
    return am


def bare(case, rec):
    import torch, measure as M
    torch.zeros(1, device="cuda"); torch.cuda.synchronize(); gc.collect(); torch.cuda.empty_cache(); rec.mark("start")
    prec = case.get("precision", "fp32"); amp = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(prec)
    torch.backends.cuda.matmul.allow_tf32 = prec == "tf32"; torch.backends.cudnn.allow_tf32 = prec != "fp32"
    m, batch, cfg, task = M.build(case)
    if case.get("padding"): batch["attention_mask"] = padded(case, torch, case["sequence_length"], None, case["batch_size"], task)
    rec.mark("built model and batch"); gc.collect(); torch.cuda.empty_cache(); rec.mark("empty_cache")
    import finetune
    m = finetune.apply(m, case); rec.mark("fine-tuning set up")
    if case.get("infer"): return infer(case, rec, m, batch, cfg)
    m.train(); opt = M.make_opt(case, [p for p in m.parameters() if p.requires_grad]); scaler = torch.amp.GradScaler("cuda", enabled=prec == "amp-fp16")
    accum = case.get("accumulation_steps", 1); run = torch.compile(m) if case.get("compile") else m
    def fwd():
        with finetune.saving(case):
            if amp is not None:
                with torch.autocast("cuda", dtype=amp): o = run(**batch)
            else: o = run(**batch)
        return o if torch.is_tensor(o) else o.loss
    def bwd(l): scaler.scale(l / accum if accum > 1 else l).backward()
    for step in range(3):
        opt.zero_grad(set_to_none=True); rec.mark(f"step {step} zero_grad")
        for a in range(accum):
            l = fwd(); rec.mark(f"step {step} forward"); bwd(l); rec.mark(f"step {step} backward"); lv = float(l.detach()); del l; rec.mark(f"step {step} del loss")
        if case.get("max_grad_norm"):
            scaler.unscale_(opt); torch.nn.utils.clip_grad_norm_(m.parameters(), case["max_grad_norm"]); rec.mark(f"step {step} clip")
        scaler.step(opt); rec.mark(f"step {step} optimizer"); scaler.update(); rec.mark(f"step {step} scaler update")
    return dict(params=[[n, list(p.shape), str(p.dtype)[6:], p.requires_grad] for n, p in m.named_parameters()], attn=getattr(cfg, "_attn_implementation", None))


def infer(case, rec, m, batch, cfg):
    import torch
    m.eval(); batch.pop("labels", None); new = case.get("new_tokens", 0)
    kw = dict(max_new_tokens=new, min_new_tokens=new, do_sample=False, num_beams=case.get("beams", 1), pad_token_id=0)
    f = (lambda: m.generate(**batch, **kw)) if new else (lambda: m(**batch))
    amp = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(case.get("precision"))
    if case.get("offload_parameters"):
        import accelerate, gc
        m = accelerate.cpu_offload(m, execution_device=torch.device("cuda:0")); gc.collect(); torch.cuda.empty_cache(); rec.mark("weights offloaded")
    with torch.no_grad(), torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
        for i in range(2):
            o = f(); rec.mark("call %d" % i); del o; rec.mark("call %d result dropped" % i)
    return dict(params=[[n, list(p.shape), str(p.dtype)[6:], p.requires_grad] for n, p in m.named_parameters()], attn=getattr(cfg, "_attn_implementation", None))


def trainer(case, rec):
    import torch, transformers as tf, measure as M
    torch.zeros(1, device="cuda"); torch.cuda.synchronize(); rec.mark("start")
    bcase = dict(case); bcase["precision"] = {"amp-fp16": "fp32", "amp-bf16": "fp32"}.get(case["precision"], case["precision"]); bcase["checkpointing"] = "none"
    m, batch, cfg, task = M.build(bcase); rec.mark("built model and batch")
    import measure_trainer as MT
    items, collate = MT.dataset(case, task, getattr(cfg, "vocab_size", 1000)); m = MT.for_trainer(m, task)
    del batch; gc.collect(); torch.cuda.empty_cache(); rec.mark("empty_cache")
    import finetune
    m = finetune.apply(m, dict(case, liger=None)); rec.mark("fine-tuning set up")
    kw = dict(output_dir=os.path.join(tempfile.gettempdir(), "t_" + case["id"]), per_device_train_batch_size=case["batch_size"], max_steps=case.get("steps", 4), gradient_accumulation_steps=case.get("accumulation_steps", 1),
              gradient_checkpointing=case.get("checkpointing") == "full", fp16=case["precision"] == "amp-fp16", bf16=case["precision"] == "amp-bf16", report_to="none", logging_strategy="no",
              save_strategy="no", disable_tqdm=True, dataloader_num_workers=0, remove_unused_columns=False)
    if case.get("liger"): kw["use_liger_kernel"] = True
    if case.get("optimizer"): kw["optim"] = cases.OPTIM.get(case["optimizer"], case["optimizer"])
    if case.get("max_grad_norm") is not None: kw["max_grad_norm"] = case["max_grad_norm"]
    args = tf.TrainingArguments(**kw)
    t = tf.Trainer(model=m, args=args, train_dataset=items, data_collator=collate)
    rec.mark("trainer constructed")
    def wrap(obj, name, label, before=False):
        f = getattr(obj, name)
        def w(*a, **k):
            if before: rec.mark("before " + label)
            try: return f(*a, **k)
            finally: rec.mark(label)
        w.__wrapped__ = f
        setattr(obj, name, w)
    wrap(t, "get_batch_samples", "batch", True); wrap(t, "training_step", "training_step"); wrap(t, "_prepare_inputs", "prepare_inputs", True); wrap(t, "compute_loss", "forward")
    wrap(t.accelerator, "backward", "backward", True); wrap(t, "_clip_grad_norm", "clip", True)
    pt = t._prepare_for_training
    def prep(*a, **k):
        r = pt(*a, **k); rec.mark("prepared")
        o = t.optimizer; f = o.step
        def st(*a, **k):
            rec.mark("before optimizer")
            try: return f(*a, **k)
            finally: rec.mark("optimizer")
        o.step = st
        mdl = r[0]; z = mdl.zero_grad
        def zg(*a, **k):
            rec.mark("before zero_grad")
            try: return z(*a, **k)
            finally: rec.mark("zero_grad")
        mdl.zero_grad = zg
        return r
    t._prepare_for_training = prep
    t.train(); rec.mark("train ended")
    return dict(params=[[n, list(p.shape), str(p.dtype)[6:], p.requires_grad] for n, p in m.named_parameters()], optim=str(args.optim), attn=getattr(cfg, "_attn_implementation", None))


def run(case, outdir, light):
    import torch
    rec = Rec(light or bool(case.get("light")), case.get("checkpointing", "none") != "none")
    loop = case.get("loop", "bare"); t = time.time()
    head = cases.head(case); err = None
    try: head.update((trainer if loop == "trainer" else bare)(case, rec))
    except Exception as e:
        import traceback; err = repr(e)[:300] + traceback.format_exc()[-500:]; head["error"] = err; rec.mark("error")
    t1 = time.time()
    n = rec.write(os.path.join(outdir, "%s-%s.history.tsv" % (loop, case["id"])), head)
    print(case["id"], loop, n, "rows", "%.1f MiB %.1f MiB" % (torch.cuda.max_memory_allocated() / 2**20, torch.cuda.max_memory_reserved() / 2**20), "run %.1fs write %.1fs" % (t1 - t, time.time() - t1), err or "", flush=True)


def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("out"); ap.add_argument("--jobs", type=int, default=5); ap.add_argument("--budget", type=float, default=400); ap.add_argument("--light", action="store_true"); ap.add_argument("--direct")
    a = ap.parse_args(); os.makedirs(a.out, exist_ok=True)
    import torch, transformers, accelerate
    from transformers import Trainer, TrainingArguments, default_data_collator
    import transformers.models.auto.modeling_auto
    print("imports %.1f" % (time.time() - T0), flush=True)
    if a.direct: return run(cases.flat(json.loads(a.direct)), a.out, a.light)
    import finetune
    from op_requests import pool
    pool([(c["id"], (lambda c=c: (finetune.elsewhere(c, "history.py", [a.cases, a.out]), run(c, a.out, a.light)))) for c in cases.read(a.cases)], a.jobs, lambda s: print(s, flush=True), T0 + a.budget)


if __name__ == "__main__": main()
