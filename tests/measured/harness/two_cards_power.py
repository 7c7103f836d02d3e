"""What two cards' steps lose that one card's do not: two_cards_power.py OUTDIR [--budget SECONDS]

OUTDIR/parts.RANK.jsonl gets lines of "links" (products, alone or in turn with additions, with collectives of some size in between
each so many milliseconds or with none: do links that are awake lower the clock?), "gaps" (microseconds between launches of short
kernels and of lists, with nothing on other streams, with work that waits there and after a collective), "clock" (memory-bound and
other kernels one after the other behind a long row of products, and behind a pause) and "zeros" (AdamW's lists over parameters
whose gradients and moments are zero, or not). OUTDIR/clocks.jsonl: clock and power of each card every 20 ms.
"""
import argparse, os, sys, time, traceback
import two_cards, layout_turns


def links(out, torch, dist, rank):
    B = dict(device="cuda", dtype=torch.bfloat16)
    a, b, c = (torch.randn(8192, 8192, **B) for _ in range(3)); e = torch.randn(2 ** 28, **B); o = torch.empty_like(e); event = lambda: torch.cuda.Event(enable_timing=True)
    parts = {n: torch.ones(n // 2 if n > 16 else 8, **B) for n in (16, 2 ** 20, 2 ** 24, 2 ** 26, 2 ** 28)}
    def loop(mixed, size, every_ms, seconds):
        """Mean microseconds of a product and of an addition in the later half, between collectives."""
        products = max(1, round(every_ms / (4.0 if mixed else 1.6))); marks = []
        dist.barrier(); torch.cuda.synchronize(); begun = time.time(); n = 0
        rounds = int(1e3 * seconds / every_ms)
        for i in range(rounds):
            m = [event() for _ in range(3)]; m[0].record()
            for _ in range(products): torch.mm(a, b, out=c)
            m[1].record()
            if mixed:
                for _ in range(products * 6): torch.add(e, 1, out=o)
            m[2].record(); marks.append(m)
            if size: dist.all_reduce(parts[size])
            if i % 4 == 3: marks[i - 3][2].synchronize()
        torch.cuda.synchronize(); ended = time.time(); late = marks[len(marks) // 2:]
        out(part="links", mixed=mixed, bytes=size, every_ms=every_ms, rank=rank, began=round(begun, 2), ended=round(ended, 2), products=products,
            product_us=round(1e3 * sum(x.elapsed_time(y) for x, y, _ in late) / len(late) / products, 2), addition_us=round(1e3 * sum(y.elapsed_time(z) for _, y, z in late) / len(late) / products / 6, 2) if mixed else None)
    loop(False, 0, 5, 1.5)
    for mixed in (False, True):
        for size, every in ((0, 5), (16, 5), (0, 5), (2 ** 20, 5), (0, 5), (2 ** 24, 5), (0, 5), (2 ** 20, 20), (0, 5), (2 ** 26, 20), (0, 5), (2 ** 28, 20), (0, 5)):
            loop(mixed, size, every, 0.9)


def gaps(out, torch, dist, rank):
    small = torch.randn(2 ** 20, device="cuda", dtype=torch.bfloat16); o = torch.empty_like(small); event = lambda: torch.cuda.Event(enable_timing=True); tiny = torch.ones(8, device="cuda")
    lists = [torch.randn(2 ** 22, device="cuda", dtype=torch.bfloat16) for _ in range(40)]; high, low = torch.cuda.Stream(priority=-1), torch.cuda.Stream()
    def queued(f, n, how):
        took = []
        for _ in range(5):
            torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize(); torch.cuda._sleep(int(6e7)); begin, end = event(), event(); begin.record()
            later = event()
            if how == "collective": dist.all_reduce(tiny)
            for i in range(n): f()
            later.record()
            for s in dict(high=[high], low=[low], both=[high, low]).get(how, []):
                with torch.cuda.stream(s): s.wait_event(later); torch.add(small, 1)
            end.record(); torch.cuda.synchronize(); took.append(1e3 * begin.elapsed_time(end) / n)
        return sorted(took)[2]
    from torch.profiler import profile, ProfilerActivity as PA
    for name, f, n in (("add", lambda: torch.add(small, 1, out=o), 400), ("list", lambda: torch._foreach_mul_(lists, 1.0), 30), ("memset", lambda: o.zero_(), 400)):
        for how in ("plain", "collective", "high", "low", "both", "plain"): out(part="gaps", name=name, how=how, rank=rank, us=round(queued(f, n, how), 3))
    def kernel(f):
        f(); torch.cuda.synchronize()
        with profile(activities=[PA.CUDA]) as p:
            torch.cuda._sleep(int(6e7))
            for _ in range(30): f()
            torch.cuda.synchronize()
        ks = sorted(((e.time_range.start, e.time_range.end) for e in p.events() if str(e.device_type).endswith("CUDA") and "spin" not in e.name and e.time_range.end - e.time_range.start > 0), key=lambda k: k[0])
        return [round(sum(b - a for a, b in ks) / len(ks), 3), round(sorted(y[0] - x[1] for x, y in zip(ks, ks[1:]))[len(ks) // 2], 3), len(ks)]
    for name, f in (("add", lambda: torch.add(small, 1, out=o)), ("list", lambda: torch._foreach_mul_(lists, 1.0))): out(part="kernels", name=name, rank=rank, us_gap_number=kernel(f))


def clock(out, torch, dist, rank):
    import torch.nn.functional as F
    B = dict(device="cuda", dtype=torch.bfloat16)
    a, b, c = (torch.randn(8192, 8192, **B) for _ in range(3)); x = torch.randn(8192, 18432, **B); y = torch.empty_like(x); z = torch.randn(8192, 18432, **B); w = torch.ones(18432, **B); h = torch.randn(4, 2048, 36, 128, **B); logits = torch.randn(2048, 49152, **B); wide = logits.float(); event = lambda: torch.cuda.Event(enable_timing=True)
    lists = [torch.rand(2 ** 22, **B) for _ in range(40)]; others = [torch.rand(2 ** 22, **B) for _ in range(40)]
    g = x.clone().requires_grad_(); r = F.gelu(g, approximate="tanh")
    kinds = dict(add=lambda: torch.add(x, z, out=y), gelu=lambda: F.gelu(x, approximate="tanh"), gelu_backward=lambda: torch.ops.aten.gelu_backward(z, x, approximate="tanh"), silu=lambda: F.silu(x), multiply=lambda: torch.mul(x, z, out=y), layer_norm=lambda: F.layer_norm(x, (18432,), w, w), dropout=lambda: F.dropout(x, .1),
                 transposed=lambda: h.transpose(1, 2).contiguous(), convert=lambda: x.float(), cat=lambda: torch.cat([x, z], -1), copy=lambda: y.copy_(x), sum=lambda: x.sum(0), softmax=lambda: torch.log_softmax(wide, -1), lerp=lambda: torch._foreach_lerp_(lists, others, .1), sqrt=lambda: torch._foreach_sqrt(lists), addcmul=lambda: torch._foreach_addcmul_(lists, others, others, .5))
    def row(f, hot):
        torch.cuda.synchronize(); time.sleep(.03)
        f(); torch.cuda.synchronize()
        if hot:
            for _ in range(60): torch.mm(a, b, out=c)
        else: torch.cuda._sleep(int(2e7))
        ev = [event() for _ in range(25)]; ev[0].record()
        for i in range(24): f(); ev[i + 1].record()
        torch.cuda.synchronize()
        return [1e3 * s.elapsed_time(t) for s, t in zip(ev, ev[1:])]
    for name, f in kinds.items():
        for hot in (False, True):
            took = [row(f, hot) for _ in range(2)]
            out(part="clock", name=name, hot=hot, rank=rank, us=[round(min(t[i] for t in took), 1) for i in (1, 2, 3, 5, 8, 12, 18, 23)])


def zeros(out, torch, dist, rank):
    event = lambda: torch.cuda.Event(enable_timing=True)
    for dtype in (torch.bfloat16, torch.float32):
        for way in (dict(foreach=True), dict(fused=True)):
            for zero in (False, True):
                params = [torch.nn.Parameter(torch.randn(2 ** 23, device="cuda").to(dtype)) for _ in range(48)]
                for p in params: p.grad = torch.zeros_like(p) if zero else torch.randn_like(p)
                opt = torch.optim.AdamW(params, lr=1e-5, **way); opt.step(); opt.step(); torch.cuda.synchronize(); torch.cuda._sleep(int(3e7)); ev = [event() for _ in range(6)]; ev[0].record()
                for i in range(5): opt.step(); ev[i + 1].record()
                torch.cuda.synchronize(); out(part="zeros", dtype=str(dtype), zero=zero, rank=rank, elements=48 * 2 ** 23, ms=round(min(s.elapsed_time(t) for s, t in zip(ev, ev[1:])), 3), **way); del params, opt


def work(rank, folder, port, end):
    import torch, torch.distributed as dist
    two_cards.join(rank, 2, port); out = two_cards.Out(folder, "parts", rank, every=True)
    for part in (zeros, links, clock, gaps):
        if time.time() > end - 3: print("no time for", part.__name__, flush=True); break
        try: part(out, torch, dist, rank)
        except BaseException: print(part.__name__, rank, traceback.format_exc()[-600:], flush=True)
        if rank == 0: print(part.__name__, "%.1f" % (end - time.time()), flush=True)


def main():
    ap = argparse.ArgumentParser(); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=80); a = ap.parse_args(); end = time.time() + a.budget; os.makedirs(a.outdir, exist_ok=True)
    import torch
    pids = []
    for rank in range(3):
        pid = os.fork()
        if pid == 0:
            try: layout_turns.clocks(os.path.join(a.outdir, "clocks.jsonl"), end, 2) if rank == 2 else work(rank, a.outdir, 29795, end)
            except BaseException: print(rank, traceback.format_exc()[-700:], flush=True)
            os._exit(0)
        pids.append(pid)
    left = set(pids[:2])
    while left and time.time() < end + 5:
        left -= {p for p in left if os.waitpid(p, os.WNOHANG)[0]}
        time.sleep(.05)
    for p in [*left, pids[2]]: os.kill(p, 9); os.waitpid(p, 0)


if __name__ == "__main__": main()
