"""Products of matrices of random shapes, as models have them, on a card: what cuBLAS's kernels take at the full clock, and which it chose.

usage: product_times.py OUT.jsonl SECONDS [SEED]                   shapes that are drawn
       product_times.py OUT.jsonl SECONDS again product_times.txt  those of the library's table, those of LONG_US and more first

A row: [type, batch, m, n, k, layout, bias, microseconds, kernel, kernels]. The result is m x n, k is summed; layout 2: the second operand is stored
transposed (a Linear's forward), 0: neither (the gradient of its input), 1: the first (that of its weight); bias: by addmm, as a Linear with a bias
in forward. Microseconds are the sum of a call's kernels by the profiler, median of three calls; operands lie elsewhere at each call, so that the cache
holds none of them. Behind each call a thread spins for as long, so that no power limit lowers the clock: without that (until 2026-11-30) the same
float32 product took 4.6 % longer or shorter (median of 76) by what came before it. Shapes come in random order, so that a run that is stopped has all kinds.
"""
import json
import random
import re
import statistics
import sys
import time

HIDDEN = (128, 192, 256, 320, 384, 512, 576, 640, 768, 896, 960, 1024, 1152, 1280, 1536, 1600, 2048, 2304, 2560, 3072, 3584, 4096, 5120, 8192)
WIDER = (0.125, 0.25, 0.25, 1, 1, 1, 1.5, 2, 2.6875, 3, 3, 4, 4, 4, 5.5)
VOCABULARIES = (30522, 32000, 32128, 49152, 49155, 50257, 50265, 50272, 50304, 51865, 64000, 100352, 128256, 151936, 250112)
LENGTHS = (49, 64, 77, 96, 100, 128, 144, 160, 192, 197, 224, 256, 288, 300, 320, 360, 384, 400, 448, 500, 512, 576, 640, 720, 768, 896, 1000, 1024, 1280, 1500, 1536, 2000, 2048, 4096)
BATCHES = (1, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128)
RANKS = (4, 8, 16, 32, 64)
WIDTHS = (32, 64, 64, 64, 80, 96, 128, 128, 256)
MOST = {"bf16": 3.2e12, "tf32": 1.2e12, "fp32": 1.8e11}  # FLOPs of a call
WEIGHED = ("bf16",) * 8 + ("fp32",) * 8 + ("tf32",) * 6
POOL = 3 << 28  # elements from which operands are taken
KINDS = ("bf16", "tf32", "fp32")  # by the number of the table
CALLS, AT_ONCE = 3, 360  # of each product; products of a profile
FLOPS_PER_US = {"bf16": 6e8, "tf32": 3e8, "fp32": 4.5e7}  # about, for the rests
BYTES_PER_US, CYCLES_PER_US = 2.5e6, 1980
LONG_US = 30


def rows_of(pick):
    kind = pick.random()
    if kind < 0.55: return pick.choice(BATCHES) * pick.choice(LENGTHS)
    if kind < 0.75: return 2 ** pick.randint(6, 16)
    return int(2 ** pick.uniform(4.2, 16))


def of_linear(m, n, k, bias): return [(1, m, n, k, 2, bias), (1, m, k, n, 0, 0), (1, n, k, m, 1, 0)]


def of_scores(batch, length, keys, width): return [(batch, length, keys, width, 2, 0), (batch, length, width, keys, 0, 0), (batch, keys, width, length, 1, 0)]


def draw(pick):
    """(type, [(batch, m, n, k, layout, bias), …])"""
    kind, of = pick.choice(WEIGHED), pick.random()
    if of < 0.12:  # attention's scores and their sums
        batch, length, width = pick.choice(BATCHES) * pick.choice((8, 12, 16, 20, 32)), pick.choice(LENGTHS), pick.choice(WIDTHS)
        return kind, of_scores(batch, length, pick.choice(LENGTHS) if pick.random() < 0.2 else length, width)
    hidden = pick.choice(HIDDEN)
    other = max(32, int(hidden * pick.choice(WIDER)) // 32 * 32)
    if of < 0.19: other = pick.choice(VOCABULARIES)
    elif of < 0.36: other = pick.choice(RANKS)
    n, k = (hidden, other) if pick.random() < (0.4 if of < 0.36 and of >= 0.19 else 0.35 if of >= 0.36 else 0) else (other, hidden)
    m = pick.choice((12544, 25088, 50176, 100352, 150528, 200704, 301056, 401408, 18816, 37632, 75264)) if of > 0.9 and hidden <= 1024 else rows_of(pick)
    return kind, of_linear(m, n, k, int(pick.random() < 0.4))


def drawn(pick):
    while True:
        kind, products = draw(pick)
        yield [(kind, *product) for product in products]


def of_table(path, pick):
    """The table's rows, the long ones first."""
    with open(path) as file: rows = [list(map(int, re.findall(r"\d+", line))) for line in file if line.startswith("{")]
    pick.shuffle(rows)
    for kind, bias, batch, tokens, out, inner, *_ in sorted(rows, key=lambda row: max(row[6:]) < 1000 * LONG_US):
        products = of_scores(batch, tokens, out, inner) if batch > 1 else of_linear(tokens, out, inner, bias)
        yield [(KINDS[kind], *product) for product in products]


def main(out, seconds, seed=22, table=None):
    import torch
    from torch.profiler import ProfilerActivity, profile
    on_card = torch.cuda.is_available()
    end, device, size = time.time() + float(seconds), *(("cuda", POOL) if on_card else ("cpu", 1 << 22))
    products = of_table(table, random.Random(22)) if table else drawn(random.Random(int(seed)))
    types = {"bf16": torch.bfloat16, "fp32": torch.float32, "tf32": torch.float32}
    pools = {each: torch.randn(size, device=device, dtype=each).mul_(0.05) for each in set(types.values())}
    places = dict.fromkeys(pools, 0)

    def taken(kind, batch, *shape):
        pool = pools[types[kind]]
        count = batch * shape[0] * shape[1]
        begin = (places[types[kind]] + 63) // 64 * 64
        if begin + count > len(pool): begin = 0
        places[types[kind]] = begin + count
        view = pool[begin:begin + count]
        return view.view(batch, *shape) if batch > 1 else view.view(shape)

    def call(kind, batch, m, n, k, layout, bias):
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        first = taken(kind, batch, k, m).mT if layout == 1 else taken(kind, batch, m, k)
        second = taken(kind, batch, n, k).mT if layout == 2 else taken(kind, batch, k, n)
        if batch > 1: torch.bmm(first, second)
        elif bias: torch.addmm(taken(kind, 1, 1, n)[0], first, second)
        else: torch.mm(first, second)
        if on_card: torch.cuda._sleep(int(CYCLES_PER_US * (20 + 2 * batch * m * n * k / FLOPS_PER_US[kind] + 4 * batch * (m * k + n * k + m * n) / BYTES_PER_US)))

    def fits(kind, batch, m, n, k):
        largest = batch * max(m * k, n * k, m * n)
        return 2 * batch * m * n * k < (MOST[kind] if on_card else 1e8) and largest < len(pools[types[kind]]) // 2

    with open(out, "w") as file:
        while time.time() < end:
            cases = []
            for of_layer in products:
                if table is None or all(fits(*each[:5]) for each in of_layer): cases += [each for each in of_layer if fits(*each[:5])]
                if len(cases) >= (AT_ONCE if on_card else 9): break
            if not cases: break
            with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_card) as profiled:
                for case in cases:
                    for _ in range(CALLS): call(*case)
                if on_card: torch.cuda.synchronize()
            calls, kernels = {}, {}
            for event in profiled.profiler.kineto_results.events():
                if str(event.device_type()).endswith("CUDA"):
                    if event.linked_correlation_id() > 0: kernels.setdefault(event.linked_correlation_id(), []).append((event.name(), event.duration_ns() / 1e3))
                elif event.name() in ("aten::mm", "aten::addmm", "aten::bmm"): calls[event.correlation_id()] = event.start_ns()
            ordered = sorted(calls, key=calls.get)
            assert len(ordered) == CALLS * len(cases), (len(ordered), len(cases))
            for number, case in enumerate(cases):
                of = [[each for each in kernels.get(one, []) if not each[0].startswith("aten::")] for one in ordered[CALLS * number:CALLS * (number + 1)]]
                name = max(of[-1], key=lambda each: each[1])[0][:90] if of[-1] else ""
                us = [sum(each for _, each in one) for one in of]
                file.write(json.dumps([*case, round(statistics.median(us), 2), name, len(of[-1])], separators=(",", ":")) + "\n")
            file.flush()
            print(round(end - time.time(), 1), len(cases), flush=True)


if __name__ == "__main__": main(*sys.argv[1:])
