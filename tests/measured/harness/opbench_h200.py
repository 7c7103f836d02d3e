"""Operators of an H200 by shape, as harness/opbench.py times them (graphs of many calls, so that the number is the card's).

usage: opbench_h200.py OUT.jsonl SECONDS [PASSES.jsonl]   PASSES: rows of convolution_passes_h100.jsonl to time again
"""
import json, random, sys, time
import torch, torch.nn.functional as F
OUT, BUDGET = open(sys.argv[1], "w"), float(sys.argv[2]); T0 = time.time()
DEV = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = DEV == "cpu"
DT = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
SIZE = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4}
def left(): return BUDGET - (time.time() - T0)
def emit(**k): OUT.write(json.dumps(k) + "\n")
def rand(*s, dt="bf16", grad=False): return torch.randn(*s, device=DEV, dtype=DT[dt]).requires_grad_(grad)
def event(): return torch.cuda.Event(enable_timing=True)
def timeit(f, target_ms=5, maxn=40):
    if SMALL: f(); return 1.0
    f(); f(); torch.cuda.synchronize()
    a, b = event(), event()
    a.record(); f(); b.record(); torch.cuda.synchronize(); one = max(a.elapsed_time(b), 0.004)
    n = int(min(maxn, max(3, target_ms / one)))
    try:
        g = torch.cuda.CUDAGraph(); s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s): f()
        torch.cuda.current_stream().wait_stream(s)
        with torch.cuda.graph(g):
            for _ in range(n): f()
        g.replay(); torch.cuda.synchronize(); a.record(); g.replay(); b.record(); torch.cuda.synchronize()
        return a.elapsed_time(b) / n
    except Exception:
        torch.cuda.synchronize()
        return behind(f, n)
def behind(f, n=4):
    """Calls behind a kernel that keeps the card busy while the host issues them."""
    if SMALL: f(); return 1.0
    f(); f(); torch.cuda.synchronize(); a, b = event(), event()
    torch.cuda._sleep(20_000_000)
    a.record()
    for _ in range(n): f()
    b.record(); torch.cuda.synchronize(); return a.elapsed_time(b) / n
def scaled(*dims): return tuple(max(1, d // 16) if SMALL else d for d in dims)
def once(f, x, *leaves):
    """(forward, backward) milliseconds."""
    with torch.no_grad(): t = timeit(f)
    y = f(); g = torch.randn_like(y)
    return t, behind(lambda: torch.autograd.grad(y, leaves, g, retain_graph=True))
NK = [(768, 768), (3072, 768), (768, 3072), (1024, 1024), (4096, 1024), (1024, 4096), (2048, 2048), (512, 2048), (8192, 2048), (2048, 8192), (4096, 4096),
      (14336, 4096), (4096, 14336), (32000, 2048), (50257, 768), (128256, 2048)]
def gemms(types, ms, nk):
    for dt in types:
        torch.backends.cuda.matmul.allow_tf32 = dt == "tf32"
        for n, k in nk:
            for m in ms:
                m, n_, k_ = scaled(m, n, k)
                if m * n_ * k_ * 2 > (4e12 if SIZE[dt] == 2 else 8e11): continue
                x, w, g = rand(m, k_, dt=dt), rand(n_, k_, dt=dt), rand(m, n_, dt=dt)
                for lay, f in (("fwd", lambda: x @ w.t()), ("dgrad", lambda: g @ w), ("wgrad", lambda: g.t() @ x)):
                    ms_ = timeit(f, 4, 30); emit(kind="gemm", layout=lay, dtype=dt, M=m, N=n_, K=k_, ms=ms_)
    torch.backends.cuda.matmul.allow_tf32 = False
def elementwise():
    for dt in ("fp32", "bf16"):
        for n in [2**17, 2**20, 2**22, 2**23, 2**24, 2**25, 2**26, 2**27]:
            n, = scaled(n); x, y = rand(n, dt=dt), rand(n, dt=dt)
            for name, f in (("copy", lambda: x.clone()), ("add", lambda: x + y), ("mul", lambda: x * y), ("gelu", lambda: F.gelu(x)), ("gelu_tanh", lambda: F.gelu(x, approximate="tanh")),
                            ("gelu_backward", lambda: torch.ops.aten.gelu_backward(y, x)), ("silu", lambda: F.silu(x)), ("silu_backward", lambda: torch.ops.aten.silu_backward(y, x)),
                            ("tanh", lambda: torch.tanh(x)), ("pow", lambda: x.pow(2)), ("pow3", lambda: x.pow(3)), ("threshold_backward", lambda: torch.ops.aten.threshold_backward(y, x, 0)),
                            ("cos", lambda: x.cos()), ("rsqrt", lambda: x.rsqrt()), ("scalar_mul", lambda: x * .5), ("scalar_div", lambda: x / 3.), ("neg", lambda: -x),
                            ("dropout", lambda: torch.native_dropout(x, .1, True)), ("cast", lambda: x.to(torch.bfloat16 if dt == "fp32" else torch.float32)), ("fill", lambda: y.zero_()), ("axpy_", lambda: y.add_(x, alpha=.5))):
                emit(kind="eltwise", op=name, dtype=dt, n=n, ms=timeit(f, 3, 30))
            del x, y
def rows():
    for dt in ("fp32", "bf16"):
        for r, h in [(2048, 768), (2048, 1024), (8192, 1024), (8192, 2048), (8192, 4096), (16384, 4096), (2048, 8192), (50176, 384), (200704, 96), (25088, 768), (32768, 768)]:
            r, h = scaled(r, h); x, w, b = rand(r, h, dt=dt), torch.ones(h, device=DEV, dtype=DT[dt]), torch.zeros(h, device=DEV, dtype=DT[dt])
            y, m, v = torch.native_layer_norm(x, [h], w, b, 1e-5); g = torch.randn_like(y)
            for name, f in (("layernorm_fwd", lambda: torch.native_layer_norm(x, [h], w, b, 1e-5)), ("layernorm_bwd", lambda: torch.ops.aten.native_layer_norm_backward(g, x, [h], m, v, w, b, [True, True, True]))):
                emit(kind="norm", op=name, dtype=dt, rows=r, h=h, ms=timeit(f, 3, 30))
            for name, f in (("mul_rows", lambda: x * w), ("mul_columns", lambda: x * m.reshape(-1)[:r].view(r, 1).to(DT[dt])), ("mean_rows", lambda: x.float().pow(2).mean(-1, keepdim=True))):
                emit(kind="broadcast", op=name, dtype=dt, rows=r, h=h, ms=timeit(f, 3, 30))
            emit(kind="reduce", op="column_sum", dtype=dt, rows=r, h=h, ms=timeit(lambda: x.sum(0), 3, 30))
            emit(kind="reduce", op="row_sum", dtype=dt, rows=r, h=h, ms=timeit(lambda: x.sum(1), 3, 30))
            emit(kind="reduce_keep", op="column_sum_keep", dtype=dt, rows=r, h=h, ms=timeit(lambda: x.view(1, r, h).sum((0, 1), keepdim=True), 3, 30))
        for r, v in [(2048, 30522), (4096, 50257), (2048, 128256), (8192, 32000), (4096, 151936), (65536, 512), (65536, 2048)]:
            r, v = scaled(r, v); x = rand(r, v, dt=dt); y = torch.log_softmax(x, -1); g = torch.randn_like(y); t = torch.randint(0, v, (r,), device=DEV)
            for name, f in (("log_softmax_fwd", lambda: torch.log_softmax(x, -1)), ("log_softmax_bwd", lambda: torch.ops.aten._log_softmax_backward_data(g, y, -1, DT[dt])), ("softmax_fwd", lambda: torch.softmax(x, -1)), ("softmax_bwd", lambda: torch.ops.aten._softmax_backward_data(g, y, -1, DT[dt])), ("nll_fwd", lambda: F.nll_loss(y, t))):
                emit(kind="softmax", op=name, dtype=dt, rows=r, h=v, ms=timeit(f, 3, 20))
            del x, y, g
        for r, v, h in [(2048, 30522, 1024), (8192, 50257, 768), (8192, 128256, 2048)]:
            r, v, h = scaled(r, v, h); w, i, g = rand(v, h, dt=dt), torch.randint(0, v, (r,), device=DEV), rand(r, h, dt=dt)
            emit(kind="embedding", op="fwd", dtype=dt, rows=r, v=v, h=h, ms=timeit(lambda: F.embedding(i, w), 3))
            emit(kind="embedding", op="bwd", dtype=dt, rows=r, v=v, h=h, ms=timeit(lambda: torch.ops.aten.embedding_dense_backward(g, i, v, -1, False), 3, 10))
def copies():
    """Copies that change the order of elements, joined and repeated tensors, masks: kind "layout"."""
    for dt in ("bf16", "fp32"):
        for b, s, h, d in [(4, 512, 16, 64), (16, 512, 16, 64), (8, 1024, 12, 64), (32, 1024, 12, 64), (2, 2048, 32, 64), (2, 2048, 32, 128), (4, 1500, 16, 64), (16, 1500, 16, 64), (6, 512, 8, 256), (12, 160, 32, 64), (1, 256, 32, 64), (24, 512, 16, 64)]:
            b, s, h, d = scaled(b, s, h, d); x = rand(b, s, h, d, dt=dt); t = x.transpose(1, 2); c = t.contiguous(); half = d // 2; g = max(1, h // 4); k = rand(b, g, s, d, dt=dt); none = torch.tensor([], device=DEV, dtype=DT[dt]); third = rand(b, s, 3 * h * d, dt=dt).split(h * d, 2)[1].view(b, s, h, d).transpose(1, 2)
            size = dict(B=b, S=s, H=h, D=d, dtype=dt); cos = rand(b, 1, s, d, dt=dt); mask = torch.ones(b, 1, s, 1, device=DEV, dtype=torch.bool)
            for name, f in (("heads_to_front", lambda: t.contiguous()), ("heads_to_back", lambda: c.transpose(1, 2).contiguous()), ("keys_turned", lambda: c.transpose(2, 3).contiguous()), ("rows_turned", lambda: x.view(b * s, h * d).t().contiguous()),
                            ("rotate_half", lambda: torch.cat((-t[..., half:], t[..., :half]), -1)), ("cat_halves", lambda: torch.cat((t[..., half:], t[..., :half]), -1)), ("neg_half", lambda: -t[..., half:]), ("repeat_heads", lambda: k[:, :, None].expand(b, g, h // g if h >= g else 1, s, d).reshape(b, -1, s, d)),
                            ("mul_positions", lambda: t * cos), ("mul_contiguous_positions", lambda: c * cos), ("masked_fill_rows", lambda: x.masked_fill(mask.view(b, s, 1, 1), 0)), ("add_turned", lambda: t + c), ("cache_heads", lambda: torch.cat((none, t), 2)), ("cache_third", lambda: torch.cat((none, third), 2)), ("cache_contiguous", lambda: torch.cat((none, c), 2)), ("third_contiguous", lambda: third.contiguous()), ("silu_turned", lambda: F.silu(t)), ("silu_half", lambda: F.silu(x.view(b, s, h * d)[..., :h * d // 2])), ("mul_half", lambda: x.view(b, s, h * d)[..., :h * d // 2] * x.view(b, s, h * d)[..., h * d // 2:]), ("cast_heads", lambda: t.to(torch.bfloat16 if dt == "fp32" else torch.float32, memory_format=torch.contiguous_format)), ("add_bias_row", lambda: x.view(b, s, h * d) + cos.view(-1)[:1].expand(h * d).contiguous()), ("add_converting", lambda: x + x.to(torch.float32 if dt == "bf16" else torch.bfloat16)), ("add_rows_turned", lambda: x.view(b * s, h * d) + x.view(h * d, b * s).t()), ("cat_rows", lambda: torch.cat((c, c), 0)), ("cat_columns", lambda: torch.cat((x, x), -1)),
                            ("slice_backward", lambda: torch.ops.aten.slice_backward(t[..., :half], list(t.shape), 3, 0, half, 1)), ("sum_groups", lambda: c.view(b, g, -1, s, d).sum(2)), ("split_third", lambda: torch.cat((x, x, x), 2).split(h, 2)[1].contiguous())):
                emit(kind="layout", op=name, **size, ms=timeit(f, 3, 20))
def attention():
    from torch.nn.attention import sdpa_kernel, SDPBackend as SB
    for dt, be, name in (("bf16", SB.CUDNN_ATTENTION, "cudnn"), ("fp32", SB.EFFICIENT_ATTENTION, "efficient")):
        for b, h, s, d in [(4, 16, 512, 64), (16, 16, 512, 64), (16, 12, 512, 64), (8, 12, 1024, 64), (32, 12, 1024, 64), (4, 32, 2048, 64), (1, 32, 2048, 128), (4, 32, 2048, 128), (1, 32, 4096, 128), (1, 32, 8192, 64), (2, 8, 2048, 256), (16, 16, 1500, 64), (12, 32, 160, 64), (3, 32, 1536, 64), (64, 12, 197, 64)]:
            for causal in (False, True):
                b_, h_, s_, d_ = scaled(b, h, s, d)
                q, k, v = (rand(b_, s_, h_, d_, dt=dt).transpose(1, 2).requires_grad_() for _ in range(3))
                try:
                    with (sdpa_kernel(be) if not SMALL else torch.enable_grad()):
                        f = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                        t = once(f, q, q, k, v)
                    for backward in (False, True): emit(kind="attention", backend=name, backward=backward, dtype=dt, B=b_, H=h_, S=s_, D=d_, causal=causal, ms=t[backward])
                except Exception as e: emit(kind="attention", backend=name, B=b_, error=repr(e)[:100])
def lists():
    for n, k in ((2**25, 8), (2**21, 64), (2**23, 100)):
        n, = scaled(n)
        for dt in ("fp32", "bf16"):
            for name, mk in (("adamw-foreach", lambda p: torch.optim.AdamW(p, foreach=True)), ("adamw-fused", lambda p: torch.optim.AdamW(p, fused=True)), ("sgd-foreach", lambda p: torch.optim.SGD(p, lr=1e-3, foreach=True)), ("sgdm-foreach", lambda p: torch.optim.SGD(p, lr=1e-3, momentum=.9, foreach=True))):
                ps = [torch.nn.Parameter(rand(n, dt=dt)) for _ in range(k)]
                for p in ps: p.grad = torch.randn_like(p)
                o = mk(ps); o.step(); o.step()
                emit(kind="optimizer", op=name, dtype=dt, n=n * k, tensors=k, ms=behind(o.step, 3))
                if name == "sgd-foreach":
                    g = [p.grad for p in ps]
                    emit(kind="list", op="norm", dtype=dt, n=n * k, tensors=k, ms=behind(lambda: torch._foreach_norm(g), 3)); emit(kind="list", op="mul_", dtype=dt, n=n * k, tensors=k, ms=behind(lambda: torch._foreach_mul_(g, 1.0), 3))
                del ps, o
def grouped():
    for experts, rows_, h, f in [(8, 2048, 1024, 3584), (8, 8192, 1024, 3584), (8, 24576, 1024, 3584), (8, 4096, 2048, 5632), (8, 8192, 4096, 14336), (16, 8192, 1024, 2048), (32, 8192, 1024, 512), (64, 4096, 2048, 1024), (64, 16384, 2048, 1024), (64, 65536, 2048, 1024), (128, 16384, 2048, 768), (128, 65536, 2048, 768)]:
        e, r, h, f = scaled(experts * 16, rows_, h, f); x = rand(r, h, grad=True); w = rand(e, h, f, grad=True)
        off = torch.arange(1, e + 1, device=DEV, dtype=torch.int32) * (r // e)
        if not hasattr(F, "grouped_mm") or SMALL: continue
        for name, fn in (("plain", lambda: F.grouped_mm(x, w, offs=off)), ("turned", lambda: F.grouped_mm(x, wt.transpose(1, 2), offs=off))):
            wt = rand(e, f, h, grad=True)
            try:
                t = once(fn, x, x), once(fn, x, w if name == "plain" else wt)
                emit(kind="grouped", op=name, dtype="bf16", groups=e, rows=r, K=h, N=f, fwd=t[0][0], dgrad=t[0][1], wgrad=t[1][1])
            except Exception as error: emit(kind="grouped", error=repr(error)[:200])
EVICT = torch.empty(64 << 20 if not SMALL else 64, dtype=torch.uint8, device=DEV)
def clock(fn, touched, times=3):
    """As harness/convolution_passes.py: what comes before has written the pass's own operand, all else is out of the cache."""
    fn(); marks = []
    if SMALL: return 1.0
    torch.cuda._sleep(600_000)
    for _ in range(times):
        EVICT.zero_(); touched.add_(0)
        a, b = event(), event()
        a.record(); fn(); b.record(); marks.append((a, b))
    torch.cuda.synchronize()
    return round(min(a.elapsed_time(b) for a, b in marks) * 1e3, 2)
def convolutions(rows_):
    for dt, b, i, w, s, p, d, g, last, h100 in rows_:
        if left() < 3: return
        torch.backends.cudnn.allow_tf32 = dt != "fp32"
        try:
            x, k = rand(b, *i, dt=dt), rand(*w, dt=dt) * .05
            if last: x, k = x.contiguous(memory_format=torch.channels_last), k.contiguous(memory_format=torch.channels_last)
            fw = lambda: torch.ops.aten.convolution(x, k, None, s, p, d, False, [0] * len(s), g); dy = torch.randn_like(fw())
            back = lambda mask: torch.ops.aten.convolution_backward(dy, x, k, None, s, p, d, False, [0] * len(s), g, mask)
            us = [clock(fw, x), clock(lambda: back([True, False, False]), dy), clock(lambda: back([False, True, False]), dy)]
            emit(kind="convolution", dtype=dt, b=b, i=i, w=w, s=s, p=p, d=d, g=g, last=last, us=us, h100=h100)
        except Exception as e: emit(kind="convolution", error=repr(e)[:100], b=b, i=i)
if not SMALL:
    a = rand(8192, 8192); t = time.time()
    while time.time() - t < 2: a @ a; torch.cuda.synchronize()
    emit(kind="device", name=torch.cuda.get_device_name(0), torch=torch.__version__, cuda=torch.version.cuda); del a
passes = [json.loads(l) for l in open(sys.argv[3])] if len(sys.argv) > 3 else []
for name, f in (("copies", copies), ("elementwise", elementwise), ("rows", rows), ("gemm16", lambda: gemms(["bf16"], [256, 1024, 2048, 4096, 8192, 16384], NK)), ("attention", attention), ("lists", lists), ("grouped", grouped),
                ("gemm32", lambda: gemms(["fp32", "tf32"], [512, 2048, 8192], NK[:13])), ("convolutions", lambda: convolutions(passes))):
    t = time.time()
    if left() < 5: print("no time for", name); continue
    try: f()
    except Exception as e: emit(kind="error", section=name, error=repr(e)[:300]); print("ERR", name, repr(e)[:200])
    OUT.flush()
    if not SMALL: torch.cuda.empty_cache()
    print(name, "%.1fs" % (time.time() - t), flush=True)
