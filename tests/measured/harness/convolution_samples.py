"""Random convolutions: what cuDNN requests beside the result, and (one process alone) how long a call takes.
conv_samples.py OUT.jsonl SEED SECONDS [--time]"""
import json, random, sys, time, torch, torch.nn.functional as F
out, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]); timed = "--time" in sys.argv
R = random.Random(seed); A = torch.ops.aten.convolution_backward
CH = [3, 8, 16, 24, 32, 40, 48, 64, 64, 72, 80, 96, 112, 128, 128, 144, 160, 192, 224, 256, 256, 288, 320, 384, 432, 448, 480, 512, 512, 576, 640, 672, 728, 768, 960, 1024, 1152, 1280, 1536, 2048]
NS = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128]
HS = [4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 18, 20, 24, 28, 30, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 128, 149, 160, 192, 224, 256, 299, 320]
def draw():
    n, c, k, h = R.choice(NS), R.choice(CH), R.choice(CH), R.choice(HS)
    if R.random() < .1: c, k = R.randrange(1, 1200), R.randrange(1, 1200)
    if R.random() < .35: k = c
    if R.random() < .04: c = R.choice((1, 2, 3, 4))
    w = h if R.random() < .88 else max(1, int(h * R.choice((.5, .75, 1.33, 2))))
    kh = R.choice((1, 1, 1, 3, 3, 3, 3, 3, 5, 7, 2, 4)) if R.random() < .95 else R.choice((6, 8, 9, 11, 14, 16)); kw = kh
    if R.random() < .05: kh, kw = R.choice(((1, 3), (3, 1), (1, 7), (7, 1), (1, 5), (5, 1)))
    if R.random() < .07: h = kh = 1; w = R.choice((100, 250, 500, 1000, 1500, 3000, 7999, 16000)); kw = R.choice((2, 3, 3, 5, 7, 9, 15, 31, 128))
    s = R.choice((1, 1, 1, 2)) if R.random() < .95 else R.choice((3, 4))
    if kh >= 4 and R.random() < .5: s = kh
    d = 1 if kh * kw == 1 or R.random() < .88 else R.choice((2, 2, 3, 4, 6, 12))
    same = kh == kw; p = ((kh - 1) * d // 2 if R.random() < .85 else R.choice((0, 1))) if same else (kh // 2, kw // 2)
    if kh == 1 and kw > 1 and h == 1: p = (0, R.choice((0, kw // 2))); d = 1
    if s == kh and s > 2: p = 0
    g = 1; r = R.random()
    if r < .08: g = c; k = c * R.choice((1, 1, 1, 2, 4))
    elif r < .2:
        g = R.choice((2, 4, 8, 16, 32, 64))
        if c % g or k % g: g = 1
    return n, c, h, w, k, g, kh, kw, s, p, d
f = open(out, "w"); t0 = time.time(); count = 0; req = lambda x: torch.cuda.memory_stats()["requested_bytes.all." + x]
def spent(fn, keep):
    torch.cuda.reset_peak_memory_stats(); b = req("current"); y = fn(); p = req("peak"); a = req("current"); del y
    return p - a
def clock(fn):
    fn(); e = [torch.cuda.Event(enable_timing=True) for _ in range(2)]; best = 1e9
    for _ in range(3):
        e[0].record(); fn(); e[1].record(); e[1].synchronize(); best = min(best, e[0].elapsed_time(e[1]))
    return round(best * 1e3, 1)
while time.time() - t0 < seconds:
    n, c, h, w, k, g, kh, kw, s, p, d = draw(); ph, pw = (p, p) if isinstance(p, int) else p
    oh, ow = (h + 2 * ph - d * (kh - 1) - 1) // s + 1, (w + 2 * pw - d * (kw - 1) - 1) // s + 1
    if oh < 1 or ow < 1: continue
    flops = 2 * n * oh * ow * k * (c // g) * kh * kw
    if flops > 3e11 or n * c * h * w > 2.2e8 or n * k * oh * ow > 2.2e8 or k * (c // g) * kh * kw > 6e7: continue
    for mode in ("fp32", "tf32", "bf16", "fp16"):
        if timed and mode == "fp16": continue
        if R.random() < .35: continue
        layout = "nhwc" if R.random() < .25 else "nchw"
        torch.backends.cudnn.allow_tf32 = mode == "tf32"; dt = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mode, torch.float32)
        mf = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        try:
            x = torch.empty(n, c, h, w, device="cuda", dtype=dt, memory_format=mf).normal_() if timed else torch.zeros(n, c, h, w, device="cuda", dtype=dt).contiguous(memory_format=mf)
            wt = torch.zeros(k, c // g, kh, kw, device="cuda", dtype=dt).contiguous(memory_format=mf)
            back = str(torch._C._select_conv_backend(x, wt, None, [s, s], [ph, pw], [d, d], False, [0, 0], g)).split(".")[-1]
            fw = lambda: F.conv2d(x, wt, None, s, (ph, pw), d, g)
            y = fw(); dy = torch.zeros_like(y); del y
            bw = lambda m: A(dy, x, wt, None, [s, s], [ph, pw], [d, d], False, [0, 0], g, m)
            fns = [fw, lambda: bw([True, False, False]), lambda: bw([False, True, False])]
            row = [layout, mode, n, c, h, w, k, g, kh, kw, s, ph, pw, d, back] + [spent(q, None) for q in fns]
            if timed: row += [clock(q) for q in fns]
            f.write(json.dumps(row, separators=(",", ":")) + "\n"); count += 1
            del x, wt, dy
        except RuntimeError as e:
            f.write(json.dumps([layout, mode, n, c, h, w, k, g, kh, kw, s, ph, pw, d, "ERROR " + str(e)[:60]]) + "\n"); torch.cuda.empty_cache()
f.close(); print(out, count, "rows")
