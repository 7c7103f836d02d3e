"""Random convolutions of volumes, of images in groups or of patches: what cuDNN requests beside the result.
convolution_kinds.py OUT.jsonl SEED SECONDS volumes|groups|patches"""
import json, random, sys, time, torch
out, seed, seconds, kind = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]; rank = 3 if kind == "volumes" else 2
R = random.Random(seed); A = torch.ops.aten.convolution_backward
torch.cuda.set_per_process_memory_fraction(0.15)
CH = [1, 2, 3, 4, 8, 12, 16, 24, 32, 32, 48, 64, 64, 64, 80, 96, 128, 128, 160, 192, 256, 256, 320, 384, 512, 768]
def volume():
    n, c, k = R.choice((1, 1, 2, 2, 2, 3, 4, 6, 8, 16)), R.choice(CH), R.choice(CH)
    if R.random() < .4: k = c
    d, h = R.choice((1, 2, 4, 5, 8, 9, 16, 17, 20, 32, 48, 64, 80, 96, 128)), R.choice((4, 7, 8, 12, 14, 16, 20, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 224))
    if R.random() < .4: d = h
    w = h if R.random() < .9 else R.choice((32, 48, 64, 96))
    K = R.choice(((3, 3, 3),) * 8 + ((1, 1, 1),) * 4 + ((2, 2, 2),) * 3 + ((1, 3, 3),) * 3 + ((3, 1, 1),) * 3 + ((5, 5, 5), (7, 7, 7), (3, 7, 7), (5, 7, 7), (4, 4, 4), (1, 7, 7), (2, 14, 14), (2, 16, 16), (1, 2, 2), (2, 4, 4), (4, 16, 16)))
    S = (1, 1, 1)
    if max(K) in (2, 4, 14, 16) and R.random() < .85: S = K
    elif R.random() < .25: S = (2, 2, 2) if R.random() < .6 else (1, 2, 2)
    P = tuple((x - 1) // 2 if s != x or x == 1 else 0 for x, s in zip(K, S))
    if R.random() < .15: P = (0, 0, 0) if R.random() < .5 else (0,) + P[1:]
    if K == (4, 4, 4) and S == (1, 1, 1): S, P = (2, 2, 2), (1, 1, 1)
    D = (1, 1, 1) if R.random() < .95 or max(K) == 1 else (2, 2, 2)
    g = 1; r = R.random()
    if r < .06: g = c; k = c
    elif r < .12:
        g = R.choice((2, 4, 8, 16, 32))
        if c % g or k % g: g = 1
    return n, c, (d, h, w), k, g, K, S, P, D
def patches():
    x = R.choice((2, 2, 4, 4, 7, 8, 8, 14, 14, 14, 16, 16, 16, 16, 20, 28, 32, 32)); big = x > 4
    n = R.choice((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256))
    c = R.choice((3, 3, 3, 3, 3, 1, 4, 6, 12, 16)) if big or R.random() < .6 else R.choice((32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512))
    k = R.choice((32, 40, 48, 64, 80, 96, 128, 192, 256, 320, 384, 512, 576, 640, 768, 768, 768, 896, 1024, 1024, 1152, 1280, 1408, 1536, 1664, 1792))
    if not big and c > 16: k = R.choice((c, 2 * c, 2 * c))
    side = R.choice((4, 6, 7, 8, 10, 12, 14, 14, 16, 16, 18, 20, 24, 24, 27, 28, 32, 37, 40, 48, 56, 60, 64, 80, 96, 112)); h = x * side + (R.randrange(0, x) if R.random() < .15 else 0)
    w = h if R.random() < .9 else x * R.choice((8, 16, 32, 50, 64))
    return n, c, (h, w), k, 1, (x, x), (x, x), (0, 0), (1, 1)
def groups():
    n = R.choice((1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)); width = R.choice((1, 2, 4, 8, 8, 16, 16, 24, 24, 32, 32, 40, 48, 56, 64, 64, 80, 96, 112, 128, 168, 256)); g = R.choice((2, 2, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 32, 42, 64))
    c = width * g; k = c if R.random() < .6 else g * R.choice((8, 16, 32, 64, width * 2, max(1, width // 2)))
    h = R.choice((4, 6, 7, 8, 10, 12, 14, 14, 16, 20, 24, 28, 28, 32, 40, 48, 56, 56, 64, 72, 80, 96, 112, 112, 128, 144, 160)); x = R.choice((1, 3, 3, 3, 3, 3, 5, 7)); s = R.choice((1, 1, 2)); d = 1 if R.random() < .93 or x == 1 else 2
    return n, c, (h, h), k, g, (x, x), (s, s), (d * (x - 1) // 2,) * 2, (d, d)
f = open(out, "w"); t0 = time.time(); count = 0
def stat(x): return torch.cuda.memory_stats()[x]
def spent(fn):
    torch.cuda.reset_peak_memory_stats(); o = stat("num_alloc_retries"); y = fn(); p = stat("requested_bytes.all.peak"); a = stat("requested_bytes.all.current"); del y
    return p - a if stat("num_alloc_retries") == o else -1
conv = torch.nn.functional.conv3d if rank == 3 else torch.nn.functional.conv2d
Z = [0] * rank
def prod(v):
    r = 1
    for x in v: r *= x
    return r
while time.time() - t0 < seconds:
    n, c, X, k, g, K, S, P, D = {"volumes": volume, "groups": groups, "patches": patches}[kind]()
    O = tuple((x + 2 * p - d * (q - 1) - 1) // s + 1 for x, p, d, q, s in zip(X, P, D, K, S))
    if min(O) < 1: continue
    flops = 2 * n * prod(O) * k * (c // g) * prod(K)
    if flops > (4e10 if rank == 3 else 1e11) or n * c * prod(X) > 1e8 or n * k * prod(O) > 1e8 or k * (c // g) * prod(K) > 3e7: continue
    for mode in ("fp32", "tf32", "bf16", "fp16"):
        if R.random() < (.3 if mode != "fp16" else .6) or (mode == "fp32" and flops > 1e10): continue
        last = R.random() < .15
        torch.backends.cudnn.allow_tf32 = mode == "tf32"; dt = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mode, torch.float32)
        mf = torch.contiguous_format if not last else torch.channels_last_3d if rank == 3 else torch.channels_last
        row = ["nhwc" if last else "nchw", mode, n, c, *X, k, g, *K, *S, *P, *D]
        try:
            x = torch.zeros(n, c, *X, device="cuda", dtype=dt).contiguous(memory_format=mf)
            wt = torch.zeros(k, c // g, *K, device="cuda", dtype=dt).contiguous(memory_format=mf)
            row.append(str(torch._C._select_conv_backend(x, wt, None, list(S), list(P), list(D), False, Z, g)).split(".")[-1])
            fw = lambda: conv(x, wt, None, S, P, D, g)
            y = fw(); dy = torch.zeros_like(y); del y
            bw = lambda m: A(dy, x, wt, None, list(S), list(P), list(D), False, Z, g, m)
            row += [spent(fw), spent(lambda: bw([True, False, False])), spent(lambda: bw([False, True, False]))]
            f.write(json.dumps(row, separators=(",", ":")) + "\n"); count += 1
            del x, wt, dy
        except RuntimeError as e:
            f.write(json.dumps(row + ["ERROR " + str(e)[:60]]) + "\n"); torch.cuda.empty_cache()
f.close(); print(out, count, "rows")
