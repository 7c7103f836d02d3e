"""Microseconds of the host in torch's context parallelism, and of launches that block.

    host_context.py context OUTDIR      (2 GPUs) attention of small heads plain and under context_parallel, and its parts
    host_context.py blocking OUTDIR     (1 GPU; CUDA_LAUNCH_BLOCKING as the caller set it) operators, and tiny models
"""
import json, os, sys, time, traceback, warnings
import two_cards
warnings.filterwarnings("ignore")


def loops(f, times=40, rounds=5):
    """Microseconds of issuing f: the median of `rounds`, from an idle card."""
    import torch
    got = []
    for _ in range(3): f()
    for _ in range(rounds):
        torch.cuda.synchronize(); begin = time.perf_counter()
        for _ in range(times): f()
        got.append(1e6 * (time.perf_counter() - begin) / times); torch.cuda.synchronize()
    return round(two_cards.middle(got), 1)


def passes(f, inputs, times=24, rounds=5):
    """Microseconds of issuing f and its backward pass, which autograd's own thread runs."""
    import torch
    fs, bs = [], []
    for r in range(rounds + 1):
        torch.cuda.synchronize(); t0 = time.perf_counter(); outs = [f() for _ in range(times)]; t1 = time.perf_counter(); torch.cuda.synchronize()
        ones = torch.ones_like(outs[0]); torch.cuda.synchronize()
        t2 = time.perf_counter()
        for o in outs: torch.autograd.grad(o, inputs, ones)
        t3 = time.perf_counter(); torch.cuda.synchronize(); del outs
        if r: fs.append(1e6 * (t1 - t0) / times); bs.append(1e6 * (t3 - t2) / times)
    return dict(us=round(two_cards.middle(fs), 1), backward_us=round(two_cards.middle(bs), 1))


def context(rank, world, folder, end):
    import torch, torch.distributed as dist, torch.nn.functional as F
    import torch.distributed._functional_collectives as fc
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental import _attention as A
    import torch.distributed.tensor.experimental._context_parallel._attention as C
    two_cards.join(rank, world, 29791); out = two_cards.Out(folder, "host_context", rank)
    mesh = init_device_mesh("cuda", (world,)); group = mesh.get_group()
    tiny = torch.ones(8, device="cuda")
    out(name="device", gpu=torch.cuda.get_device_name(0), torch=torch.__version__, beside=two_cards.beside_of())
    B = dict(device="cuda", dtype=torch.bfloat16)
    for size in (2 ** 28, 436 * 10 ** 6, 2 ** 30, 2180 * 10 ** 6, 2 ** 32):  # bytes, as FSDP gathers and reduces embedding and head
        for name, f in two_cards.collectives_of(size, world, torch, dist).items():
            ms = []
            for r in range(6):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True); dist.barrier(); torch.cuda.synchronize()
                torch.cuda._sleep(int(2e6)); dist.all_reduce(tiny); a.record(); f(); b.record(); torch.cuda.synchronize(); ms.append(a.elapsed_time(b))
            out(name=name, bytes=size, ms=[round(t, 4) for t in ms[1:]])
    torch.cuda.empty_cache()
    e = torch.randn(64, device="cuda", requires_grad=True)
    out(name="add", **passes(lambda: e + e, [e]))
    x = torch.ones(2 ** 17, **B)
    for name, f in (("c10d all_reduce", lambda: dist.all_reduce(x)), ("permute and wait", lambda: fc.wait_tensor(fc.permute_tensor(x, [1, 0], group))), ("gather and wait", lambda: fc.wait_tensor(fc.all_gather_tensor(x, gather_dim=0, group=group))),
                    ("permute", lambda: fc.permute_tensor(x, [1, 0], group)), ("gather", lambda: fc.all_gather_tensor(x, gather_dim=0, group=group))):
        dist.barrier(); out(name=name, us=loops(f))
    for kind, heads, keys in (("few", 8, 8), ("shared", 16, 4)):
        q = torch.randn(1, heads, 512, 64, **B, requires_grad=True); k = torch.randn(1, keys, 512, 64, **B, requires_grad=True); v = torch.randn(1, keys, 512, 64, **B, requires_grad=True)
        more = dict(enable_gqa=True) if heads != keys else {}
        sdpa = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, **more)
        try: out(name="attention", kind=kind, way="plain", **passes(sdpa, [q, k, v]))
        except Exception: out(name="attention", kind=kind, way="plain", error=traceback.format_exc()[-400:])
        for way, method in (("ring", "alltoall"), ("all-gather", "allgather")):
            A.set_rotate_method(method); dist.barrier()
            try:
                ids = torch.ones(1, 1024, device="cuda", dtype=torch.long)
                with context_parallel(mesh, buffers=[ids], buffer_seq_dims=[1]): out(name="attention", kind=kind, way=way, **passes(sdpa, [q, k, v]))
                if kind != "few": continue
                with torch.no_grad():
                    out(name="template", way=way, us=loops(lambda: C._templated_ring_attention(group, 2, torch.ops.aten._scaled_dot_product_cudnn_attention, query=q, key=k, value=v, attn_bias=None, compute_log_sumexp=True, dropout_p=0.0, is_causal=True, return_debug_mask=False, scale=None)))
                def enter():
                    with context_parallel(mesh, buffers=[ids], buffer_seq_dims=[1]): pass
                out(name="enter", way=way, us=loops(enter, 10))
            except Exception: out(name="attention", kind=kind, way=way, error=traceback.format_exc()[-600:])
    q = torch.randn(1, 8, 512, 64, **B, requires_grad=True); placement = [Shard(2)]
    out(name="from_local and to_local", **passes(lambda: DTensor.from_local(q, mesh, placement, run_check=False).to_local(), [q]))
    with torch.no_grad(): out(name="from_local", us=loops(lambda: DTensor.from_local(q, mesh, placement, run_check=False)))


def blocking(folder):
    import torch, torch.nn.functional as F
    two = os.environ.get("CUDA_LAUNCH_BLOCKING", "0"); out = two_cards.Out(folder, "blocking", 0)
    e = torch.randn(64, device="cuda"); o = torch.empty_like(e); big = torch.randn(2 ** 24, device="cuda"); to = torch.empty_like(big)
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16); c = torch.empty_like(a)
    out(name="device", blocking=two, gpu=torch.cuda.get_device_name(0), cores=os.cpu_count())
    out(name="add of 64", blocking=two, us=loops(lambda: torch.add(e, 1, out=o), 400))
    def whole(f, times=200):
        """Microseconds of each, with the card's."""
        got = []
        for _ in range(3): f()
        for _ in range(5):
            torch.cuda.synchronize(); begin = time.perf_counter()
            for _ in range(times): f()
            torch.cuda.synchronize(); got.append(1e6 * (time.perf_counter() - begin) / times)
        return round(two_cards.middle(got), 2)
    for name, f in (("add of 64", lambda: torch.add(e, 1, out=o)), ("add of 16M", lambda: torch.add(big, 1, out=to)), ("product of 2048", lambda: torch.mm(a, a, out=c)), ("copy of 16M", lambda: to.copy_(big)), ("fill of 64", lambda: o.zero_())):
        out(name=name, blocking=two, whole_us=whole(f))
    out(name="models", blocking=two, beside=two_cards.beside_of())


if __name__ == "__main__":
    if sys.argv[1] == "context":
        import torch, transformers, torch.distributed.tensor.experimental
        two_cards.part(context, 2, sys.argv[2], 40, time.time() + 40)
    else: blocking(sys.argv[2])
