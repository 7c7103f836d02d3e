"""Random recurrent networks: requests of forward in training, of backward and of forward in inference (a row's last three lists).
recurrent_samples.py OUT.jsonl SEED SECONDS"""
import json, random, sys, time, torch
out, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]); R = random.Random(seed)
f = open(out, "w"); t0 = time.time(); n = 0
torch.zeros(1, device="cuda")
HS = [32, 64, 100, 128, 200, 256, 300, 384, 512, 640, 768, 1024, 1500, 2048]
def history(fn):
    torch.cuda.memory._record_memory_history(max_entries=5000, context=None)
    y = fn(); t = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return y, [e["size"] for e in t if e["action"] == "alloc"]
while time.time() - t0 < seconds:
    mode = R.choice(("LSTM", "LSTM", "LSTM", "GRU", "GRU", "RNN"))
    layers = R.choice((1, 1, 2, 2, 3, 4)); bi = R.random() < .35; drop = R.choice((0, 0.1)) if layers > 1 else 0
    T = R.choice((1, 5, 16, 32, 50, 100, 128, 200, 512)); N = R.choice((1, 2, 4, 8, 16, 20, 32, 48, 64, 96, 128, 256))
    I = R.choice(HS); H = R.choice(HS) if R.random() < .7 else R.randrange(8, 1200); proj = 0
    if mode == "LSTM" and R.random() < .12: proj = max(1, H // R.choice((2, 4)))
    if R.random() < .1: I = R.randrange(1, 700)
    if T * N * H * layers * (2 if bi else 1) > 1.2e8 or H * H * 8 * layers > 2e8: continue
    prec = R.choice(("fp32", "tf32", "fp16", "bf16")); dt = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(prec, torch.float32)
    torch.backends.cudnn.allow_tf32 = prec == "tf32"
    kw = dict(num_layers=layers, bidirectional=bi, dropout=drop)
    if proj: kw["proj_size"] = proj
    packed = R.random() < .12
    try:
        m = getattr(torch.nn, mode)(I, H, **kw).to("cuda", dt)
        x = torch.zeros(T, N, I, device="cuda", dtype=dt, requires_grad=True)
        lengths = None; inp = x
        if packed:
            lengths = sorted((R.randrange(1, T + 1) for _ in range(N)), reverse=True); lengths[0] = T
            inp = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        def fw(): return m(inp)[0]
        if n == 0: fw()
        y, forward = history(fw)
        y = y.data if packed else y
        dy = torch.zeros_like(y)
        _, backward = history(lambda: y.backward(dy)); del y
        for p in m.parameters(): p.grad = None
        m.eval()
        with torch.no_grad(): _, infer = history(lambda: (m(inp), None)[1])
        f.write(json.dumps([mode, prec, layers, bi, drop, T, N, I, H, proj, sum(lengths) if packed else 0, m._flat_weights[0].untyped_storage().nbytes(), forward, backward, infer]) + "\n")
        n += 1; del m, x, inp, dy
    except RuntimeError as e:
        f.write(json.dumps([mode, prec, layers, bi, drop, T, N, I, H, proj, 0, "ERROR " + str(e)[:80]]) + "\n")
f.close(); print(out, n, "rows", torch.backends.cudnn.version())
