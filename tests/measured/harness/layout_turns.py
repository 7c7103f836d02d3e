"""Layouts of one model on two cards in turns: one process a card goes through all of them, backward in every second turn, so that
what the machine does for a while falls on all alike and the order is that of medians whose own wander is known.

    layout_turns.py CASES.jsonl OUTDIR [--turns N] [--budget SECONDS] [--port N]

The cases are those of measure_parallel.py (plain loops: one card, DDP, ZeRO-1, FSDP1, FSDP2, tensor parallelism). OUTDIR/turns.RANK.jsonl gets a line for
each layout and turn, with the peaks of its first steps in the first turn; OUTDIR/timelines.RANK.jsonl the kernels of cases that say
"trace_step", after the last turn; OUTDIR/clocks.jsonl, by a process of its own, the clock and power of each card every 20 ms.
"""
import argparse, gc, json, os, sys, time, traceback, warnings
import cases, two_cards
import measure_parallel as MP
warnings.filterwarnings("ignore")


def clocks(path, end, cards):
    import pynvml as N
    N.nvmlInit(); handles = [N.nvmlDeviceGetHandleByIndex(i) for i in range(cards)]
    def power(h):  # now, not the mean of a second
        try: return N.nvmlDeviceGetFieldValues(h, [186])[0].value.uiVal / 1e3
        except Exception: return N.nvmlDeviceGetPowerUsage(h) / 1e3
    with open(path, "w") as f:
        while time.time() < end:
            f.write(json.dumps([round(time.time(), 3)] + [[N.nvmlDeviceGetClockInfo(h, N.NVML_CLOCK_SM), round(power(h))] for h in handles]) + "\n"); time.sleep(.02)


def wrapped(case, rank, m, torch):
    """The module that runs, and its optimizer."""
    mode = "none" if case["gpus"] == 1 else cases.parallel_of(case); run = m
    if mode in ("ddp", "zero1"): run = torch.nn.parallel.DistributedDataParallel(m, device_ids=[rank])
    elif mode == "fsdp2": MP.shard(m, case, None, torch)
    elif mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        run = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({type(MP.layers_of(m)[0])}), device_id=rank, use_orig_params=True, sharding_strategy=ShardingStrategy.FULL_SHARD)
    elif mode == "tp":
        from torch.distributed.device_mesh import init_device_mesh
        MP.split_model(m, init_device_mesh("cuda", (2,)), case)
    elif mode != "none": raise ValueError(mode)
    params = list(run.parameters())
    if mode == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return run, ZeroRedundancyOptimizer(params, optimizer_class=torch.optim.AdamW, lr=1e-5)
    import measure as M
    return run, M.make_opt(case, params)


def one(case, rank, turn, out, folder, torch, dist, profiled=False):
    import measure as M
    begun = time.time(); gc.collect(); torch.cuda.empty_cache(); base = torch.cuda.memory_allocated()
    m, batch, _, _ = M.build(case); m.train(); run, opt = wrapped(case, rank, m, torch); del m
    accum = case.get("accumulation_steps", 1)
    def step():
        opt.zero_grad(set_to_none=True)
        for _ in range(accum): loss = run(**batch).loss; (loss / accum if accum > 1 else loss).backward(); del loss
        opt.step()
    gc.collect(); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
    for _ in range(2 if turn == 0 else 1): step()
    torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize()
    if profiled: return two_cards.timeline(step, two_cards.Out(folder, "timelines", rank, every=True), steps=3, part="turns", id=case["id"])
    t = time.time(); step(); torch.cuda.synchronize(); taken = torch.tensor([time.time() - t], device="cuda"); dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    peaks = dict(peak_allocated=torch.cuda.max_memory_allocated() - base, peak_reserved=torch.cuda.max_memory_reserved(), base=base) if turn == 0 else {}
    n = max(5, int(case["time_s"] / taken.item())); ev = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    dist.barrier(); torch.cuda.synchronize(); at = time.time(); ev[0].record(); begin = time.perf_counter()
    for i in range(n): step(); ev[i + 1].record()
    issue = (time.perf_counter() - begin) / n; torch.cuda.synchronize()
    took = [round(a.elapsed_time(b), 2) for a, b in zip(ev, ev[1:])]
    out(**cases.head(case), rank=rank, turn=turn, gpu=torch.cuda.get_device_name(0), step_ms=took, step_ms_median=sorted(took)[n // 2], issue_ms=round(1e3 * issue, 2), began=round(at, 2), ended=round(time.time(), 2), whole_s=round(time.time() - begun, 2), **peaks)


def turns(rank, world, folder, found, count, port, end):
    import torch, torch.distributed as dist
    two_cards.join(rank, world, port); out = two_cards.Out(folder, "turns", rank, every=True)
    out(beside=two_cards.beside_of(), rank=rank)
    waiting = [(c, turn, False) for turn in range(count) for c in (found if turn % 2 == 0 else found[::-1])] + [(c, count, True) for c in found if c.get("trace_step")]
    for c, turn, profiled in waiting:
        late = torch.tensor([float(time.time() > end)], device="cuda"); dist.all_reduce(late, op=dist.ReduceOp.MAX)
        if late.item(): print("no time for turn", turn, "from", c["id"], flush=True); break
        try: one(c, rank, turn, out, folder, torch, dist, profiled)
        except BaseException: print(c["id"], rank, traceback.format_exc()[-700:], flush=True); break
        if rank == 0: print("%s %d %.0f" % (c["id"], turn, time.time()), flush=True)
    out(beside=two_cards.beside_of(), rank=rank)


def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("outdir"); ap.add_argument("--turns", type=int, default=3); ap.add_argument("--budget", type=float, default=120); ap.add_argument("--port", type=int, default=29790)
    a = ap.parse_args(); end = time.time() + a.budget; os.makedirs(a.outdir, exist_ok=True)
    import torch, transformers, torch.distributed.fsdp, torch.distributed.optim, torch.distributed.tensor.parallel
    from importlib import import_module
    import models
    found = cases.read(a.cases)
    for kind in {models.MODELS[c["model"]][1]["model_type"] for c in found} | {"llama", "bert", "gpt2"}: import_module("transformers.models.%s.modeling_%s" % (kind, kind))
    print("imports %.1f" % (a.budget - end + time.time()), flush=True)
    pids = []
    for rank in range(3):
        pid = os.fork()
        if pid == 0:
            try: clocks(os.path.join(a.outdir, "clocks.jsonl"), end, 2) if rank == 2 else turns(rank, 2, a.outdir, found, a.turns, a.port, end - 4)
            except BaseException: print(rank, traceback.format_exc()[-700:], flush=True)
            os._exit(0)
        pids.append(pid)
    left = set(pids[:2])
    while left and time.time() < end + 10:
        left -= {p for p in left if os.waitpid(p, os.WNOHANG)[0]}
        time.sleep(.05)
    for p in [*left, pids[2]]: os.kill(p, 9); os.waitpid(p, 0)


if __name__ == "__main__": main()
