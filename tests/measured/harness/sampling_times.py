"""Operators that generate() calls where it draws its tokens, microseconds of the card by events, for rows of a vocabulary's scores.

usage: sampling_times.py OUT.jsonl
"""
import json, statistics, sys
import torch


def timed(call, n=30):
    for _ in range(3): call()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
    torch.cuda._sleep(20_000_000)  # the host runs ahead: launches do not count
    for a, b in pairs: a.record(); call(); b.record()
    torch.cuda.synchronize()
    return round(1e3 * statistics.median(a.elapsed_time(b) for a, b in pairs), 2)


with torch.no_grad(), open(sys.argv[1], "w") as out:
    for vocabulary in (32000, 50304, 128256, 151936, 256000):
        for rows in (1, 2, 4, 8, 16, 64, 128):
            x = torch.randn(rows, vocabulary, device="cuda")
            p, order = x.softmax(-1), x.argsort(-1)
            kept = p > 1e-6
            calls = dict(sort=lambda: torch.sort(x, descending=False), cumsum=lambda: p.cumsum(-1), softmax=lambda: x.softmax(-1), topk=lambda: torch.topk(x, 50), topk1=lambda: torch.topk(p, 1),
                         scatter=lambda: kept.scatter(1, order, kept), masked_fill=lambda: x.masked_fill(kept, -1e9), multinomial=lambda: torch.multinomial(p, num_samples=1), argmax=lambda: x.argmax(-1),
                         less=lambda: x < p, amax=lambda: p.amax(-1, keepdim=True), divide=lambda: x / 0.7)
            row = dict(vocabulary=vocabulary, rows=rows, gpu=torch.cuda.get_device_name(0), torch=torch.__version__)
            for name, call in calls.items():
                torch.cuda.synchronize(); before = torch.cuda.memory_allocated(); torch.cuda.reset_peak_memory_stats()
                made = call(); row[name + "_peak"] = torch.cuda.max_memory_allocated() - before
                del made
                row[name] = timed(call)
            out.write(json.dumps(row) + "\n"); out.flush()
