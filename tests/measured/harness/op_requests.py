"""What single operators request from the caching allocator.

usage: op_requests.py OUTDIR [--jobs N] [--budget SECONDS] [--only NAME,NAME]

Each job (one forked child) writes OUTDIR/<job>.jsonl with lines {op, params, forward, backward}: the requested sizes
in order, +size for an allocation and -size for the free of an allocation of that size. Segment events are left out.
cuBLAS is warmed up in both threads first, so that lazily created workspaces do not disturb; the job `fresh` measures
those in fresh processes.
"""
import argparse, gc, json, os, random, sys, time, traceback
T0 = time.time()
BUDGET = 400.0


class Recorder:
    def __init__(self, path):
        import torch
        self.torch = torch; self.f = open(path, "w"); self.live = {}; self.n = 0
        self.restart()

    def restart(self):
        self.torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=4000000, clear_history=True)

    def take(self):
        """The requests since the last take."""
        tr = self.torch.cuda.memory._snapshot()["device_traces"][0]
        out = []
        for e in tr:
            a = e["action"]
            if a == "alloc": out.append(e["size"]); self.live[e["addr"]] = e["size"]
            elif a == "free_completed": out.append(-self.live.pop(e["addr"], e["size"]))
        self.restart()
        return out

    def emit(self, op, params, **k):
        self.f.write(json.dumps(dict(op=op, params=params, **k)) + "\n"); self.n += 1
        if self.n % 20 == 0: self.f.flush()

    def case(self, op, params, make, fwd, grad=None, extra=None):
        """make() -> inputs; fwd(*inputs) -> output(s); grad: (outputs, inputs) -> runs backward."""
        torch = self.torch
        x = o = None
        try:
            x = make(); self.take()
            o = fwd(*x); f = self.take()
            k = dict(forward=f)
            if extra: k.update(extra(x, o))
            if extra: self.take()
            if grad:
                g = grad(o, x, None); self.take()      # prepare the incoming gradient
                r = grad(o, x, g); k["backward"] = self.take(); del r, g
            self.emit(op, params, **k)
        except Exception as e:
            self.emit(op, params, error=repr(e)[:160])
            x = o = None
            if "CUDA error" in repr(e): raise
        del x, o
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > 2.5e9: torch.cuda.empty_cache()
        self.take()


def DT(torch): return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def warm(torch):
    """cuBLAS and cuBLASLt workspaces of both threads."""
    for dt in (torch.float32, torch.bfloat16, torch.float16):
        l = torch.nn.Linear(256, 256, device="cuda", dtype=dt); x = torch.randn(128, 256, device="cuda", dtype=dt, requires_grad=True)
        y = torch.nn.functional.gelu(l(x)); (y @ y.t()).sum().backward()
        torch.bmm(x.view(2, 64, 256), x.view(2, 64, 256).transpose(1, 2)).sum().backward()
    torch.cuda.synchronize()


def left(): return BUDGET - (time.time() - T0)


def shuffled(cases, keep_first=0):
    seen = set(); u = []
    for c in cases:
        s = json.dumps(c, sort_keys=True)
        if s not in seen: seen.add(s); u.append(c)
    random.Random(7).shuffle(u)
    return u


# ---------------------------------------------------------------- attention
def sdpa_run(R, torch, c, force=None):
    import contextlib
    F = torch.nn.functional
    dt = DT(torch)[c["dtype"]]; B, Sq, Sk, Hq, Hk, D = c["B"], c["Sq"], c["Sk"], c["Hq"], c["Hkv"], c["D"]
    Dv = c.get("Dv", D)
    def make():
        lay = c.get("layout", "bshd")
        mk = (lambda S, H, d: torch.randn(B, S, H, d, device="cuda", dtype=dt).transpose(1, 2)) if lay == "bshd" else (lambda S, H, d: torch.randn(B, H, S, d, device="cuda", dtype=dt))
        if lay == "qkv":   # one fused projection, split: gpt2
            t = torch.randn(B, Sq, 3 * Hq * D, device="cuda", dtype=dt).split(Hq * D, dim=2)
            q, k, v = (z.view(B, Sq, Hq, D).transpose(1, 2) for z in t)
        else: q, k, v = mk(Sq, Hq, D), mk(Sk, Hk, D), mk(Sk, Hk, Dv)
        q, k, v = (z.detach().requires_grad_(c.get("grad", True)) for z in (q, k, v))
        m = c.get("mask"); mask = None
        if m:
            keep = torch.ones(B, 1, Sq, Sk, dtype=torch.bool, device="cuda").tril() if "causalmask" in m else torch.ones(B, 1, Sq, Sk, dtype=torch.bool, device="cuda")
            if "exp" in m: keep = torch.ones(B, 1, 1, Sk, dtype=torch.bool, device="cuda").expand(B, 1, Sq, Sk)
            if "one" in m: keep = torch.ones(1, 1, Sq, Sk, dtype=torch.bool, device="cuda")
            if m.startswith("bool"): mask = keep
            else:
                mask = torch.zeros(B if "one" not in m else 1, 1, 1 if "exp" in m else Sq, Sk, dtype=dt, device="cuda")
                if "exp" in m: mask = mask.expand(B, 1, Sq, Sk)
        return q, k, v, mask
    ctx = lambda: torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, force)) if force else contextlib.nullcontext()
    def fwd(q, k, v, mask):
        with ctx():
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=c["drop"], is_causal=c["causal"], enable_gqa=Hq != Hk)
    def grad(o, x, g):
        if g is None:
            return torch.randn(B, Sq, Hq, Dv, device="cuda", dtype=dt).transpose(1, 2) if c.get("layout") != "bhsd" else torch.randn_like(o)
        return torch.autograd.grad(o, x[:3], g)
    def extra(x, o):
        return dict(node=o.grad_fn.name() if o.grad_fn is not None else None, out_stride=list(o.stride()))
    R.case("sdpa" if not force else "sdpa:" + force, c, make, fwd, grad if c.get("grad", True) else None, extra)


def C(dtype="bf16", B=2, Sq=512, Sk=None, Hq=16, Hkv=None, D=64, causal=False, drop=0.0, **k):
    return dict(dtype=dtype, B=B, Sq=Sq, Sk=Sk or Sq, Hq=Hq, Hkv=Hkv or Hq, D=D, causal=causal, drop=drop, **k)


S14 = [32, 77, 128, 197, 256, 384, 511, 512, 1000, 1024, 1500, 2048, 4096, 8192]


def sdpa16_cases():
    c = []
    for S in S14 + [2, 8, 16, 33, 40, 50, 63, 64, 65, 96, 100, 127, 129, 160, 192, 200, 250, 255, 257, 300, 320, 400, 448, 500, 640, 768, 900, 1023, 1025, 1152, 1280, 1792, 3000, 3072, 6144]:
        c.append(C(Sq=S, Hq=16)); c.append(C(Sq=S, causal=True, Hq=32, Hkv=8))
        if S <= 2048: c.append(C(Sq=S, B=4, Hq=12, causal=True)); c.append(C(Sq=S, B=3, Hq=8, D=128, causal=True))
    for B in (1, 2, 3, 4, 8, 16, 32):
        for H in (8, 12, 14, 16, 20, 25, 32): c.append(C(B=B, Hq=H, Sq=512)); c.append(C(B=B, Hq=H, Sq=200 if B > 8 else 1000, causal=True))
    for D in (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 160, 192, 224, 256):
        for S in (77, 200, 512, 1024):
            for ca in (False, True): c.append(C(D=D, Sq=S, Hq=8, causal=ca))
        c.append(C(D=D, Sq=512, Hq=8, Hkv=2, causal=True))
    for Hq, Hk in ((32, 8), (32, 4), (16, 8), (14, 2), (32, 1), (8, 1), (9, 3), (15, 5), (24, 8), (16, 4), (16, 1), (12, 4), (64, 8)):
        for D in (64, 128):
            for S in (128, 200, 512, 1000, 1024, 2048): c.append(C(Hq=Hq, Hkv=Hk, D=D, Sq=S, B=2 if S < 2048 else 1, causal=True))
            c.append(C(Hq=Hq, Hkv=Hk, D=D, Sq=512, causal=False))
    for S in (77, 128, 200, 384, 500, 512, 1000, 1024, 2048):
        for D in (64, 128):
            for m in (None, "add", "bool", "boolexp", "addexp", "boolone", "boolcausalmask"):
                for dr in (0.0, 0.1):
                    c.append(C(Sq=S, D=D, mask=m, drop=dr, B=2, Hq=12))
            c.append(C(Sq=S, D=D, drop=0.1, causal=True, B=3, Hq=12)); c.append(C(Sq=S, D=D, mask="bool", Hq=32, Hkv=32))
    for Sq, Sk in ((448, 1500), (1500, 448), (32, 512), (77, 1024), (512, 128), (1, 512), (100, 1000), (64, 1500), (128, 512), (512, 1024)):
        for D in (64, 128):
            for ca in (False, True): c.append(C(Sq=Sq, Sk=Sk, D=D, Hq=12, causal=ca))
            c.append(C(Sq=Sq, Sk=Sk, D=D, Hq=12, mask="bool")); c.append(C(Sq=Sq, Sk=Sk, D=D, Hq=16, Hkv=4))
    for S in (4096, 8192):
        for D in (64, 128):
            for ca in (False, True): c.append(C(B=1, Hq=8, D=D, Sq=S, causal=ca)); c.append(C(B=1, Hq=32, Hkv=8, D=D, Sq=S, causal=ca))
    c += [dict(z, layout="qkv") for z in (C(Sq=S, B=4, Hq=H, D=64, causal=True, drop=dr) for S in (128, 500, 1000, 1024) for H in (12, 16, 25) for dr in (0.0, 0.1))]
    c += [dict(z, layout="bhsd") for z in (C(Sq=S, B=2, Hq=12, D=D, causal=ca) for S in (128, 500, 1500) for D in (64, 128) for ca in (False, True))]
    c += [dict(z, grad=False) for z in (C(Sq=S, B=2, Hq=12, D=D) for S in (128, 500, 1024) for D in (64, 128))]
    c += [C(Sq=512, D=128, Dv=64, Hq=16), C(Sq=512, D=192, Dv=128, Hq=16), C(Sq=512, D=192, Dv=128, Hq=16, causal=True)]
    c += [dict(z, dtype="fp16") for z in random.Random(3).sample(c, 120)]
    tot = lambda z: 2 * z["B"] * z["Hq"] * max(z["Sq"], z["Sk"]) * z["D"]
    return [z for z in c if tot(z) < 600e6 and not (z.get("mask") and z["B"] * z["Sq"] * z["Sk"] > 4e8)]


def job_sdpa16(R, torch, part, of):
    for c in shuffled(sdpa16_cases())[part::of]:
        if left() < 5: R.emit("budget", {}); break
        sdpa_run(R, torch, c)


def job_sdpa32(R, torch):
    c = []
    for S in [8, 31, 33, 40, 63, 64, 65, 100, 127, 129, 200, 250, 320, 500, 700, 768] + S14:
        for D in (32, 64, 80, 96, 128, 192, 256):
            if S <= 2048: c.append(C("fp32", B=2, Hq=8, Sq=S, D=D)); c.append(C("fp32", B=3, Hq=12, Sq=S, D=D, causal=True, drop=0.1 if S % 2 else 0.0))
    for S in (77, 128, 200, 384, 511, 512, 1000, 1024):
        for m in ("add", "bool", "boolexp", "addexp", "boolone", "boolcausalmask"):
            for dr in (0.0, 0.1): c.append(C("fp32", B=4, Hq=12, Sq=S, mask=m, drop=dr)); c.append(C("fp32", B=2, Hq=16, Sq=S, D=128, mask=m, drop=dr))
    for B in (1, 4, 8):
        for H in (8, 14, 16, 25): c.append(C("fp32", B=B, Hq=H)); c.append(C("fp32", B=B, Hq=H, Sq=200, causal=True)); c.append(C("fp32", B=B, Hq=H, Sq=512, drop=0.1))
    for Sq, Sk in ((448, 1500), (1500, 448), (32, 512), (77, 1024), (512, 128), (1, 512), (100, 1000)):
        c.append(C("fp32", Sq=Sq, Sk=Sk, Hq=12)); c.append(C("fp32", Sq=Sq, Sk=Sk, Hq=12, mask="bool")); c.append(C("fp32", Sq=Sq, Sk=Sk, Hq=12, D=128))
    c += [dict(z, layout="qkv") for z in (C("fp32", Sq=S, B=4, Hq=H, D=64, causal=True, drop=0.1) for S in (128, 500, 1000, 1024) for H in (12, 25))]
    g = []
    for S in (8, 77, 128, 200, 512, 1000, 1024):
        for Hq, Hk in ((32, 8), (14, 2), (9, 3), (16, 4), (32, 4)):
            for D in (64, 128):
                for ca in (True, False): g.append(C("fp32", B=2, Hq=Hq, Hkv=Hk, D=D, Sq=S, causal=ca))
            g.append(C("fp32", B=2, Hq=Hq, Hkv=Hk, Sq=S, causal=True, drop=0.1))
    for S in (200, 512): g.append(C("fp32", B=2, Hq=16, Hkv=4, Sq=S, mask="bool")); g.append(C("fp32", B=2, Hq=16, Hkv=4, Sq=S, mask="add"))
    for z in shuffled(c + g):
        if left() < 5: R.emit("budget", {}); break
        sdpa_run(R, torch, z)


def job_sdpaforce(R, torch):
    c = []
    for S in (8, 33, 64, 77, 100, 128, 197, 200, 256, 384, 511, 512, 1000, 1024, 1500, 2048, 4096):
        for D in (32, 64, 80, 96, 128, 192, 256):
            for ca in (True, False):
                if S <= 1024 or D in (64, 128): c.append((C(B=2, Hq=8, Sq=S, D=D, causal=ca, drop=0.1 if S == 384 else 0.0), ["FLASH_ATTENTION", "EFFICIENT_ATTENTION"]))
    for B, H in ((1, 1), (1, 8), (1, 16), (4, 12), (8, 16), (3, 25)):
        for S in (128, 200, 512, 2048): c.append((C(B=B, Hq=H, Sq=S, causal=True), ["FLASH_ATTENTION", "EFFICIENT_ATTENTION"]))
    for S in (77, 200, 512, 1024):
        for Hq, Hk in ((32, 8), (14, 2), (9, 3)):
            for D in (64, 128): c.append((C(B=2, Hq=Hq, Hkv=Hk, Sq=S, D=D, causal=True), ["FLASH_ATTENTION", "MATH"]))
        for m in ("add", "bool", "boolexp", "addexp"):
            for dr in (0.0, 0.1): c.append((C(B=2, Hq=12, Sq=S, mask=m, drop=dr), ["EFFICIENT_ATTENTION", "MATH"]))
        for ca in (True, False):
            for dr in (0.0, 0.1):
                for dt in ("bf16", "fp32", "fp16"): c.append((C(dt, B=2, Hq=12, Sq=S, causal=ca, drop=dr), ["MATH"]))
        c.append((C("fp32", B=2, Hq=12, Sq=S, mask="bool"), ["MATH"])); c.append((C("fp32", B=2, Hq=12, Sq=S, mask="add"), ["MATH"]))
    random.Random(5).shuffle(c)
    for z, fs in c:
        for f in fs:
            if left() < 5: return
            sdpa_run(R, torch, z, f)


# ---------------------------------------------------------------- reductions
TS = [1, 2, 3, 4, 8, 16, 31, 32, 64, 100, 128, 197, 256, 384, 500, 512, 788, 1000, 1024, 1576, 2048, 3152, 4096, 6304, 8192, 16384, 32768, 65536]
NS = [1, 2, 3, 9, 64, 128, 512, 576, 768, 896, 1000, 1024, 1152, 1280, 1536, 1600, 2048, 2304, 2560, 3072, 4096, 4608, 4800, 5120, 6400, 8192, 11008, 14336, 28672, 50257, 128256]


def job_sum(R, torch):
    base = torch.empty(6 * 2**30, dtype=torch.uint8, device="cuda"); base.zero_()
    for dn, dt in DT(torch).items():
        es = 4 if dn == "fp32" else 2
        for T in TS:
            for N in NS:
                if T * N * es > 6 * 2**30: continue
                if left() < 5: return
                x = base[:T * N * es].view(dt).view(T, N)
                R.case("sum", dict(dtype=dn, shape=[T, N], dims=[0], keepdim=True), lambda: (x,), lambda x: x.sum([0], keepdim=True))
        for T, N in ((4096, 1024), (2048, 30522), (512, 3072)):
            x = base[:T * N * es].view(dt).view(T, N)
            R.case("sum", dict(dtype=dn, shape=[T, N], dims=[0], keepdim=False), lambda: (x,), lambda x: x.sum(0))
            R.case("sum", dict(dtype=dn, shape=[T, N], dims=[0], keepdim=False, out_dtype="fp32"), lambda: (x,), lambda x: x.sum(0, dtype=torch.float32))


def job_sum2(R, torch):
    base = torch.empty(3 * 2**30, dtype=torch.uint8, device="cuda"); base.zero_()
    def view(dt, es, shape):
        n = 1
        for s in shape: n *= s
        return base[:n * es].view(dt).view(shape) if n * es <= base.numel() else None
    BS = [(1, 1), (1, 4), (1, 128), (1, 512), (1, 2048), (2, 77), (2, 512), (2, 1024), (3, 384), (4, 1), (4, 512), (4, 1024), (5, 200), (6, 500), (7, 77), (8, 512), (8, 1024), (16, 512), (32, 128), (32, 512), (1, 8192), (4, 4096), (16, 2048)]
    HS = [1, 2, 64, 128, 576, 768, 1024, 1280, 1600, 2048, 3072, 4096, 8192, 50257]
    for dn, dt in DT(torch).items():
        es = 4 if dn == "fp32" else 2
        for B, S in BS:
            for h in HS:
                if left() < 5: return
                x = view(dt, es, (B, S, h))
                if x is None: continue
                sh = [B, S, h]
                for dims, kd in (([0, 1], True), ([0], True), ([0, 1], False)): R.case("sum", dict(dtype=dn, shape=sh, dims=dims, keepdim=kd), lambda: (x,), lambda x: x.sum(dims, keepdim=kd))
                R.case("sum", dict(dtype=dn, shape=sh, dims=[-1], keepdim=True), lambda: (x,), lambda x: x.sum(-1, keepdim=True))
                R.case("mean", dict(dtype=dn, shape=sh, dims=[-1], keepdim=True), lambda: (x,), lambda x: x.mean(-1, keepdim=True))
                R.case("sum", dict(dtype=dn, shape=sh, dims=None, keepdim=False), lambda: (x,), lambda x: x.sum())
                R.case("mean", dict(dtype=dn, shape=sh, dims=None, keepdim=False), lambda: (x,), lambda x: x.mean())
        for B, H, S, D in [(1, 8, 128, 64), (2, 8, 512, 64), (2, 32, 1024, 64), (4, 12, 512, 64), (4, 16, 512, 64), (2, 4, 1000, 128), (1, 8, 2048, 128), (3, 3, 200, 64), (8, 12, 1024, 64), (16, 16, 128, 64), (5, 25, 77, 64), (1, 2, 8192, 128)]:
            x = view(dt, es, (B, H, S, D)); y = view(dt, es, (B, S, H, D)).transpose(1, 2)
            for nm, t in (("bhsd", x), ("bshd", y)):
                for dims in ([0, 1], [0, 1, 2], [2], [1], [0, 2], [0]):
                    if left() < 5: return
                    R.case("sum", dict(dtype=dn, shape=[B, H, S, D], dims=dims, keepdim=True, memory=nm), lambda: (t,), lambda x: x.sum(dims, keepdim=True))
            for rep in (2, 4, 8):   # repeat_kv's backward: [B, Hkv, rep, S, D].sum(2)
                z = view(dt, es, (B, H, rep, S, D))
                if z is not None: R.case("sum", dict(dtype=dn, shape=[B, H, rep, S, D], dims=[2], keepdim=True), lambda: (z,), lambda x: x.sum([2], keepdim=True))
                z = view(dt, es, (B, S, H * rep, D))
                if z is not None:
                    z = z.transpose(1, 2).unflatten(1, (H, rep))
                    R.case("sum", dict(dtype=dn, shape=[B, H, rep, S, D], dims=[2], keepdim=True, memory="bshd"), lambda: (z,), lambda x: x.sum([2], keepdim=True))
        for B, H, S in [(4, 16, 512), (2, 32, 1024), (8, 12, 384), (3, 12, 200)]:
            x = view(dt, es, (B, H, S, S))
            for dims in ([0, 1], [0], [1], [0, 1, 2]): R.case("sum", dict(dtype=dn, shape=[B, H, S, S], dims=dims, keepdim=True), lambda: (x,), lambda x: x.sum(dims, keepdim=True))
    for nm, dt, es in (("bool", torch.bool, 1), ("int64", torch.int64, 8), ("int32", torch.int32, 4)):
        for B, S in [(1, 2), (1, 128), (1, 512), (2, 77), (2, 1024), (2, 2048), (3, 384), (4, 512), (4, 1024), (5, 200), (8, 512), (16, 512), (32, 128), (1, 8192), (8, 2048), (32, 4096), (64, 8192)]:
            x = view(dt, es, (B, S))
            for op in ("all", "any", "sum", "max", "min", "argmax", "cumsum_-1", "ne_sum", "all_-1", "any_-1", "argmax_-1", "max_-1", "sum_-1", "sum_0", "eq_all", "nonzero"):
                if nm == "bool" and op in ("max_-1", "argmax", "argmax_-1"): continue
                def f(x, op=op):
                    if op == "ne_sum": return x.ne(5).sum()
                    if op == "eq_all": return x.eq(1).all()
                    if op == "nonzero": return x.nonzero()
                    n, _, d = op.partition("_")
                    return getattr(x, n)(*([int(d)] if d else []))
                R.case(op, dict(dtype=nm, shape=[B, S]), lambda: (x,), f)
        for B, H, S in [(2, 32, 512), (2, 32, 1024), (4, 16, 512), (1, 14, 200), (2, 9, 128)]:
            x = view(dt, es, (B, H, S, S))
            R.case("all_-1", dict(dtype=nm, shape=[B, H, S, S], keepdim=True), lambda: (x,), lambda x: x.all(-1, keepdim=True)); R.case("all", dict(dtype=nm, shape=[B, H, S, S]), lambda: (x,), lambda x: x.all())
    for dn, dt in DT(torch).items():
        es = 4 if dn == "fp32" else 2
        for n in (1, 2, 100, 1000, 4096, 65536, 10**6, 2**22, 31254528, 2**27):
            x = view(dt, es, (n,))
            for nm, f in (("vector_norm", lambda x: torch.linalg.vector_norm(x)), ("amax", lambda x: x.amax()), ("max", lambda x: x.max()), ("isnan_any", lambda x: torch.isnan(x).any()), ("abs_max", lambda x: x.abs().max()), ("norm", lambda x: x.norm()), ("isinf", lambda x: torch.isinf(x))):
                if left() < 5: return
                R.case(nm, dict(dtype=dn, shape=[n]), lambda: (x,), f)


# ---------------------------------------------------------------- element-wise, norms, losses, embeddings
def one_grad(torch):
    def grad(o, x, g):
        if g is None: return torch.ones_like(o) if o.dim() else torch.ones((), device="cuda", dtype=o.dtype)
        ins = [t for t in x if torch.is_tensor(t) and t.requires_grad]
        return torch.autograd.grad(o, ins, g)
    return grad


def job_norms(R, torch):
    F = torch.nn.functional; G = one_grad(torch)
    def rn(*s, dt, rg=True): return torch.randn(*s, device="cuda", dtype=dt).requires_grad_(rg)
    for dn, dt in DT(torch).items():
        for T in (4, 64, 200, 512, 1000, 2048, 4096, 8192, 16384, 32768, 65536, 65537, 65664, 131072, 262144):
            for h in (64, 128, 576, 768, 1024, 1280, 1600, 2048, 2112, 2560, 4096, 8192):
                if T * h * 4 > 2.2e9: continue
                if left() < 5: return
                R.case("layer_norm", dict(dtype=dn, T=T, h=h), lambda: (rn(T, h, dt=dt), rn(h, dt=dt), rn(h, dt=dt)), lambda x, w, b: F.layer_norm(x, (h,), w, b), G)
                if h in (768, 1024, 4096): R.case("rms_norm", dict(dtype=dn, T=T, h=h), lambda: (rn(T, h, dt=dt), rn(h, dt=dt)), lambda x, w: F.rms_norm(x, (h,), w), G)
        for B, S, h in ((4, 512, 1024), (2, 1024, 2048), (32, 128, 768)):
            R.case("layer_norm", dict(dtype=dn, B=B, S=S, h=h), lambda: (rn(B, S, h, dt=dt), rn(h, dt=dt), rn(h, dt=dt)), lambda x, w, b: F.layer_norm(x, (h,), w, b), G)
        for T, V in [(4, 2), (2048, 2), (64, 128), (4096, 512), (4096, 1024), (2048, 1025), (1024, 2048), (512, 4096), (512, 30522), (2048, 50257), (2044, 50265), (1024, 128256), (8, 128256)]:
            R.case("softmax", dict(dtype=dn, T=T, V=V), lambda: (rn(T, V, dt=dt),), lambda x: torch.softmax(x, -1), G)
            R.case("log_softmax", dict(dtype=dn, T=T, V=V), lambda: (rn(T, V, dt=dt),), lambda x: torch.log_softmax(x, -1), G)
            R.case("softmax_fp32", dict(dtype=dn, T=T, V=V), lambda: (rn(T, V, dt=dt),), lambda x: torch.softmax(x, -1, dtype=torch.float32).to(x.dtype), G)
            for red in ("mean", "sum"):
                R.case("cross_entropy", dict(dtype=dn, T=T, V=V, reduction=red), lambda: (rn(T, V, dt=dt), torch.randint(0, V, (T,), device="cuda")), lambda x, t: F.cross_entropy(x, t, ignore_index=-100, reduction=red), G)
            R.case("cross_entropy", dict(dtype=dn, T=T, V=V, reduction="mean", ignored=True), lambda: (rn(T, V, dt=dt), torch.full((T,), -100, device="cuda").index_fill(0, torch.tensor([0, 1], device="cuda"), 1)), lambda x, t: F.cross_entropy(x, t, ignore_index=-100), G)
            R.case("causal_loss", dict(dtype=dn, T=T, V=V, n="tensor"), lambda: (rn(T, V, dt=dt), torch.randint(0, V, (T,), device="cuda"), torch.tensor(7, device="cuda")), lambda x, t, n: F.cross_entropy(x.float(), t, ignore_index=-100, reduction="sum") / n, G)
        for n in (100, 512, 4096, 2**20, 3 * 10**6):
            for nm, f in (("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")), ("tanh", torch.tanh), ("silu", F.silu), ("relu", F.relu), ("sigmoid", torch.sigmoid), ("dropout", lambda x: F.dropout(x, 0.1, True)), ("native_dropout", lambda x: torch.native_dropout(x, .1, True)[0]), ("dropout0", lambda x: F.dropout(x, 0.0, True)), ("pow2", lambda x: x.pow(2)), ("pow3", lambda x: torch.pow(x, 3.0)), ("rsqrt", lambda x: torch.rsqrt(x.abs() + 1)),
                          ("mul_scalar", lambda x: x * 0.5), ("add_scalar", lambda x: x + 1.0), ("div_scalar", lambda x: x / 3), ("neg", lambda x: -x), ("to_fp32", lambda x: x.float()), ("to_bf16", lambda x: x.to(torch.bfloat16)), ("clone", lambda x: x.clone()), ("mean", lambda x: x.mean()), ("sum", lambda x: x.sum()), ("sqrt", lambda x: torch.sqrt(x.abs() + 1))):
                R.case(nm, dict(dtype=dn, n=n), lambda: (rn(n, dt=dt),), f, G)
            for nm, f in (("add", lambda a, b: a + b), ("mul", lambda a, b: a * b), ("sub", lambda a, b: a - b), ("div", lambda a, b: a / b)):
                R.case(nm, dict(dtype=dn, n=n), lambda: (rn(n, dt=dt), rn(n, dt=dt)), f, G)
        for B, S, h in ((4, 512, 1024), (2, 1024, 2048), (2, 77, 576), (8, 1024, 768)):
            R.case("mul_weight", dict(dtype=dn, B=B, S=S, h=h), lambda: (rn(h, dt=dt), rn(B, S, h, dt=dt)), lambda w, x: w * x, G)
            R.case("add_bias", dict(dtype=dn, B=B, S=S, h=h), lambda: (rn(B, S, h, dt=dt), rn(h, dt=dt)), lambda x, b: x + b, G)
            R.case("add_pos", dict(dtype=dn, B=B, S=S, h=h), lambda: (rn(B, S, h, dt=dt), rn(1, S, h, dt=dt)), lambda x, b: x + b, G)
            R.case("mul_rstd", dict(dtype=dn, B=B, S=S, h=h), lambda: (rn(B, S, h, dt=dt), rn(B, S, 1, dt=dt)), lambda x, b: x * b, G)


def job_embed(R, torch):
    F = torch.nn.functional; G = one_grad(torch)
    g = torch.Generator(device="cuda").manual_seed(0)
    cases = []
    for V in (2, 512, 1024, 30522, 50257, 128256):
        for T in (4, 512, 2048, 3000, 3072, 3073, 3100, 3500, 4096, 5000, 6000, 8192, 16384, 32768, 65536):
            for h in (64, 768, 1024, 2048, 4096):
                for dn in ("fp32", "bf16", "fp16"):
                    if V * h * 4 > 2.2e9 or T * h > 1.4e8: continue
                    if dn == "fp16" and (h not in (768, 1024) or T < 3000): continue
                    cases.append(dict(V=V, T=T, h=h, dtype=dn, padding_idx=None, data="random"))
    more = []
    for T in (2048, 3073, 4096, 8192, 16384):
        for V in (2, 512, 30522, 50265):
            for data in ("zeros", "arange", "random2", "sorted"): more.append(dict(V=V, T=T, h=768, dtype="fp32", padding_idx=None, data=data))
            more.append(dict(V=V, T=T, h=768, dtype="fp32", padding_idx=1, data="random")); more.append(dict(V=V, T=T, h=768, dtype="bf16", padding_idx=0, data="random"))
    for T in list(range(3073, 3600, 61)) + [10000, 12288, 20000, 24000, 24576, 28000, 40000, 49152, 60000, 100000, 131072, 200000]:
        more.append(dict(V=30522, T=T, h=64, dtype="fp32", padding_idx=None, data="random"))
        more.append(dict(V=1000, T=T, h=96, dtype="bf16", padding_idx=None, data="random"))
    random.Random(1).shuffle(cases)
    for c in more + cases:
        if left() < 5: return
        V, T, h = c["V"], c["T"], c["h"]; dt = DT(torch)[c["dtype"]]
        def make():
            d = c["data"]
            if d == "zeros": i = torch.zeros(T, dtype=torch.long, device="cuda")
            elif d == "arange": i = torch.arange(T, device="cuda") % V
            elif d == "sorted": i = torch.sort(torch.randint(0, V, (T,), device="cuda", generator=g))[0]
            else: i = torch.randint(0, V, (T,), device="cuda", generator=g)
            return torch.empty(V, h, device="cuda", dtype=dt).normal_().requires_grad_(), i
        R.case("embedding", c, make, lambda w, i: F.embedding(i, w, padding_idx=c["padding_idx"]), G)
    # position ids [1,S] (BERT) and [B,S]
    for B, S in ((1, 512), (4, 512), (8, 1024), (4, 1024)):
        for dn in ("fp32", "bf16"):
            R.case("embedding", dict(V=1024, B=B, S=S, h=768, dtype=dn, data="arange2d"), lambda: (torch.randn(1024, 768, device="cuda", dtype=DT(torch)[dn], requires_grad=True), torch.arange(S, device="cuda").expand(B, S)), lambda w, i: F.embedding(i, w), G)


def job_extra(R, torch):
    F = torch.nn.functional; G = one_grad(torch); g = torch.Generator(device="cuda").manual_seed(0)
    for T in list(range(66000, 140000, 1500)) + list(range(140000, 420000, 20000)):
        R.case("embedding", dict(V=50, T=T, h=8, dtype="fp32", padding_idx=None, data="random"), lambda: (torch.randn(50, 8, device="cuda", requires_grad=True), torch.randint(0, 50, (T,), device="cuda", generator=g)), lambda w, i: F.embedding(i, w), G)
    for V, T, h in ((49152, 1152, 576), (49152, 4608, 576), (32000, 3000, 2048), (30522, 73728, 768), (50257, 10000, 1600)):
        for dn in ("fp32", "bf16"): R.case("embedding", dict(V=V, T=T, h=h, dtype=dn, padding_idx=None, data="random"), lambda: (torch.empty(V, h, device="cuda", dtype=DT(torch)[dn]).normal_().requires_grad_(), torch.randint(0, V, (T,), device="cuda", generator=g)), lambda w, i: F.embedding(i, w), G)
    for S in (200, 512):
        for Hq, Hk in ((16, 16), (16, 4)):
            for D, Dv in ((128, 64), (192, 128), (64, 128)):
                for ca in (False, True): sdpa_run(R, torch, C(B=2, Hq=Hq, Hkv=Hk, Sq=S, D=D, Dv=Dv, causal=ca))
    for c in (C(B=1, Sq=1, Hq=8), C(B=1, Sq=1, Sk=1, Hq=8), C(B=2, Sq=3, Hq=16, Hkv=4), C(B=64, Sq=512, Hq=16), C(B=144, Sq=128, Hq=12), C("fp32", B=64, Sq=512, Hq=12), C("fp32", B=1, Sq=1, Hq=8), C("fp32", B=2, Sq=1, Hq=8, Hkv=2, causal=True), C("fp32", B=2, Sq=2, Hq=8), C("fp32", B=1, Sq=300, Hq=12, mask="boolexp"), C("fp32", B=1, Sq=304, Hq=12, mask="boolexp")): sdpa_run(R, torch, c)


def job_misc(R, torch):
    F = torch.nn.functional; G = one_grad(torch)
    def rn(*s, dt, rg=True): return torch.randn(*s, device="cuda", dtype=dt).requires_grad_(rg)
    for B, S in [(1, 8), (2, 77), (2, 1024), (3, 384), (4, 512), (8, 1024), (32, 128), (4, 4096)]:
        ids = lambda: (torch.randint(0, 2, (B, S), device="cuda"),)
        P = dict(B=B, S=S)
        for nm, f in (("pad_labels", lambda x: F.pad(x, (0, 1), value=-100)), ("pad_shift_contig", lambda x: F.pad(x, (0, 1), value=-100)[..., 1:].contiguous()), ("roberta_position_ids", lambda x: (torch.cumsum(x.ne(1).int(), dim=1).type_as(x.ne(1).int()) * x.ne(1).int()).long() + 1),
                      ("topk", lambda x: torch.topk(x, min(2, S), -1)), ("sort", lambda x: torch.sort(x, -1)), ("argsort_flat", lambda x: torch.argsort(x.view(-1))), ("unique", lambda x: torch.unique(x)), ("cumsum", lambda x: x.cumsum(-1)), ("cumsum_int32", lambda x: x.int().cumsum(-1)), ("to_bool", lambda x: x.to(torch.bool)), ("ne_long", lambda x: x.ne(1).long()), ("eq_argmax", lambda x: torch.eq(x, 1).int().argmax(-1)),
                      ("last_token", lambda x: (torch.arange(x.shape[-1], device="cuda", dtype=torch.int32) * (x != 0).to(torch.int32)).argmax(-1)), ("nonzero", lambda x: x.nonzero()), ("bool_index", lambda x: x[x == 1]), ("item", lambda x: int(x.sum().item())), ("ne_sum", lambda x: x.ne(-100).sum()), ("shift_ne_sum", lambda x: x[..., 1:].ne(-100).sum()), ("diff", lambda x: torch.diff(x, dim=-1)), ("one_hot", lambda x: F.one_hot(x, 8)), ("randint_like", lambda x: torch.randint_like(x, 5)), ("isin", lambda x: torch.isin(x, torch.tensor([1, 2], device="cuda")))):
            R.case(nm, P, ids, f)
        for dn in ("fp32", "bf16"):
            dt = DT(torch)[dn]; h = 64; Q = dict(P, dtype=dn, h=h)
            R.case("index_select0", Q, lambda: (rn(B * S, h, dt=dt), torch.randint(0, B * S, (B * S // 2,), device="cuda")), lambda x, i: x.index_select(0, i), G)
            R.case("index_row", Q, lambda: (rn(B * S, h, dt=dt), torch.randint(0, B * S, (B * S // 2,), device="cuda")), lambda x, i: x[i], G)
            R.case("index_batch_last", Q, lambda: (rn(B, S, 2, dt=dt), torch.arange(B, device="cuda"), torch.randint(0, S, (B,), device="cuda")), lambda x, a, b: x[a, b], G)
            R.case("gather", Q, lambda: (rn(B, S, h, dt=dt), torch.randint(0, h, (B, S, 2), device="cuda")), lambda x, i: x.gather(-1, i), G)
            R.case("cat_last", Q, lambda: (rn(B, 4, S, h, dt=dt), rn(B, 4, S, h, dt=dt)), lambda a, b: torch.cat([a, b], -1), G)
            R.case("cat_half", Q, lambda: (rn(B, S, 4, h, dt=dt),), lambda a: torch.cat((-a.transpose(1, 2)[..., h // 2:], a.transpose(1, 2)[..., :h // 2]), -1), G)
            R.case("select_first_token", Q, lambda: (rn(B, S, h, dt=dt),), lambda x: x[:, 0], G)
            R.case("slice_last", Q, lambda: (rn(B, S, h, dt=dt),), lambda x: x[:, :, h // 2:].clone(), G)
            R.case("split3", Q, lambda: (rn(B, S, 3 * h, dt=dt),), lambda x: sum(t * 1.0 for t in x.split(h, 2)), G)
            R.case("repeat_kv", Q, lambda: (rn(B, S, 4, h, dt=dt),), lambda x: x.transpose(1, 2)[:, :, None].expand(B, 4, 3, S, h).reshape(B, 12, S, h), G)
            R.case("masked_fill", Q, lambda: (rn(B, S, h, dt=dt), torch.ones(B, S, 1, dtype=torch.bool, device="cuda")), lambda x, m: x.masked_fill(m, 0.0), G)
            R.case("where_scalar", Q, lambda: (rn(B, S, h, dt=dt), torch.ones(B, S, 1, dtype=torch.bool, device="cuda")), lambda x, m: torch.where(m, x, torch.finfo(dt).min), G)
            R.case("where_scalar_t", Q, lambda: (torch.ones(B, 1, S, S, dtype=torch.bool, device="cuda") if B * S * S < 1e8 else torch.ones(1, dtype=torch.bool, device="cuda"),), lambda m: torch.where(m, torch.tensor(0.0, device="cuda", dtype=dt), torch.finfo(dt).min))
            R.case("contiguous_t", Q, lambda: (rn(B, S, 4, h, dt=dt),), lambda x: x.transpose(1, 2).contiguous(), G)
            R.case("topk_bwd", Q, lambda: (rn(B * S, h, dt=dt),), lambda x: torch.topk(x, 2, -1)[0], G)
            R.case("isnan_or_isinf", Q, lambda: (torch.zeros((), device="cuda", dtype=dt),), lambda x: (torch.isnan(x) or torch.isinf(x)))
            R.case("loss_div_float", Q, lambda: (rn(1, dt=dt),), lambda x: x[0] / 4, G)
            R.case("detach_cpu_float", Q, lambda: (rn(1, dt=dt),), lambda x: float(x.detach()))
            R.case("full_scalar", Q, lambda: (), lambda: torch.full((B, S), 3, device="cuda"))
            R.case("tensor_from_cpu", Q, lambda: (), lambda: torch.tensor(0.0, device="cuda"))


def job_mm(R, torch):
    F = torch.nn.functional; G = one_grad(torch)
    def rn(*s, dt, rg=True): return torch.randn(*s, device="cuda", dtype=dt).requires_grad_(rg)
    shapes = [(1, 1, 1), (1, 768, 2), (4, 1024, 2), (3, 5, 7), (77, 768, 768), (131, 769, 1025), (200, 1024, 1024), (512, 1024, 30522), (1000, 768, 50257), (513, 2048, 2048), (2048, 1024, 4096), (2048, 4096, 1024), (4096, 768, 3072), (8192, 2048, 512), (2048, 2048, 8192), (1, 4096, 4096), (16, 8192, 8192), (8, 8, 8), (2048, 1600, 4800), (1001, 896, 128), (6, 1024, 1024), (16384, 1024, 64), (65536, 64, 64), (64, 65536, 64), (2048, 1024, 2), (128256, 64, 8), (4096, 2048, 128256)]
    for pn in ("fp32", "tf32", "bf16", "fp16"):
        torch.backends.cuda.matmul.allow_tf32 = pn == "tf32"
        dt = DT(torch)["fp32" if pn == "tf32" else pn]
        for T, K, N in shapes:
            if left() < 5: return
            P = dict(precision=pn, T=T, K=K, N=N)
            R.case("linear_bias", P, lambda: (rn(T, K, dt=dt), rn(N, K, dt=dt), rn(N, dt=dt)), lambda x, w, b: F.linear(x, w, b), G)
            R.case("linear", P, lambda: (rn(T, K, dt=dt), rn(N, K, dt=dt)), lambda x, w: F.linear(x, w), G)
            if T % 2 == 0:
                R.case("linear_bias3d", P, lambda: (rn(2, T // 2, K, dt=dt), rn(N, K, dt=dt), rn(N, dt=dt)), lambda x, w, b: F.linear(x, w, b), G)
                R.case("linear3d", P, lambda: (rn(2, T // 2, K, dt=dt), rn(N, K, dt=dt)), lambda x, w: F.linear(x, w), G)
                R.case("conv1d_addmm", P, lambda: (rn(2, T // 2, K, dt=dt), rn(K, N, dt=dt), rn(N, dt=dt)), lambda x, w, b: torch.addmm(b, x.view(-1, K), w).view(2, T // 2, N), G)
            R.case("mm_nn", P, lambda: (rn(T, K, dt=dt), rn(K, N, dt=dt)), lambda x, w: x @ w, G)
            R.case("mm_tn", P, lambda: (rn(K, T, dt=dt), rn(K, N, dt=dt)), lambda x, w: x.t() @ w, G)
        for B, H, S, D in ((2, 12, 128, 64), (4, 16, 512, 64), (1, 25, 77, 64), (2, 32, 1000, 64), (3, 9, 33, 80), (2, 8, 512, 128)):
            if left() < 5: return
            P = dict(precision=pn, B=B, H=H, S=S, D=D)
            R.case("qk_matmul", P, lambda: (rn(B, S, H, D, dt=dt), rn(B, S, H, D, dt=dt)), lambda q, k: torch.matmul(q.transpose(1, 2), k.transpose(1, 2).transpose(2, 3)), G)
            R.case("qk_matmul_mul", P, lambda: (rn(B, S, H, D, dt=dt), rn(B, S, H, D, dt=dt)), lambda q, k: torch.matmul(q.transpose(1, 2), k.transpose(1, 2).transpose(2, 3)) * 0.125, G)
            R.case("pv_matmul", P, lambda: (rn(B, H, S, S, dt=dt), rn(B, S, H, D, dt=dt)), lambda p, v: torch.matmul(p, v.transpose(1, 2)), G)
            R.case("pv_out", P, lambda: (rn(B, H, S, S, dt=dt), rn(B, S, H, D, dt=dt)), lambda p, v: torch.matmul(p, v.transpose(1, 2)).transpose(1, 2).contiguous(), G)
            R.case("bmm", P, lambda: (rn(B * H, S, D, dt=dt), rn(B * H, D, S, dt=dt)), torch.bmm, G)
            R.case("rope_freq", P, lambda: (rn(B, D // 2, 1, dt=dt), rn(B, 1, S, dt=dt)), lambda a, b: (a.float() @ b.float()).transpose(1, 2), G)
    torch.backends.cuda.matmul.allow_tf32 = False


# ---------------------------------------------------------------- optimizers
def job_optim(R, torch):
    base = [(30522, 64), (1024,), (1024, 1024), (4096, 1024), (4096,), (2,), (2, 1024), (1,), (333, 77), (65536,), (65537,), (100000,)]
    lists = {"mixed": base, "mixed3": base * 3, "bert2": [(30522, 1024), (512, 1024), (2, 1024), (1024,), (1024,)] + ([(1024, 1024), (1024,)] * 4 + [(1024,), (1024,), (4096, 1024), (4096,), (1024, 4096), (1024,), (1024,), (1024,)]) * 2 + [(1024, 1024), (1024,), (2, 1024), (2,)],
             "many": [(128,)] * 700 + [(256, 256)] * 40, "one": [(1000, 1000)]}
    for ln, shapes in lists.items():
        for dn in ("fp32", "bf16", "mix"):
            if left() < 5: return
            def params():
                ps = []
                for i, s in enumerate(shapes):
                    dt = torch.float32 if dn == "fp32" or (dn == "mix" and i % 2) else torch.bfloat16
                    ps.append(torch.nn.Parameter(torch.randn(*s, device="cuda", dtype=dt)))
                return ps
            def grads(ps):
                for p in ps: p.grad = torch.randn_like(p)
            P = dict(list=ln, dtype=dn, shapes=[list(s) for s in shapes] if ln != "many" else "700x[128]+40x[256,256]")
            mk = {"adamw-foreach": lambda p: torch.optim.AdamW(p, lr=1e-5), "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-5, fused=True), "adamw-for": lambda p: torch.optim.AdamW(p, lr=1e-5, foreach=False),
                  "adam-foreach": lambda p: torch.optim.Adam(p, lr=1e-5), "adam-wd-foreach": lambda p: torch.optim.Adam(p, lr=1e-5, weight_decay=0.1), "adamw-nowd-foreach": lambda p: torch.optim.AdamW(p, lr=1e-5, weight_decay=0.0),
                  "sgd": lambda p: torch.optim.SGD(p, lr=1e-5), "sgdm": lambda p: torch.optim.SGD(p, lr=1e-5, momentum=0.9), "sgd-wd": lambda p: torch.optim.SGD(p, lr=1e-5, weight_decay=0.1), "sgdm-nesterov": lambda p: torch.optim.SGD(p, lr=1e-5, momentum=0.9, nesterov=True), "sgd-fused": lambda p: torch.optim.SGD(p, lr=1e-5, fused=True), "sgdm-for": lambda p: torch.optim.SGD(p, lr=1e-5, momentum=0.9, foreach=False),
                  "adamw-2groups-foreach": lambda p: torch.optim.AdamW([dict(params=p[::2]), dict(params=p[1::2], weight_decay=0.0)], lr=1e-5), "adamw-2groups-fused": lambda p: torch.optim.AdamW([dict(params=p[::2]), dict(params=p[1::2], weight_decay=0.0)], lr=1e-5, fused=True),
                  "adamw-amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-5, amsgrad=True)}
            for nm, m in mk.items():
                if left() < 5: return
                try:
                    ps = params(); grads(ps); o = m(ps) if len(ps) > 1 or "2groups" not in nm else None
                    if o is None: continue
                    R.take(); o.step(); a = R.take(); o.step(); b = R.take(); o.step(); c = R.take(); o.zero_grad(set_to_none=True); z = R.take()
                    R.emit("optimizer", dict(P, optimizer=nm), step1=a, step2=b, step3=c, zero_grad=z)
                except Exception as e: R.emit("optimizer", dict(P, optimizer=nm), error=repr(e)[:200])
                ps = o = None; gc.collect(); R.take()
            for nm in ("clip", "clip-for", "clip-inf", "get_total_norm"):
                ps = params(); grads(ps); R.take()
                if nm == "get_total_norm": r = torch.nn.utils.get_total_norm([p.grad for p in ps])
                else: r = torch.nn.utils.clip_grad_norm_(ps, float("inf") if nm == "clip-inf" else 1.0, foreach=False if nm == "clip-for" else None)
                a = R.take(); del r; b = R.take(); R.emit("clip_grad_norm", dict(P, kind=nm), forward=a, after=b)
                ps = None; gc.collect(); R.take()
            if dn == "fp32":
                for nm in ("adamw-foreach", "adamw-fused", "sgd", "adamw-2groups-fused", "adamw-2groups-foreach"):
                    for clip in (False, True):
                        for inf in (False, True):
                            if ln == "one" and "2groups" in nm: continue
                            try:
                                ps = params(); o = mk[nm](ps); s = torch.amp.GradScaler("cuda"); ev = {}
                                for st in range(3):
                                    grads(ps)
                                    if inf and st == 0: ps[0].grad.view(-1)[0] = float("inf")
                                    x = ps[-1].sum(); R.take()
                                    l = s.scale(x); ev["scale%d" % st] = R.take()
                                    if clip:
                                        s.unscale_(o); ev["unscale%d" % st] = R.take(); torch.nn.utils.clip_grad_norm_(ps, 1.0); ev["clip%d" % st] = R.take()
                                    s.step(o); ev["step%d" % st] = R.take(); s.update(); ev["update%d" % st] = R.take(); del l, x
                                    o.zero_grad(set_to_none=True); R.take()
                                R.emit("grad_scaler", dict(P, optimizer=nm, clip=clip, inf_first=inf), **ev)
                                ps = o = s = None; gc.collect(); R.take()
                            except Exception as e: R.emit("grad_scaler", dict(P, optimizer=nm, clip=clip, inf_first=inf), error=repr(e)[:200])


# ---------------------------------------------------------------- workspaces in fresh processes
FRESH = ["mm_fp32", "mm_bf16", "linear_bias_fp32", "linear_bias_bf16", "linear_nobias_bf16", "addmm_conv1d_bf16", "bmm_bf16", "bmm_fp32", "linear_bias_1d", "linear_gelu", "sdpa_cudnn", "sdpa_eff_fp32", "sdpa_math_fp32", "mm_tf32", "linear_bias_tf32",
         "linear_bias_amp", "matmul_4d_fp32", "layernorm", "baddbmm_fp32", "linear_bias_bf16_nobwd_then_mm"]


def fresh_one(name, path):
    import torch
    F = torch.nn.functional
    R = Recorder(path)
    def rn(*s, dt=torch.float32): return torch.randn(*s, device="cuda", dtype=dt, requires_grad=True)
    dt = torch.bfloat16 if "bf16" in name or "cudnn" in name else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = "tf32" in name
    x, w, b = rn(128, 256, dt=dt), rn(512, 256, dt=dt), rn(512, dt=dt)
    q = rn(2, 64, 4, 64, dt=dt)
    R.take()
    def f():
        if name.startswith("mm_"): return x @ w.t()
        if name.startswith("linear_bias_1d"): return F.linear(x[0], w, b)
        if name == "linear_bias_amp":
            with torch.autocast("cuda", dtype=torch.bfloat16): return F.linear(x, w, b)
        if name == "linear_gelu": return F.gelu(F.linear(x, w, b))
        if name.startswith("linear_bias"): return F.linear(x, w, b)
        if name.startswith("linear_nobias"): return F.linear(x, w)
        if name.startswith("addmm"): return torch.addmm(b, x, w.t())
        if name.startswith("bmm"): return torch.bmm(x.view(2, 64, 256), x.view(2, 64, 256).transpose(1, 2))
        if name.startswith("baddbmm"): return torch.baddbmm(rn(2, 64, 64), x.view(2, 64, 256), x.view(2, 64, 256).transpose(1, 2))
        if name.startswith("matmul_4d"): return torch.matmul(q.transpose(1, 2), q.transpose(1, 2).transpose(2, 3))
        if name == "sdpa_math_fp32":
            return F.scaled_dot_product_attention(q.transpose(1, 2), q.transpose(1, 2)[:, :1], q.transpose(1, 2)[:, :1], is_causal=True, enable_gqa=True)
        if name.startswith("sdpa"): return F.scaled_dot_product_attention(q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2), is_causal=True)
        if name == "layernorm": return F.layer_norm(x, (256,))
    y = f(); ev = dict(forward=R.take()); y2 = f(); ev["forward2"] = R.take()
    y.float().sum().backward(); ev["backward"] = R.take(); y2.float().sum().backward(); ev["backward2"] = R.take()
    z = x @ w.t(); ev["then_mm"] = R.take(); z.float().sum().backward(); ev["then_mm_bwd"] = R.take()
    z = F.linear(x, w, b); ev["then_linear_bias"] = R.take(); z.float().sum().backward(); ev["then_linear_bias_bwd"] = R.take()
    R.emit("fresh", dict(name=name), **ev); R.f.close()


def jobs():
    J = {"sdpa16_%d" % i: (lambda R, t, i=i: job_sdpa16(R, t, i, 4)) for i in range(4)}
    J.update(sdpa32=job_sdpa32, sdpaforce=job_sdpaforce, sum=job_sum, sum2=job_sum2, norms=job_norms, embed=job_embed, extra=job_extra, misc=job_misc, mm=job_mm, optim=job_optim)
    return J


def child(name, outdir):
    import torch
    if name.startswith("fresh:"): return fresh_one(name[6:], os.path.join(outdir, "fresh_%s.jsonl" % name[6:]))
    torch.zeros(1, device="cuda"); warm(torch)
    R = Recorder(os.path.join(outdir, name + ".jsonl"))
    R.emit("device", dict(name=torch.cuda.get_device_name(0), torch=torch.__version__, cudnn=torch.backends.cudnn.version(), sms=torch.cuda.get_device_properties(0).multi_processor_count))
    t = time.time()
    try: jobs()[name](R, torch)
    finally: R.emit("end", dict(job=name, seconds=round(time.time() - t, 1), cases=R.n)); R.f.close()


def pool(tasks, n, log, deadline):
    """tasks: [(name, function)], run in forked children, n at a time."""
    run = {}
    tasks = list(tasks)
    while tasks or run:
        while tasks and len(run) < n:
            name, f = tasks.pop(0); pid = os.fork()
            if pid == 0:
                rc = 0
                try: f()
                except BaseException as e: print("FAILED", name, repr(e)[:200], traceback.format_exc()[-400:], flush=True); rc = 1
                os._exit(rc)
            run[pid] = (name, time.time())
        try: pid, st = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError: break
        if pid:
            nm, t = run.pop(pid, ("?", time.time())); log("%s rc %d %.1fs at %.0f" % (nm, st, time.time() - t, time.time() - T0))
        else:
            time.sleep(0.05)
            if time.time() > deadline:
                for p in run: os.kill(p, 9)
                log("deadline: killed %s; left %s" % ([v[0] for v in run.values()], [t[0] for t in tasks])); return


def main():
    global BUDGET
    ap = argparse.ArgumentParser(); ap.add_argument("outdir"); ap.add_argument("--jobs", type=int, default=8); ap.add_argument("--budget", type=float, default=400); ap.add_argument("--only")
    a = ap.parse_args(); BUDGET = a.budget; os.makedirs(a.outdir, exist_ok=True)
    import torch
    names = list(jobs()) + ["fresh:" + n for n in FRESH]
    if a.only: names = [n for n in names if any(n.startswith(o) for o in a.only.split(","))]
    pool([(n, (lambda n=n: child(n, a.outdir))) for n in names], a.jobs, lambda s: print(s, flush=True), T0 + a.budget + 15)


if __name__ == "__main__": main()
