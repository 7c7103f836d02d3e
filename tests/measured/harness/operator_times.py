"""Times operators and their backward, each call behind others. usage: operator_times.py OUT.jsonl SECONDS SEED
A row: {"op", "type", its sizes, "us": [forward, backward]}"""
import json, random, sys, time, torch, torch.nn.functional as F
out, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
R = random.Random(seed); dev = "cuda"
T = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
EVICT = torch.empty(64 << 20, dtype=torch.uint8, device=dev)
def clock(fn, touched, times=3):
    fn(); marks = []
    torch.cuda._sleep(1_000_000)
    for _ in range(times):
        EVICT.zero_(); touched.add_(0)
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); fn(); b.record(); marks.append((a, b))
    torch.cuda.synchronize()
    return round(min(a.elapsed_time(b) for a, b in marks) * 1e3, 2)
def both(fn, inputs, touched):
    """Forward, and backward by autograd alone."""
    with torch.no_grad(): f = clock(fn, touched)
    y = fn(); dy = torch.randn_like(y)
    leaves = [i for i in inputs if i.requires_grad]
    return [f, clock(lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True), dy)]
def rand(*s, dtype, grad=True, cl=False):
    x = torch.randn(*s, device=dev, dtype=dtype)
    if cl: x = x.contiguous(memory_format=torch.channels_last)
    return x.requires_grad_(grad)
class Touch:
    def __init__(s, x): s.x = x.detach()
    def add_(s, v): s.x.add_(v)
def ok(*dims):
    n = 1
    for d in dims: n *= d
    return n <= 1.3e8
def kind(*of): return R.choice(of or ("bf16", "bf16", "fp32", "fp16"))
def group_norm():
    t = kind("bf16", "fp32", "fp32"); n = R.choice((1, 2, 4, 8, 16, 32)); c = R.choice((32, 64, 128, 256, 320, 512, 640, 960, 1280, 1920)); hw = R.choice((32, 64, 256, 1024, 1600, 4096, 16384, 65536)); g = R.choice((1, 8, 32, 32, 32))
    if not ok(n, c, hw) or c % g: return None
    x = rand(n, c, hw, dtype=T[t]); w, b = rand(c, dtype=T[t]), rand(c, dtype=T[t])
    return dict(type=t, n=n, c=c, hw=hw, g=g, us=both(lambda: F.group_norm(x, g, w, b), (x, w, b), Touch(x)))
def batch_norm():
    t = kind(); n = R.choice((1, 4, 8, 16, 32, 64, 128)); c = R.choice((8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048)); h = R.choice((1, 4, 7, 10, 14, 28, 32, 56, 112)); cl = R.random() < .25
    if not ok(n, c, h, h): return None
    x = rand(n, c, h, h, dtype=T[t], cl=cl); p = T[t] if R.random() < .2 else torch.float32; w, b = rand(c, dtype=p), rand(c, dtype=p); m, v = torch.zeros(c, device=dev, dtype=p), torch.ones(c, device=dev, dtype=p)
    return dict(type=t, weights=str(p), n=n, c=c, h=h, nhwc=cl, us=both(lambda: F.batch_norm(x, m, v, w, b, True), (x, w, b), Touch(x)))
def layer_norm():
    t = kind("bf16", "fp32", "fp32"); rows = R.choice((8, 99, 392, 788, 1600, 3152, 6272, 12544, 25088, 50176, 100352, 200704)); c = R.choice((32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 2048, 4096))
    if not ok(rows, c): return None
    x = rand(rows, c, dtype=T[t]); w, b = rand(c, dtype=T[t]), rand(c, dtype=T[t])
    return dict(type=t, rows=rows, c=c, us=both(lambda: F.layer_norm(x, (c,), w, b), (x, w, b), Touch(x)))
def sdpa():
    t = kind("bf16", "bf16", "fp32"); b = R.choice((1, 2, 4, 8, 16, 32, 64)); h = R.choice((1, 3, 4, 6, 8, 12, 16, 20, 25)); q = R.choice((16, 49, 64, 99, 128, 197, 256, 384, 512, 577, 1024, 1025, 1500, 2048, 4096)); k = q if R.random() < .8 else R.choice((16, 64, 77, 128, 256, 512, 1024)); d = R.choice((16, 32, 40, 48, 64, 64, 64, 72, 80, 96, 128, 160, 192, 256))
    mask = R.choice(("none", "none", "none", "causal", "bool", "bias", "bias_grad")) if q == k else R.choice(("none", "bool"))
    if not ok(b * h, q, 8) or 4.0 * b * h * q * k * d > 2e11 or b * h * q * k > 4e8: return None
    x = [rand(b, s, h, d, dtype=T[t]) for s in (q, k, k)]; m = None; leaves = list(x)
    if mask == "bool": m = torch.ones(b, 1, q, k, device=dev, dtype=torch.bool)
    if mask.startswith("bias"):
        if not ok(h, q, k): return None
        m = rand(R.choice((1, b)) if b * h * q * k < 1.3e8 else 1, h, q, k, dtype=T[t], grad=mask == "bias_grad"); leaves += [m] if m.requires_grad else []
    fn = lambda: F.scaled_dot_product_attention(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2), attn_mask=m, is_causal=mask == "causal")
    e = torch._fused_sdp_choice(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2), m, 0.0, mask == "causal")
    return dict(type=t, b=b, h=h, q=q, k=k, d=d, mask=mask, mask_batch=0 if m is None else m.shape[0], backend=int(e), us=both(fn, leaves, Touch(x[0])))
def bmm():
    t = kind("bf16", "fp32", "tf32"); b = R.choice((8, 32, 96, 128, 384, 512, 1024, 4096, 16384, 65536, 196608)); m, n, k = (R.choice((1, 4, 8, 9, 16, 24, 32, 49, 64, 96, 128, 196, 197, 256, 384, 512, 1024)) for _ in range(3))
    if not ok(b, m, n) or not ok(b, m, k) or not ok(b, n, k) or 2.0 * b * m * n * k > 2e11: return None
    torch.backends.cuda.matmul.allow_tf32 = t == "tf32"; tb = R.random() < .5
    x = rand(b, m, k, dtype=T[t]); y = rand(b, n, k, dtype=T[t]) if tb else rand(b, k, n, dtype=T[t])
    return dict(type=t, b=b, m=m, n=n, k=k, tb=tb, us=both(lambda: torch.bmm(x, y.transpose(1, 2) if tb else y), (x, y), Touch(x)))
def linear():
    t = kind("bf16", "fp32", "tf32"); m = R.choice((8, 32, 99, 128, 197, 256, 392, 512, 788, 1024, 1576, 2048, 3152, 4096, 6304, 8192, 12544, 16384, 50176)); n, k = (R.choice((48, 64, 96, 192, 256, 320, 384, 512, 768, 1024, 1152, 1536, 2048, 2304, 3072, 4096, 5632, 8192)) for _ in range(2))
    if not ok(m, n) or not ok(m, k) or 2.0 * m * n * k > 2e11: return None
    torch.backends.cuda.matmul.allow_tf32 = t == "tf32"
    x, w, b = rand(m, k, dtype=T[t]), rand(n, k, dtype=T[t]), rand(n, dtype=T[t]); bias = R.random() < .7
    return dict(type=t, m=m, n=n, k=k, bias=bias, us=both(lambda: F.linear(x, w, b if bias else None), (x, w, b) if bias else (x, w), Touch(x)))
def channel_sum():
    t = kind(); n = R.choice((1, 4, 8, 16, 32, 64)); c = R.choice((16, 32, 64, 128, 320, 512, 1024, 1280)); hw = R.choice((49, 196, 784, 1024, 3136, 4096, 12544, 16384))
    if not ok(n, c, hw): return None
    x = rand(n, c, hw, dtype=T[t], grad=False); return dict(type=t, n=n, c=c, hw=hw, us=[clock(lambda: x.sum((0, 2)), x)])
def column_sum():
    t = kind(); r = R.choice((32, 99, 197, 392, 788, 1576, 3152, 6304, 8192, 12544, 16384, 50176, 200704)); c = R.choice((48, 96, 192, 384, 512, 768, 1024, 1152, 1536, 2048, 2304, 3072, 4096))
    if not ok(r, c): return None
    x = rand(r, c, dtype=T[t], grad=False); return dict(type=t, r=r, c=c, us=[clock(lambda: x.sum(0), x)])
def row_mean():
    t = kind(); r = R.choice((512, 2048, 8192, 16384, 65536)); c = R.choice((16, 49, 196, 784, 1024, 3136))
    if not ok(r, c): return None
    x = rand(r, c, dtype=T[t]); return dict(type=t, r=r, c=c, us=both(lambda: x.mean(-1), (x,), Touch(x)))
def softmax():
    t = kind("bf16", "fp32"); r = R.choice((96, 384, 1536, 2304, 9216, 36864, 147456, 589824)); c = R.choice((9, 16, 24, 49, 64, 128, 197, 256, 384, 512, 1000, 1024, 2048, 32000, 50257))
    if not ok(r, c): return None
    x = rand(r, c, dtype=T[t]); return dict(type=t, r=r, c=c, us=both(lambda: F.softmax(x, -1), (x,), Touch(x)))
def pool():
    t = kind(); n = R.choice((1, 4, 8, 16, 32, 64, 128)); c = R.choice((16, 32, 64, 128, 256, 512)); h = R.choice((7, 14, 28, 56, 112)); which = R.choice(("max3s2", "max2", "avg3s1", "avg2", "adaptive1", "adaptive7", "max5s1")); cl = R.random() < .2
    if not ok(n, c, h, h): return None
    x = rand(n, c, h, h, dtype=T[t], cl=cl)
    fn = {"max3s2": lambda: F.max_pool2d(x, 3, 2, 1), "max2": lambda: F.max_pool2d(x, 2), "avg3s1": lambda: F.avg_pool2d(x, 3, 1, 1), "avg2": lambda: F.avg_pool2d(x, 2), "adaptive1": lambda: F.adaptive_avg_pool2d(x, 1), "adaptive7": lambda: F.adaptive_avg_pool2d(x, 7), "max5s1": lambda: F.max_pool2d(x, 5, 1, 2)}[which]
    return dict(type=t, which=which, n=n, c=c, h=h, nhwc=cl, us=both(fn, (x,), Touch(x)))
def upsample():
    t = kind(); n = R.choice((1, 2, 4, 8, 16, 32)); c = R.choice((16, 21, 64, 128, 256, 320, 512, 1280)); h = R.choice((4, 8, 16, 28, 32, 40, 64)); mode = R.choice(("nearest", "bilinear")); s = R.choice((2, 2, 4, 8))
    if not ok(n, c, h, h, s, s): return None
    x = rand(n, c, h, h, dtype=T[t]); return dict(type=t, mode=mode, n=n, c=c, h=h, s=s, us=both(lambda: F.interpolate(x, scale_factor=s, mode=mode), (x,), Touch(x)))
def copies():
    t = kind(); n = R.choice((1, 4, 8, 16, 32, 64)); c = R.choice((32, 64, 96, 128, 192, 384, 768)); h = R.choice((7, 14, 16, 28, 32, 56, 64)); which = R.choice(("nchw_nhwc", "heads", "windows", "roll", "cat", "pad", "shuffle", "flip_add", "broadcast_mul", "spatial_mul"))
    if not ok(n, c, h, h): return None
    x = rand(n, c, h, h, dtype=T[t]); y = rand(n, h, h, c, dtype=T[t]); s = rand(n, c, 1, 1, dtype=T[t]); v = rand(c, dtype=T[t]); w = 7 if h % 7 == 0 else 8
    z = rand(n, h * h, c // 32, 32, dtype=T[t])
    if h % w: return None
    fn, leaf = {"nchw_nhwc": (lambda: x.permute(0, 2, 3, 1).contiguous(), (x,)), "heads": (lambda: z.transpose(1, 2).contiguous(), (z,)), "windows": (lambda: y.view(n, h // w, w, h // w, w, c).permute(0, 1, 3, 2, 4, 5).contiguous(), (y,)), "roll": (lambda: torch.roll(y, (3, 3), (1, 2)), (y,)),
        "cat": (lambda: torch.cat((x, x), 1), (x,)), "pad": (lambda: F.pad(x, (1, 1, 1, 1)), (x,)), "shuffle": (lambda: x.view(n, 2, c // 2, h, h).transpose(1, 2).contiguous(), (x,)), "flip_add": (lambda: x + y.permute(0, 3, 1, 2), (x, y)), "broadcast_mul": (lambda: y * v, (y, v)), "spatial_mul": (lambda: x * s, (x, s))}[which]
    return dict(type=t, which=which, n=n, c=c, h=h, us=both(fn, leaf, Touch(leaf[0])))
def pointwise():
    t = kind(); e = R.choice((64, 1024, 16384, 131072, 1 << 20, 1 << 22, 1 << 24, 1 << 26)); which = R.choice(("relu", "gelu", "silu", "sigmoid", "hardswish", "gelu_tanh", "add", "mul", "dropout", "leaky_relu", "softplus", "tanh", "elu", "pow", "to"))
    x, y = rand(e, dtype=T[t]), rand(e, dtype=T[t]); other = torch.float32 if t != "fp32" else torch.bfloat16
    fn, leaf = {"add": (lambda: x + y, (x, y)), "mul": (lambda: x * y, (x, y)), "dropout": (lambda: F.dropout(x, .1), (x,)), "gelu_tanh": (lambda: F.gelu(x, approximate="tanh"), (x,)), "pow": (lambda: x.pow(2), (x,)), "sigmoid": (lambda: torch.sigmoid(x), (x,)), "tanh": (lambda: torch.tanh(x), (x,)), "to": (lambda: x.to(other), (x,))}.get(which) or (lambda: getattr(F, which)(x), (x,))
    return dict(type=t, which=which, e=e, us=both(fn, leaf, Touch(x)))
def embedding():
    t = kind("bf16", "fp32"); v = R.choice((2, 16, 169, 732, 1000, 3969, 30000, 50000, 128256)); c = R.choice((4, 12, 16, 24, 64, 128, 768, 1024, 2048)); i = R.choice((64, 512, 1024, 2048, 4096, 8192, 2401, 38809, 65536)); how = R.choice(("embedding", "index"))
    if not ok(v, c) or not ok(i, c): return None
    w = rand(v, c, dtype=T[t]); ids = torch.randint(0, v, (i,), device=dev)
    return dict(type=t, how=how, v=v, c=c, i=i, us=both((lambda: F.embedding(ids, w)) if how == "embedding" else (lambda: w[ids]), (w,), Touch(w)))
def recurrent():
    t = kind("bf16", "fp32", "tf32"); b = R.choice((1, 8, 16, 32, 64)); s = R.choice((32, 64, 128, 256)); i, h = R.choice((128, 256, 512, 1024)), R.choice((128, 256, 512, 1024)); l = R.choice((1, 2)); bi = R.random() < .3; cls = R.choice(("LSTM", "GRU"))
    torch.backends.cudnn.allow_tf32 = t != "fp32"; m = getattr(torch.nn, cls)(i, h, l, batch_first=True, bidirectional=bi, device=dev, dtype=T[t]); x = rand(b, s, i, dtype=T[t])
    return dict(type=t, cls=cls, b=b, s=s, i=i, h=h, layers=l, bi=bi, us=both(lambda: m(x)[0], [x, *m.parameters()], Touch(x)))
def loss():
    t = kind("bf16", "fp32"); r = R.choice((8, 64, 512, 2048, 4096)); v = R.choice((2, 10, 1000, 21128, 32000, 50257, 128256)); x = rand(r, v, dtype=T[t]) if ok(r, v * 2) else None
    if x is None: return None
    y = torch.randint(0, v, (r,), device=dev); return dict(type=t, r=r, v=v, us=both(lambda: F.cross_entropy(x, y), (x,), Touch(x)))
OPS = dict(group_norm=6, batch_norm=12, layer_norm=10, sdpa=14, bmm=10, linear=10, channel_sum=5, column_sum=5, row_mean=2, softmax=5, pool=6, upsample=4, copies=9, pointwise=8, embedding=6, recurrent=3, loss=3)
f = open(out, "w"); t0 = time.time(); count = 0
while time.time() - t0 < seconds:
    name = R.choices(list(OPS), list(OPS.values()))[0]
    torch.backends.cuda.matmul.allow_tf32 = False; torch.backends.cudnn.allow_tf32 = True
    try: row = globals()[name]()
    except Exception as e: print("failed", name, str(e)[:100]); torch.cuda.empty_cache(); continue
    if row: f.write(json.dumps(dict(op=name, **row), separators=(",", ":")) + "\n"); count += 1
f.close(); print(out, count, "rows")
