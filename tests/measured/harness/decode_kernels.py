"""What the card takes of a later token of generate(): attention of one query, the cache's concatenation, copies of shared heads, products of few rows.

usage: decode_kernels.py OUT.jsonl [--budget SECONDS] [--dry]

Each operator runs on operands that no cache holds (copies that take turns, 512 MB of them where the memory allows), captured as a CUDA graph of some calls,
so that the host does not count; microseconds of one call, the median of nine replays. Afterwards, where all has been timed, the profiler names the kernels of some.
"""
import argparse, json, math, statistics, time
import torch
import torch.nn.functional as F

DTYPES = dict(bf16=torch.bfloat16, fp16=torch.float16, fp32=torch.float32)
FAR = 512 << 20


def shapes():
    """(kind, numbers): what later tokens of common models ask for."""
    for dtype in ("bf16", "fp32"):
        for heads, kv, width in ((32, 32, 64), (32, 32, 80), (16, 16, 128), (32, 8, 128), (8, 4, 256), (25, 25, 64), (12, 2, 128)):
            for batch, keys in ((1, 300), (1, 1100), (1, 8000), (4, 520), (16, 300), (16, 1100), (16, 2040), (64, 280), (64, 600), (128, 150)):
                if batch * heads * keys * width * 2 * (2 if dtype == "bf16" else 4) > 3 << 30: continue
                if dtype == "fp32" and (heads, width) not in ((32, 64), (32, 80), (16, 128)): continue
                yield "attention", dict(dtype=dtype, batch=batch, heads=heads, kv=kv, keys=keys, width=width, mask=False)
                if keys in (300, 1100, 600) and heads == kv: yield "attention", dict(dtype=dtype, batch=batch, heads=heads, kv=kv, keys=keys, width=width, mask=True)
        for batch, kv, keys, width in ((1, 32, 300, 64), (1, 8, 1100, 128), (1, 8, 8000, 128), (4, 16, 520, 128), (16, 32, 300, 64), (16, 32, 1100, 64), (16, 8, 2040, 128), (64, 16, 600, 128), (64, 32, 280, 64), (128, 32, 150, 80), (16, 25, 1100, 64)):
            yield "cat", dict(dtype=dtype, batch=batch, kv=kv, keys=keys, width=width)
    for batch, heads, kv, keys, width in ((1, 32, 8, 1100, 128), (16, 32, 8, 1100, 128), (64, 12, 2, 600, 128), (8, 8, 4, 1000, 256)):
        yield "repeat_kv", dict(dtype="bf16", batch=batch, heads=heads, kv=kv, keys=keys, width=width)
    for dtype in ("bf16", "fp16", "fp32"):
        for n, k in ((2048, 2048), (8192, 2048), (2048, 8192), (4096, 4096), (14336, 4096), (4096, 14336), (2560, 2560), (10240, 2560), (50304, 2048), (128256, 2048), (1536, 1536), (8960, 1536), (256, 1536), (768, 768), (3072, 768)):
            for rows in (1, 2, 4, 8, 16, 32, 64, 128): yield "linear", dict(dtype=dtype, rows=rows, n=n, k=k)


def prepared(kind, of):
    """Calls on operands of their own."""
    dtype = DTYPES[of["dtype"]]

    def new(*shape): return torch.randn(shape, device="cuda", dtype=dtype)
    if kind == "linear": size = of["n"] * of["k"]
    elif kind == "repeat_kv": size = 2 * of["batch"] * of["kv"] * of["keys"] * of["width"]
    elif kind == "cat": size = of["batch"] * of["kv"] * of["keys"] * of["width"]
    else: size = 2 * of["batch"] * of["heads"] * of["keys"] * of["width"]
    copies = max(2, min(24, math.ceil(FAR / (size * dtype.itemsize))))
    calls = []
    for _ in range(copies):
        if kind == "linear":
            x, w = new(of["rows"], of["k"]), new(of["n"], of["k"])
            calls.append(lambda x=x, w=w: F.linear(x, w))
        elif kind == "cat":
            old, last = new(of["batch"], of["kv"], of["keys"], of["width"]), new(of["batch"], 1, of["kv"], of["width"]).transpose(1, 2)
            calls.append(lambda old=old, last=last: torch.cat([old, last], dim=-2))
        elif kind == "repeat_kv":
            x = new(of["batch"], of["kv"], of["keys"], of["width"])
            calls.append(lambda x=x: x[:, :, None].expand(of["batch"], of["kv"], of["heads"] // of["kv"], of["keys"], of["width"]).reshape(of["batch"], of["heads"], of["keys"], of["width"]))
        else:
            q = new(of["batch"], 1, of["heads"], of["width"]).transpose(1, 2)
            k, v = (new(of["batch"], of["kv"], of["keys"], of["width"]) for _ in range(2))
            mask = torch.ones(of["batch"], 1, 1, of["keys"], device="cuda", dtype=torch.bool) if of["mask"] else None
            calls.append(lambda q=q, k=k, v=v, mask=mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=of["heads"] != of["kv"]))
    return calls


def timed(calls):
    times = max(1, 12 // len(calls))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]: call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(times):
            for call in calls: call()
    graph.replay()
    pairs = []
    for _ in range(9):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); graph.replay(); b.record(); pairs.append((a, b))
    torch.cuda.synchronize()
    return 1e3 * statistics.median(a.elapsed_time(b) for a, b in pairs) / (times * len(calls))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--budget", type=float, default=50)
    parser.add_argument("--dry", action="store_true")
    a = parser.parse_args()
    every = list(shapes())
    if a.dry: print(len(every), {kind: sum(k == kind for k, _ in every) for kind, _ in every}); return
    end = time.time() + a.budget
    # spread, for the budget may end it: every seventh, then the next ones
    order = [each for start in range(7) for each in every[start::7]]
    made = 0
    with torch.no_grad(), open(a.out, "w") as out:
        print(json.dumps(dict(gpu=torch.cuda.get_device_name(0), torch=torch.__version__)), flush=True)
        for kind, of in order:
            if time.time() > end - 6: break
            row = dict(kind=kind, **of)
            try: row["us"] = round(timed(prepared(kind, of)), 3)
            except Exception as error: row["error"] = repr(error)[:200]
            out.write(json.dumps(row) + "\n"); out.flush(); made += 1
            if made % 40 == 0: torch.cuda.empty_cache()
        print(made, "of", len(order), flush=True)
        from torch.profiler import ProfilerActivity, profile
        named = {}
        for kind, of in every:
            if time.time() > end: break
            if kind == "linear": continue
            key = (kind, of["dtype"], of["width"], of.get("heads") == of["kv"], of.get("mask"), of["batch"] > 1, of["keys"] > 1000)
            if key in named: continue
            calls = prepared(kind, of)[:1]
            calls[0](); torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as p: calls[0](); torch.cuda.synchronize()
            named[key] = [[e.name[:120], round(e.device_time_total, 2)] for e in p.events() if str(e.device_type).endswith("CUDA")]
            out.write(json.dumps(dict(kind=kind, **of, kernels=named[key])) + "\n"); out.flush()
            del calls
            torch.cuda.empty_cache()


if __name__ == "__main__": main()
