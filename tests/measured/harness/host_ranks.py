"""Two cards of one host: full-size steps under DDP, FSDP 2 and FSDP 1 as timelines of each rank, beside the same model alone;
the host's clock by layer on both ranks. usage: host_ranks.py OUTDIR SECONDS"""
import os, sys, time, traceback, warnings
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0, HERE)
import cases
from host_clock import *
DIR, BUDGET, START = sys.argv[1], float(sys.argv[2]), time.time()
left = lambda: BUDGET - (time.time() - START)
LLAMA = dict(model="llama-3.2-1b", batch_size=2, sequence_length=2048); XL = dict(model="gpt2-xl", batch_size=1, sequence_length=1024, precision="bf16")
CASES = [dict(XL, id="gpt2xl-alone", gpus=1), dict(XL, id="gpt2xl-ddp", gpus=2, parallel="ddp"),
         dict(LLAMA, id="llama1b-fsdp2-mp", gpus=2, parallel="fsdp2", precision="fp32", fsdp_param_dtype="bf16", fsdp_reduce_dtype="fp32"), dict(LLAMA, id="llama1b-alone-bf16", gpus=1, precision="bf16"),
         dict(LLAMA, id="llama1b-ddp-bf16", gpus=2, parallel="ddp", precision="bf16"), dict(LLAMA, id="llama1b-fsdp2-mp-ckpt", gpus=2, parallel="fsdp2", precision="fp32", fsdp_param_dtype="bf16", fsdp_reduce_dtype="fp32", checkpointing="full"),
         dict(LLAMA, id="llama1b-fsdp1-mp", gpus=2, parallel="fsdp1", precision="fp32", fsdp_param_dtype="bf16", fsdp_reduce_dtype="fp32")]


def run_case(case, rank, world):
    import torch, torch.distributed as dist, measure as M
    out = Out(os.path.join(DIR, f"dist.{rank}.jsonl"))
    gc.collect(); torch.cuda.empty_cache()
    m, batch, cfg, task = M.build(case); m.train(); mode = case.get("parallel", "none"); run = m
    layers = m.model.layers if hasattr(m, "model") else m.transformer.h
    if mode == "ddp": run = torch.nn.parallel.DistributedDataParallel(m, device_ids=[rank])
    elif mode == "fsdp2":
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
        kw = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
        for l in layers: fully_shard(l, **kw)
        fully_shard(m, **kw)
    elif mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        run = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({type(layers[0])}), device_id=rank, use_orig_params=True, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    opt = torch.optim.AdamW([p for p in run.parameters() if p.requires_grad], lr=1e-5)
    def full():
        opt.zero_grad(set_to_none=True); l = run(**batch).loss; l.backward(); del l; opt.step()
    for _ in range(2): full()
    torch.cuda.synchronize(); dist.barrier()
    steps = [event_fixed(full, 8), event_fixed(full, 8)]
    marks, rows = [], []
    hooks = [l.register_forward_pre_hook(lambda *a: marks.append(time.perf_counter())) for l in layers]
    for _ in range(5):
        marks.clear(); full(); rows.append([round(1e6 * (b - a)) for a, b in zip(marks, marks[1:])])
        torch.cuda.synchronize()
    for h in hooks: h.remove()
    dist.barrier(); host = host_phases(run, batch, opt, None, 5, 1); dist.barrier()
    t = timeline(full, os.path.join(DIR, f"{case['id']}.{rank}.timeline.json.gz"))
    out(**cases.head(case), kind="step", rank=rank, steps=steps, host=host, layers_us=rows, timeline=t)
    dist.barrier(); del run, m, opt, batch, layers


def event_fixed(full, n):
    import torch
    ev = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]; torch.cuda.synchronize(); ev[0].record(); t = time.perf_counter()
    for i in range(n): full(); ev[i + 1].record()
    issued = time.perf_counter() - t; torch.cuda.synchronize(); ts = sorted(ev[i].elapsed_time(ev[i + 1]) for i in range(n))
    return dict(median_ms=round(ts[n // 2], 2), least_ms=round(ts[0], 2), most_ms=round(ts[-1], 2), issue_ms=round(1e3 * issued / n, 2))


def rank_main(rank, world):
    import torch, torch.distributed as dist
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT="29633")
    torch.cuda.set_device(rank); dist.init_process_group("nccl", device_id=torch.device("cuda", rank)); dist.barrier()
    out = Out(os.path.join(DIR, f"dist.{rank}.jsonl")); clock = torch.zeros(1, device="cuda")
    for case in CASES:
        clock.fill_(left()); dist.broadcast(clock, 0)  # all ranks agree
        if clock.item() < 12: break
        t = time.time()
        try: run_case(case, rank, world)
        except BaseException: out(**cases.head(case), kind="error", trace=traceback.format_exc()[-900:]); raise
        if rank == 0: print(case["id"], round(time.time() - t, 1), flush=True)
    out(kind="done", seconds=round(time.time() - START, 1)); os._exit(0)


def main():
    import torch, transformers, torch.distributed.fsdp
    import transformers.models.auto.modeling_auto, transformers.models.llama.modeling_llama, transformers.models.gpt2.modeling_gpt2
    pids = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            try: rank_main(rank, 2)
            except BaseException: traceback.print_exc()
            os._exit(1)
        pids.append(pid)
    while pids and left() > 0:
        pids = [p for p in pids if os.waitpid(p, os.WNOHANG)[0] == 0]; time.sleep(.05)
    for p in pids: os.kill(p, 9); os.waitpid(p, 0); print("killed", flush=True)


if __name__ == "__main__": main()
