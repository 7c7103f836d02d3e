"""torch's grouped products by shape; kind "grouped": us of forward, input gradient, weight gradient. usage: ops_grouped.py OUT"""
import json, sys, torch, torch.nn.functional as F
out = open(sys.argv[1], "w")
def event(): return torch.cuda.Event(enable_timing=True)
def behind(f, n=4):
    f(); f(); torch.cuda.synchronize(); a, b = event(), event()
    torch.cuda._sleep(5_000_000); a.record()
    for _ in range(n): f()
    b.record(); torch.cuda.synchronize(); return a.elapsed_time(b) / n * 1e3
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
for _ in range(300): a @ a
for e, r, k, n in [(8, 512, 1024, 7168), (8, 2048, 1024, 7168), (8, 8192, 1024, 7168), (8, 24576, 1024, 7168), (8, 24576, 3584, 1024), (8, 4096, 2048, 5632), (8, 16384, 2048, 5632), (8, 8192, 4096, 14336), (8, 32768, 4096, 14336), (16, 8192, 1024, 2048), (32, 8192, 1024, 512), (32, 65536, 1024, 1024), (32, 65536, 512, 1024), (64, 4096, 2048, 1024), (64, 16384, 2048, 1024), (64, 65536, 2048, 1024), (64, 65536, 1024, 2048), (64, 131072, 2048, 2048), (128, 16384, 2048, 768), (128, 65536, 2048, 768), (128, 131072, 2048, 1536)]:
    try:
        x = torch.randn(r, k, device="cuda", dtype=torch.bfloat16, requires_grad=True); w = torch.randn(e, n, k, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        off = torch.arange(1, e + 1, device="cuda", dtype=torch.int32) * (r // e)
        f = lambda: F.grouped_mm(x, w.transpose(1, 2), offs=off)
        with torch.no_grad(): t = [behind(f)]
        y = f(); g = torch.randn_like(y)
        for leaf in (x, w): t.append(behind(lambda: torch.autograd.grad(y, leaf, g, retain_graph=True)))
        out.write(json.dumps(dict(kind="grouped", dtype="bf16", groups=e, rows=r, K=k, N=n, us=[round(i, 1) for i in t])) + "\n"); out.flush()
    except Exception as error: print(error)
