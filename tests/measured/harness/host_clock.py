"""Shared by host_steps.py and host_ranks.py: clocks of the host by phase, and one step as a compact timeline of kernels."""
import gc, gzip, json, os, time


def middle(values): return sorted(values)[len(values) // 2]


class Out:
    def __init__(self, path): self.path = path
    def __call__(self, **row):
        with open(self.path, "a") as f: f.write(json.dumps(row) + "\n")


def tiny(family, layers, dtype="float32"):
    import torch, transformers as tf
    torch.manual_seed(0)
    small = dict(vocab_size=99, hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=128)
    kv = dict(small, num_key_value_heads=2, head_dim=16, pad_token_id=0)
    cfg, cls = {
        "bert": lambda: (tf.BertConfig(**small), tf.BertForSequenceClassification),
        "llama": lambda: (tf.LlamaConfig(**kv), tf.LlamaForCausalLM),
        "gpt2": lambda: (tf.GPT2Config(vocab_size=99, n_embd=64, n_layer=layers, n_head=4, bos_token_id=0, eos_token_id=0), tf.GPT2LMHeadModel),
        "gpt_neox": lambda: (tf.GPTNeoXConfig(**small), tf.GPTNeoXForCausalLM),
        "qwen3": lambda: (tf.Qwen3Config(**kv), tf.Qwen3ForCausalLM),
        "gemma3": lambda: (tf.Gemma3TextConfig(**kv), tf.Gemma3ForCausalLM),
        "mixtral": lambda: (tf.MixtralConfig(**{k: v for k, v in kv.items() if k != "head_dim"}, num_local_experts=8), tf.MixtralForCausalLM),
        "t5": lambda: (tf.T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=128, num_layers=layers // 2, num_heads=4, decoder_start_token_id=0), tf.T5ForConditionalGeneration),
        "vit": lambda: (tf.ViTConfig(hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8), tf.ViTForImageClassification),
    }[family]()
    model = cls(cfg).to(getattr(torch, dtype)).cuda().train()
    if family == "vit": batch = dict(pixel_values=torch.randn(1, 3, 32, 32, device="cuda", dtype=getattr(torch, dtype)), labels=torch.zeros(1, dtype=torch.long, device="cuda"))
    else:
        ids = torch.randint(1, 90, (1, 16), device="cuda")
        batch = dict(input_ids=ids, labels=ids[:, 0] * 0 if family == "bert" else ids)
    return model, batch


def host_phases(run, batch, opt, amp=None, steps=13, skip=3):
    """Host milliseconds of zero_grad, forward, backward, the optimizer's _init_group and its whole step, each from an idle card."""
    import torch
    got = {k: [] for k in ("zero", "forward", "backward", "init_group", "step")}
    for i in range(steps):
        torch.cuda.synchronize(); t = time.perf_counter(); opt.zero_grad(set_to_none=True); got["zero"].append(time.perf_counter() - t)
        torch.cuda.synchronize(); t = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp is not None): loss = run(**batch); loss = loss if torch.is_tensor(loss) else loss.loss
        got["forward"].append(time.perf_counter() - t); torch.cuda.synchronize(); t = time.perf_counter()
        loss.backward(); got["backward"].append(time.perf_counter() - t); del loss; torch.cuda.synchronize()
        if i >= skip and hasattr(opt, "_init_group"):
            t = time.perf_counter()
            try:
                for g in opt.param_groups:
                    n = opt._init_group.__code__.co_argcount - 2
                    opt._init_group(g, *([] for _ in range(n)))
                got["init_group"].append(time.perf_counter() - t)
            except Exception: pass
            torch.cuda.synchronize()
        t = time.perf_counter(); opt.step(); got["step"].append(time.perf_counter() - t)
    r = {k: round(1e3 * middle(v[skip:] if k != "init_group" else v), 3) for k, v in got.items() if len(v) > 3}
    r["least"] = {k: round(1e3 * min(v[skip:]), 3) for k, v in got.items() if len(v) > 3}
    return r


def timeline(step, path, keep_cpu=False):
    """One step under the profiler: [launch us, start us, microseconds, stream, name number] of each kernel, gzip."""
    import torch
    from torch.profiler import profile, ProfilerActivity as PA
    acts = [PA.CUDA] + ([PA.CPU] if keep_cpu else [])
    step(); torch.cuda.synchronize()
    with profile(activities=acts) as p:
        step(); torch.cuda.synchronize()
    tmp = path + ".json"; p.export_chrome_trace(tmp); events = json.load(open(tmp))["traceEvents"]; os.remove(tmp)
    launch = {}; kernels = []; syncs = []; ops = {}
    for e in events:
        if e.get("ph") != "X": continue
        cat, args = e.get("cat", ""), e.get("args", {})
        if cat in ("cuda_runtime", "cuda_driver"):
            launch[args.get("correlation")] = e["ts"]
            if "ynchronize" in e["name"] or "Memcpy" in e["name"]: syncs.append([e["name"][:32], e["ts"], e["dur"]])
        elif cat in ("kernel", "gpu_memcpy", "gpu_memset"): kernels.append((args.get("correlation"), e["ts"], e["dur"], args.get("stream", -1), e["name"][:110]))
        elif cat == "cpu_op" and keep_cpu:
            o = ops.setdefault(e["name"], [0, 0.0]); o[0] += 1; o[1] += e["dur"]
    kernels.sort(key=lambda k: k[1]); t0 = min([launch.get(k[0], k[1]) for k in kernels])
    names = {}; rows = []
    for c, ts, dur, stream, name in kernels:
        rows.append([round(launch.get(c, ts) - t0, 1), round(ts - t0, 1), round(dur, 1), stream, names.setdefault(name, len(names))])
    with gzip.open(path, "wt", 9) as f:
        json.dump(dict(names=list(names), kernels=rows, syncs=[[n, round(a - t0, 1), round(d, 1)] for n, a, d in syncs], ops={k: [c, round(d, 1)] for k, (c, d) in ops.items()}), f, separators=(",", ":"))
    streams = {}
    for k in rows: s = streams.setdefault(k[3], [0, 0.0]); s[0] += 1; s[1] += k[2] / 1e3
    return dict(kernels=len(rows), span_ms=round((max(k[1] + k[2] for k in rows) - rows[0][1]) / 1e3, 2), busy_ms={str(s): round(v[1], 2) for s, v in streams.items()}, syncs=len([s for s in syncs if "ynchronize" in s[0]]))


def launches_by_op(step):
    """Operators of one phase with the kernels that each launches: {name: [calls, launches]} (launches of the innermost operator)."""
    import torch
    from torch.profiler import profile, ProfilerActivity as PA
    with profile(activities=[PA.CPU, PA.CUDA]) as p:
        step(); torch.cuda.synchronize()
    ops = {}
    for e in p.events():
        if str(e.device_type).endswith("CUDA"): continue
        o = ops.setdefault(e.name[:60], [0, 0, 0.0]); o[0] += 1; o[1] += len(e.kernels); o[2] += e.self_cpu_time_total
    return {k: [c, l, round(t)] for k, (c, l, t) in ops.items() if not k.startswith("cuda") or c > 0}


def event_steps(full, seconds, most=20):
    """Median and least milliseconds of a step, by events on the card, host not waiting between steps."""
    import torch
    full(); torch.cuda.synchronize(); t = time.time(); full(); torch.cuda.synchronize(); dt = time.time() - t
    n = max(4, min(most, int(seconds / dt))); ev = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    ev[0].record(); issue = time.time()
    for i in range(n): full(); ev[i + 1].record()
    torch.cuda.synchronize(); ts = sorted(ev[i].elapsed_time(ev[i + 1]) for i in range(n))
    return dict(median_ms=round(ts[n // 2], 3), least_ms=round(ts[0], 3), steps=n)
