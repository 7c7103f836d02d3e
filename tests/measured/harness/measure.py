"""Measures real training/inference steps: memory per phase, step time, FLOPs. One forked child per case.

usage: measure.py CASES.jsonl OUT.jsonl [--trace-dir DIR] [--budget SECONDS]
"""
import gc, json, os, sys, time, traceback, argparse

import cases

TIMING = True  # rows.py turns timing and FLOP counting off
BEFORE_TIMING = None  # programs.py waits there until the card is its own

def build(case):
    import torch
    from models import MODELS
    task, spec = MODELS[case["model"]]
    prec = case.get("precision", "fp32")
    wdtype = {"fp32": torch.float32, "tf32": torch.float32, "amp-fp16": torch.float32, "amp-bf16": torch.float32,
              "bf16": torch.bfloat16, "fp16": torch.float16}[prec]
    B, S = case["batch_size"] * case.get("micro_batches", 1), case.get("sequence_length", 0)  # of a pipeline: all micro-batches
    g = torch.Generator(device="cuda").manual_seed(0)
    ri = lambda hi, *shape: torch.randint(5, hi, shape, device="cuda", generator=g)
    if task == "tv":
        import torchvision
        with torch.device("cuda"):
            m = getattr(torchvision.models, spec)()
        m = m.to(wdtype)
        size = case.get("image_size", 224)
        x = torch.randn(B, 3, size, size, device="cuda", dtype=wdtype); y = ri(999, B)
        class W(torch.nn.Module):
            def __init__(s): super().__init__(); s.m = m
            def forward(s, x, y):
                o = s.m(x)
                return torch.nn.functional.cross_entropy(o, y)
        return W(), dict(x=x, y=y), None, task
    if task == "custom":
        import custom
        m, batch = custom.build(spec, case, wdtype, ri)
        return m, batch, None, task
    import transformers as tf
    spec = dict(spec); mt = spec.pop("model_type"); task = case.get("task", task)
    if task == "speech": task = "whisper"
    if task == "seqcls": spec.setdefault("pad_token_id", 0)  # a decoder's classifier looks for the last token that is no padding
    if "layers" in case:
        for k in ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers", "n_layers"):
            if k in spec: spec[k] = case["layers"]
        for k in ("text_config", "vision_config"):
            if k in spec: spec[k] = dict(spec[k], num_hidden_layers=case["layers"])
    if case.get("dropout") is not None:
        d = case["dropout"]
        for k in ("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "attention_dropout", "hidden_dropout", "dropout_rate"):
            spec[k] = d
    spec.update(case.get("config", {}))
    if case.get("tie") is False: spec["tie_word_embeddings"] = False
    cfg = tf.AutoConfig.for_model(mt, **spec)
    if mt in ("whisper", "t5", "mt5"):
        cfg.decoder_start_token_id = 1 if mt == "whisper" else 0
        if mt != "whisper": cfg.pad_token_id = 0
    cls = {"seqcls": tf.AutoModelForSequenceClassification, "mlm": tf.AutoModelForMaskedLM, "causal": tf.AutoModelForCausalLM,
           "seq2seq": tf.AutoModelForSeq2SeqLM, "whisper": tf.AutoModelForSpeechSeq2Seq, "image": tf.AutoModelForImageClassification,
           "tokcls": tf.AutoModelForTokenClassification, "contrastive": tf.AutoModel}[task]
    if case.get("images") is not None: cls = tf.AutoModelForImageTextToText
    if case.get("quantize"):
        import finetune
        m = finetune.load_quantized(case, cfg, cls, wdtype)
    else:
        with torch.device("cuda"):
            m = cls.from_config(cfg, dtype=wdtype, attn_implementation=case.get("attention", "sdpa"))
            if case.get("scores_by_two_layers"):  # Qwen's reward models
                m.score = None
                m.score = torch.nn.Sequential(torch.nn.Linear(cfg.hidden_size, cfg.hidden_size, dtype=wdtype), torch.nn.ReLU(),
                                              torch.nn.Linear(cfg.hidden_size, cfg.num_labels, dtype=wdtype))
    V = spec.get("vocab_size", 1000)
    if case.get("images") is not None: batch = image_text(m, cfg, case, ri)
    elif task == "seqcls": batch = dict(input_ids=ri(V, B, S), labels=ri(6, B) * 0)
    elif task in ("mlm", "causal"):
        ids = ri(V, B, S); batch = dict(input_ids=ids, labels=ids.clone())
    elif task == "seq2seq":
        batch = dict(input_ids=ri(V, B, S), labels=ri(V, B, case.get("target_sequence_length", S)))
    elif task == "whisper":
        batch = dict(input_features=torch.randn(B, 80, 3000, device="cuda", dtype=wdtype), labels=ri(V, B, S))
    elif task == "tokcls": batch = dict(input_ids=ri(V, B, S), labels=ri(6, B, S) * 0)
    elif task == "contrastive":
        batch = dict(input_ids=ri(49408, B, S), pixel_values=torch.randn(B, 3, 224, 224, device="cuda", dtype=wdtype), return_loss=True)
    elif task == "image":
        batch = dict(pixel_values=torch.randn(B, 3, 224, 224, device="cuda", dtype=wdtype), labels=ri(6, B) * 0)
    if case.get("mask"): batch["attention_mask"] = torch.ones(B, S, dtype=torch.long, device="cuda")
    if case.get("checkpointing", "none") == "full":
        m.gradient_checkpointing_enable()
    return m, batch, cfg, task

def image_text(m, cfg, case, ri):
    """A text with images as the model's processor hands them over: python/memcalc/record/_pictures.py."""
    import importlib.util
    import torch
    path = os.path.join(cases.HERE, "../../../python/memcalc/record/_pictures.py")
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("pictures", path))
    sys.modules["pictures"] = module
    module.__spec__.loader.exec_module(module)
    B, S, dtype = case["batch_size"], case["sequence_length"], next(m.parameters()).dtype
    shown = module.pictures(cfg, type(m), case["images"], case.get("image_size"))
    text = cfg.get_text_config()
    ids = ri(min(shown.token_id, text.vocab_size), B, S)
    special = {v for k, v in vars(cfg).items() if k.endswith(("token_id", "token_index")) and isinstance(v, int)}
    for token in special: ids[ids == token] = 5 + max(special) % 7
    for start in range(1, shown.all_tokens, shown.tokens + 1): ids[:, start:start + shown.tokens] = shown.token_id
    batch = dict(input_ids=ids, labels=ids.clone())
    for name, value in shown.tensors(B, S).items():
        batch[name] = torch.randn(value.shape, device="cuda", dtype=dtype) if value.is_floating_point() else value.cuda()
    if shown.types: batch[shown.types] = (ids == shown.token_id).long()
    return batch

def make_opt(case, params):
    import torch
    o = case.get("optimizer", "adamw")
    if case.get("offload_optimizer"): o = "adamw-offload"
    if o == "adamw": return torch.optim.AdamW(params, lr=1e-5)
    if o == "adamw-fused": return torch.optim.AdamW(params, lr=1e-5, fused=True)
    if o == "adamw-for": return torch.optim.AdamW(params, lr=1e-5, foreach=False)
    if o == "sgd": return torch.optim.SGD(params, lr=1e-5)
    if o == "sgdm": return torch.optim.SGD(params, lr=1e-5, momentum=0.9)
    if o == "adagrad": return torch.optim.Adagrad(params, lr=1e-5)
    if o == "rmsprop": return torch.optim.RMSprop(params, lr=1e-5)
    if o == "adafactor-torch": return torch.optim.Adafactor(params, lr=1e-5)
    if o == "adafactor":
        from transformers.optimization import Adafactor
        return Adafactor(params, lr=1e-5, relative_step=False, scale_parameter=False)
    if o == "none": return None
    import finetune
    return finetune.optimizer(o, params, case)

def nvml_used():
    try:
        import pynvml
        pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByIndex(0)
        return pynvml.nvmlDeviceGetMemoryInfo(h).used
    except Exception as e:
        return None

def run_case(case, trace_dir):
    import torch
    t_start = time.time()
    r = dict(cases.head(case), torch=torch.__version__)
    if case.get("expandable"): torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    r["nvml_before_context"] = nvml_used()
    torch.cuda.init(); torch.zeros(1, device="cuda"); torch.cuda.synchronize()
    r["gpu"] = torch.cuda.get_device_name(0); r["gpu_total"] = torch.cuda.get_device_properties(0).total_memory
    r["nvml_after_context"] = nvml_used()
    gc.collect(); torch.cuda.empty_cache()
    prec = case.get("precision", "fp32")
    torch.backends.cuda.matmul.allow_tf32 = prec == "tf32"; torch.backends.cudnn.allow_tf32 = prec != "fp32"
    amp = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(prec)
    A = torch.cuda.memory_allocated; R = torch.cuda.memory_reserved; P = torch.cuda.max_memory_allocated
    base = A()
    m, batch, cfg, task = build(case)
    if case.get("padding"):  # every second sequence is padded to half
        am = torch.ones(case["batch_size"], case["sequence_length"], dtype=torch.long, device="cuda"); am[1::2, case["sequence_length"] // 2:] = 0; batch["attention_mask"] = am; del am
    gc.collect(); torch.cuda.empty_cache()
    r["attn_impl"] = getattr(cfg, "_attn_implementation", None) if cfg is not None else None
    r["batch_bytes"] = sum(v.numel() * v.element_size() for v in batch.values() if torch.is_tensor(v))
    r["alloc_after_model_and_batch"] = A() - base; r["reserved_after_model"] = R(); r["nvml_after_model"] = nvml_used()
    import finetune
    m = finetune.apply(m, case)
    if case.get("lora"): r["alloc_after_lora"] = A() - base
    r["params"] = sum(p.numel() for p in m.parameters()); r["trainable"] = sum(p.numel() for p in m.parameters() if p.requires_grad)
    r["n_param_tensors"] = sum(1 for _ in m.parameters()); r["buffer_bytes"] = sum(b.numel() * b.element_size() for b in m.buffers())
    if case.get("infer"): return infer(case, r, m, batch, base, torch)
    m.train()
    opt = make_opt(case, [p for p in m.parameters() if p.requires_grad])
    scaler = torch.amp.GradScaler("cuda", enabled=prec == "amp-fp16")
    accum = case.get("accumulation_steps", 1)
    run = m
    if case.get("compile"): run = torch.compile(m)
    def fwd():
        with finetune.saving(case):
            if amp is not None:
                with torch.autocast("cuda", dtype=amp): o = run(**batch)
            else: o = run(**batch)
        return o if torch.is_tensor(o) else o.loss
    def bwd(l): scaler.scale(l / accum if accum > 1 else l).backward()
    def clip():
        if case.get("max_grad_norm"):
            scaler.unscale_(opt); torch.nn.utils.clip_grad_norm_(m.parameters(), case["max_grad_norm"])
    def ostep():
        if opt is not None: scaler.step(opt); scaler.update()
    def zero():
        if opt is not None: opt.zero_grad(set_to_none=True)
        else:
            for p in m.parameters(): p.grad = None
    phases = []
    torch.cuda.reset_peak_memory_stats(); overall = 0
    def phase(name, f, *a):
        nonlocal overall
        torch.cuda.reset_peak_memory_stats(); before = A()
        x = f(*a); torch.cuda.synchronize()
        phases.append([step, name, before - base, P() - base, A() - base, R()]); overall = max(overall, P() - base)
        return x
    for step in range(case.get("steps", 3)):
        zero()
        for a in range(accum):
            loss = phase("forward", fwd); phase("backward", bwd, loss); lv = float(loss.detach()); del loss
        if case.get("max_grad_norm"): phase("clip", clip)
        phase("optimizer", ostep)
    r["phases"] = phases; r["peak_allocated"] = overall; r["peak_reserved"] = torch.cuda.max_memory_reserved(); r["loss"] = lv
    r["nvml_after_train"] = nvml_used()
    ms = torch.cuda.memory_stats(); r["alloc_retries"] = ms["num_alloc_retries"]; r["segments"] = ms["segment.all.peak"]; r["inactive_split_peak"] = ms["inactive_split_bytes.all.peak"]
    if not TIMING: r["wall_s"] = time.time() - t_start; return r
    if BEFORE_TIMING is not None: BEFORE_TIMING()
    # time
    def full():
        zero()
        for a in range(accum): l = fwd(); bwd(l); del l
        clip(); ostep()
    full(); torch.cuda.synchronize()
    t0 = time.time(); full(); torch.cuda.synchronize(); dt = time.time() - t0
    n = max(4, min(30, int(case.get("time_s", 1.5) / dt)))
    ev = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    ev[0].record()
    for i in range(n): full(); ev[i + 1].record()
    torch.cuda.synchronize()
    ts = sorted(ev[i].elapsed_time(ev[i + 1]) for i in range(n)); r["step_ms_median"] = ts[n // 2]; r["step_ms_min"] = ts[0]; r["step_n"] = n
    # phases in time
    pt = {"forward": [], "backward": [], "optimizer": []}
    for i in range(min(n, 8)):
        e = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        zero(); e[0].record(); l = fwd(); e[1].record(); bwd(l); del l; e[2].record(); clip(); ostep(); e[3].record(); torch.cuda.synchronize()
        for k, j in (("forward", 0), ("backward", 1), ("optimizer", 2)): pt[k].append(e[j].elapsed_time(e[j + 1]))
    r["phase_ms"] = {k: sorted(v)[len(v) // 2] for k, v in pt.items()}
    try:
        from torch.utils.flop_counter import FlopCounterMode
        zero()
        with FlopCounterMode(display=False) as fc: l = fwd()
        r["flops_forward"] = fc.get_total_flops()
        with FlopCounterMode(display=False) as fc: bwd(l)
        r["flops_backward"] = fc.get_total_flops(); del l; zero()
        r["flops_by_op"] = {str(k): v for k, v in fc.get_flop_counts().get("Global", {}).items()}
    except Exception as e: r["flops_error"] = repr(e)[:200]
    if case.get("trace") and trace_dir: trace(case, r, trace_dir, zero, fwd, bwd, clip, ostep, torch)
    if case.get("profile") and trace_dir: profile(case, trace_dir, full, torch)
    r["wall_s"] = time.time() - t_start
    return r

def infer(case, r, m, batch, base, torch):
    A = torch.cuda.memory_allocated; P = torch.cuda.max_memory_allocated
    m.eval(); batch.pop("labels", None); new = case.get("new_tokens", 0)
    amp = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(case.get("precision"))
    if case.get("offload_parameters"):  # accelerate's hooks: a module's weights are on the card while it runs
        import accelerate
        m = accelerate.cpu_offload(m, execution_device=torch.device("cuda:0")); gc.collect(); torch.cuda.empty_cache()
    with torch.no_grad(), torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
        torch.cuda.reset_peak_memory_stats()
        if new == 0:
            f = lambda: m(**batch)
        else:
            f = lambda: m.generate(**batch, max_new_tokens=new, min_new_tokens=new, do_sample=False, num_beams=case.get("beams", 1), pad_token_id=0)
        o = f(); torch.cuda.synchronize(); del o
        torch.cuda.reset_peak_memory_stats(); t0 = time.time(); o = f(); torch.cuda.synchronize(); r["time_s"] = time.time() - t0
        r["peak_allocated"] = P() - base; r["alloc_after"] = A() - base; r["peak_reserved"] = torch.cuda.max_memory_reserved(); r["nvml_after"] = nvml_used()
        r["segments"] = torch.cuda.memory_stats()["segment.all.peak"]
    return r

def profile(case, d, full, torch):
    from torch.profiler import profile as prof, ProfilerActivity as PA
    full(); torch.cuda.synchronize()
    with prof(activities=[PA.CPU, PA.CUDA], record_shapes=True) as p:
        full(); torch.cuda.synchronize()
    rows = []
    for e in p.key_averages(group_by_input_shape=True):
        t = e.self_device_time_total
        if t > 0 and not e.key.startswith("void ") and "::" in e.key: rows.append([e.key, str(e.input_shapes)[:160], e.count, round(t, 1)])
    kern = {}
    for e in p.events():
        if str(e.device_type).endswith("CUDA"):
            k = kern.setdefault(e.name[:140], [0, 0.0]); k[0] += 1; k[1] += e.device_time_total if hasattr(e, "device_time_total") else 0
    rows.sort(key=lambda x: -x[3])
    with open(os.path.join(d, case["id"] + ".ops.json"), "w") as f: json.dump(dict(ops=rows[:150], kernels=sorted(([k, *v] for k, v in kern.items()), key=lambda x: -x[2])[:80]), f)

def trace(case, r, d, zero, fwd, bwd, clip, ostep, torch):
    """One steady-state step as an attributed alloc/free stream (from the profiler's memory events)."""
    from torch.profiler import profile as prof, ProfilerActivity as PA, record_function
    zero(); l = fwd(); bwd(l); del l; ostep(); zero(); torch.cuda.synchronize()
    with prof(activities=[PA.CPU], profile_memory=True, record_shapes=True) as p:
        with record_function("PHASE forward"): l = fwd()
        with record_function("PHASE backward"): bwd(l)
        with record_function("PHASE del"): del l
        with record_function("PHASE optimizer"): clip(); ostep()
        with record_function("PHASE zero"): zero()
    import tempfile; tmp = os.path.join(tempfile.gettempdir(), "trace_%s.json" % case["id"])
    p.export_chrome_trace(tmp)
    ev = json.load(open(tmp))["traceEvents"]; os.unlink(tmp)
    ops = {}; phases = []; mem = []
    for e in ev:
        if e.get("name") == "[memory]" and e["args"].get("Device Type") == 1: mem.append(e)
        elif e.get("ph") == "X" and e.get("name", "").startswith("PHASE"): phases.append(e)
        elif e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation"): ops.setdefault(e["tid"], []).append(e)
    for v in ops.values(): v.sort(key=lambda e: e["ts"])
    mem.sort(key=lambda e: e["ts"])
    import bisect
    keys = {t: [e["ts"] for e in v] for t, v in ops.items()}
    with open(os.path.join(d, case["id"] + ".trace.tsv"), "w") as f:
        f.write("# phase\tdelta_bytes\tallocated\treserved\top_chain(outer>inner)\tinner_input_dims\n")
        for e in mem:
            ts = e["ts"]; ph = next((q["name"][6:] for q in phases if q["ts"] <= ts <= q["ts"] + q["dur"]), "?")
            tid = e["tid"]; chain = []
            lst = ops.get(tid, []); i = bisect.bisect_right(keys.get(tid, []), ts) - 1; n = 0
            while i >= 0 and n < 400:
                o = lst[i]
                if o["ts"] <= ts <= o["ts"] + o["dur"]: chain.append(o)
                i -= 1; n += 1
            chain.sort(key=lambda o: o["dur"])
            names = [o["name"].replace("autograd::engine::evaluate_function: ", "") for o in chain[:4]][::-1]
            dims = json.dumps(chain[0]["args"].get("Input Dims", []))[:150] if chain else ""
            f.write("%s\t%d\t%d\t%d\t%s\t%s\n" % (ph, e["args"]["Bytes"], e["args"]["Total Allocated"], e["args"]["Total Reserved"], ">".join(names), dims))

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("out"); ap.add_argument("--trace-dir"); ap.add_argument("--budget", type=float, default=540)
    a = ap.parse_args(); t0 = time.time()
    todo = cases.read(a.cases)
    if a.trace_dir: os.makedirs(a.trace_dir, exist_ok=True)
    import torch, transformers, torchvision  # imported once, before any fork; no CUDA call here
    try: import peft
    except Exception: pass
    import transformers.models.auto.modeling_auto
    print("imports %.1fs" % (time.time() - t0), torch.__version__, transformers.__version__, flush=True)
    done = 0
    for i, c in enumerate(todo):
        if time.time() - t0 > a.budget: print("budget spent; left", len(todo) - i, flush=True); break
        pid = os.fork()
        if pid == 0:
            try: res = run_case(c, a.trace_dir)
            except BaseException as e:
                res = dict(cases.head(c), error=repr(e)[:400], tb=traceback.format_exc()[-800:])
            with open(a.out, "a") as f: f.write(json.dumps(res) + "\n")
            s = res.get("error") or "peak %.1f MiB res %.1f step %.2f ms wall %.1f" % (res.get("peak_allocated", 0) / 2**20, res.get("peak_reserved", 0) / 2**20, res.get("step_ms_median", 0), res.get("wall_s", 0))
            print(c["id"], s[:200], flush=True); os._exit(0)
        os.waitpid(pid, 0); done += 1
    print("done", done, "of", len(todo), "in %.0fs" % (time.time() - t0))
if __name__ == "__main__": main()
