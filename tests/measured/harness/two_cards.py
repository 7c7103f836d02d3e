"""Two cards of one host: collectives beside kernels, small collectives, FSDP2's prefetch in backward, then steps of whole layouts.

    two_cards.py CASES.jsonl OUTDIR --budget SECONDS

Writes each result as soon as it is there: OUTDIR/messages.jsonl (small collectives between kernels, and from an idle card),
beside.jsonl (kernels beside collectives and collectives beside kernels), prefetch.jsonl (steps of a LLaMA of wide layers under
FSDP2, as torch has it and without its prefetch in backward), rows.RANK.jsonl (the cases, by measure_parallel.py), timelines.jsonl
(kernels of a step, zlib, base64: only after everything of that process was timed; timelines.1.jsonl of rank 1, whose "first" is of
the same clock). Each part has processes of its own.
"""
import argparse, base64, json, os, sys, time, traceback, warnings, zlib
import cases
import measure_parallel as MP
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 2 ** 20


def middle(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


class Out:
    """Rows of rank 0, or of each rank in a file of its own."""
    def __init__(self, folder, name, rank, every=False): self.path, self.rank, self.every = os.path.join(folder, name + (".%d" % rank if rank and every else "") + ".jsonl"), rank, every
    def __call__(self, **row):
        if self.rank != 0 and not self.every: return
        with open(self.path, "a") as f: f.write(json.dumps(row) + "\n")


def timeline(step, out, steps=1, **about):
    """Steps under the profiler, after one, the host not waiting between them: [launched, began, microseconds, stream, number of the name, blocks] of each kernel."""
    import torch
    from torch.profiler import profile, ProfilerActivity as PA
    step(); torch.cuda.synchronize()
    with profile(activities=[PA.CUDA]) as p:
        for _ in range(steps): step()
        torch.cuda.synchronize()
    tmp = "/tmp/trace-%d.json" % os.getpid(); p.export_chrome_trace(tmp); trace = json.load(open(tmp)); events = trace["traceEvents"]; os.remove(tmp)
    launched, kernels = {}, []
    for e in events:
        if e.get("ph") != "X": continue
        args = e.get("args", {})
        if e.get("cat") in ("cuda_runtime", "cuda_driver"): launched[args.get("correlation")] = e["ts"]
        elif e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            grid = args.get("grid", [0, 0, 0])
            kernels.append((args.get("correlation"), e["ts"], e["dur"], args.get("stream", -1), e["name"][:90], grid[0] * grid[1] * grid[2]))
    kernels.sort(key=lambda k: k[1])
    first = min([launched.get(k[0], k[1]) for k in kernels], default=0)
    names, rows = {}, []
    for c, ts, dur, stream, name, blocks in kernels:
        rows.append([round(launched.get(c, ts) - first, 1), round(ts - first, 1), round(dur, 1), stream, names.setdefault(name, len(names)), blocks])
    packed = base64.b64encode(zlib.compress(json.dumps(dict(names=list(names), kernels=rows), separators=(",", ":")).encode(), 9)).decode()
    out(**about, steps=steps, kernels=len(rows), first=trace.get("baseTimeNanoseconds", 0) / 1e3 + first, packed=packed)


def beside_of():
    """How many times as long as on the reference host tiny models take now: forward, backward."""
    from importlib.util import module_from_spec, spec_from_file_location
    spec = spec_from_file_location("of_host", os.path.join(HERE, "../../../python/memcalc/measure/_host.py"))
    host = module_from_spec(spec); sys.modules["of_host"] = host; spec.loader.exec_module(host)
    tiny = host.tiny_models()
    for each in tiny.values(): host.timed(*each, 3)
    return [round(f, 3) for f in host.factors_of({name: host.middle(host.timed(*each, 5)) for name, each in tiny.items()})]


def join(rank, world, port):
    import torch, torch.distributed as dist
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank); dist.init_process_group("nccl", device_id=torch.device("cuda", rank)); dist.barrier(); torch.cuda.synchronize()


def collectives_of(bytes_, world, torch, dist):
    """By name; `bytes_`: of the whole tensor."""
    n = bytes_ // 2
    whole = torch.ones(n, device="cuda", dtype=torch.bfloat16); part = torch.empty(n // world, device="cuda", dtype=torch.bfloat16)
    return dict(all_gather=lambda: dist.all_gather_into_tensor(whole, part), reduce_scatter=lambda: dist.reduce_scatter_tensor(part, whole), all_reduce=lambda: dist.all_reduce(whole))


def messages(rank, world, folder, end):
    """Small collectives: on the compute stream between two kernels with the host ahead, as DTensor issues them, and from an idle card."""
    import torch, torch.distributed as dist
    import torch.distributed._functional_collectives as fc
    join(rank, world, 29801); out = Out(folder, "messages", rank)
    e = torch.randn(2 ** 22, device="cuda"); o = torch.empty_like(e)
    kernel = lambda: torch.add(e, 1, out=o)
    event = lambda: torch.cuda.Event(enable_timing=True)
    tiny = torch.ones(8, device="cuda")

    def queued(f, times=20):
        """Microseconds of a kernel and f, the host being ahead of the card."""
        for _ in range(3): kernel(); f()
        torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize()
        torch.cuda._sleep(int(8e6)); dist.all_reduce(tiny); a, b = event(), event(); a.record(); begin = time.perf_counter()
        for _ in range(times): kernel(); f()
        issue = (time.perf_counter() - begin) / times; b.record(); torch.cuda.synchronize()
        return 1e3 * a.elapsed_time(b) / times, 1e6 * issue
    alone, _ = queued(lambda: None)
    out(name="nothing", us=round(alone, 2), gpu=torch.cuda.get_device_name(0), nccl=".".join(map(str, torch.cuda.nccl.version())), env={k: v for k, v in os.environ.items() if k.startswith("NCCL")})
    for log in range(12, 26):
        if time.time() > end: return
        size = 2 ** log; made = collectives_of(size, world, torch, dist)
        x = torch.ones(size // 2, device="cuda", dtype=torch.bfloat16); group = dist.group.WORLD
        made["functional_all_reduce"] = lambda: fc.wait_tensor(fc.all_reduce(x, "sum", group))
        made["async_all_reduce"] = lambda: dist.all_reduce(x, async_op=True).wait()
        for name, f in made.items():
            us, issue = queued(f)
            idle = []
            if log % 2 == 0:
                for _ in range(9):
                    torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize(); begin = time.perf_counter(); f(); torch.cuda.synchronize(); idle.append(time.perf_counter() - begin)
            out(name=name, bytes=size, us=round(us - alone, 2), issue_us=round(issue, 1), from_idle_us=round(1e6 * middle(idle), 1) if idle else None)
    # passing on, as a pipeline does
    for log in (12, 16, 20, 22, 24, 26):
        x = torch.ones(2 ** log // 2, device="cuda", dtype=torch.bfloat16)
        us, issue = queued(lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0))
        out(name="send", bytes=2 ** log, us=round(us - alone, 2), issue_us=round(issue, 1))
    grids = Out(folder, "timelines", rank)
    for log in (12, 16, 20, 22, 24, 26, 28):
        made = collectives_of(2 ** log, world, torch, dist)
        timeline(lambda: [f() for f in made.values() for _ in range(3)], grids, part="messages", bytes=2 ** log)


def beside(rank, world, folder, end):
    """Kernels on the compute stream and collectives on a stream of high priority, as FSDP2 has them, each alone and both at once."""
    import torch, torch.distributed as dist, torch.nn.functional as F
    join(rank, world, 29802); out = Out(folder, "beside", rank)
    B = dict(device="cuda", dtype=torch.bfloat16)
    square = torch.randn(4096, 4096, **B); small = torch.randn(2048, 2048, **B); tokens = torch.randn(8192, 4096, **B); wide = torch.randn(4096, 14336, **B); up = torch.empty(8192, 14336, **B)
    s1, s2 = torch.empty_like(square), torch.empty_like(small)
    many = torch.randn(2 ** 27, **B); more = torch.empty_like(many); weight = torch.ones(4096, **B); q = torch.randn(4, 32, 2048, 128, **B)
    kernels = dict(product_4096=lambda: torch.mm(square, square, out=s1), product_2048=lambda: torch.mm(small, small, out=s2), product_8192_14336_4096=lambda: torch.mm(tokens, wide, out=up),
                   add_128m=lambda: torch.add(many, 1, out=more), gelu_32m=lambda: F.gelu(tokens), rms_norm=lambda: F.rms_norm(tokens, (4096,), weight), attention=lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    side = torch.cuda.Stream(priority=-1); event = lambda: torch.cuda.Event(enable_timing=True); tiny = torch.ones(8, device="cuda")

    def both(kernel, collective, n, k):
        """Microseconds of each kernel and of each collective, and the two windows."""
        torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize()
        marks, others = [event() for _ in range(n + 1)], [event() for _ in range(k + 1)]
        torch.cuda._sleep(int(1.2e7)); dist.all_reduce(tiny); start = event(); start.record(); side.wait_event(start)
        marks[0].record()
        with torch.cuda.stream(side):
            others[0].record()
            for i in range(k): collective(); others[i + 1].record()
        for i in range(n): kernel(); marks[i + 1].record()
        torch.cuda.synchronize()
        at = lambda e: 1e3 * start.elapsed_time(e)
        return [at(e) for e in marks], [at(e) for e in others]
    spans = lambda ends: [b - a for a, b in zip(ends, ends[1:])]
    within = lambda ends, window: [b - a for a, b in zip(ends[1:], ends[2:]) if a >= window[0] and b <= window[1]]  # the first began with the other
    alone = {}
    for name, f in kernels.items():
        both(f, None, 5, 0); got = spans(both(f, None, 40, 0)[0])[2:]; alone[name] = middle(got); out(kernel=name, alone_us=round(alone[name], 2))
    for size in (1, 4, 16, 64, 256, 512):
        made = collectives_of(size * MIB, world, torch, dist)
        for kind, c in made.items():
            both(None, c, 0, 3); got = spans(both(None, c, 0, 12)[1])[2:]; lone = middle(got)
            out(collective=kind, mib=size, alone_us=round(lone, 2))
            for name, f in kernels.items():
                if time.time() > end: return
                if size in (1, 4) and name in ("gelu_32m", "attention", "product_8192_14336_4096"): continue
                window = min(9000, max(2500, 5 * lone)); k = max(4, min(40, int(window / lone))); n = max(6, min(160, int(1.6 * k * lone / alone[name])))
                ends, others = both(f, c, n, k)
                inside, beside_it = within(ends, (others[0], others[-1])), within(others, (ends[0], ends[-1]))
                out(kernel=name, collective=kind, mib=size, kernel_us=middle(inside) and round(middle(inside), 2), kernels=len(inside), kernel_mean_us=inside and round(sum(inside) / len(inside), 2),
                    collective_us=middle(beside_it) and round(middle(beside_it), 2), collectives=len(beside_it), collective_mean_us=beside_it and round(sum(beside_it) / len(beside_it), 2))


def prefetch(rank, world, folder, end):
    """FSDP2's steps of a LLaMA with a 70B's layers, as torch has them and without the gathers that backward issues ahead."""
    import torch, torch.distributed as dist, transformers as tf
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    join(rank, world, 29803); out, lines = Out(folder, "prefetch", rank), Out(folder, "timelines", rank)
    config = json.load(open(os.path.join(HERE, "two_cards_prefetch.json")))
    with torch.device("cuda"): model = tf.LlamaForCausalLM._from_config(tf.LlamaConfig(**{k: v for k, v in config.items() if k != "model_type"}), dtype=torch.bfloat16, attn_implementation="sdpa").train()
    for layer in model.model.layers: fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    ahead = FSDPParamGroup._backward_prefetch
    out(host=beside_of())
    shapes = [(1, 256), (1, 1024), (1, 2048), (2, 4096)]
    for profiles in (False, True):
        for b, s in shapes:
            ids = torch.randint(1, 90, (b, s), device="cuda")
            def step():
                optimizer.zero_grad(set_to_none=True); loss = model(input_ids=ids, labels=ids).loss; loss.backward(); optimizer.step()
            for on in (True, False):
                if time.time() > end: return
                if profiles and (b, s) == (1, 1024): continue
                FSDPParamGroup._backward_prefetch = ahead if on else lambda self: None
                if profiles: timeline(step, lines, part="prefetch", batch=b, length=s, ahead=on); continue
                step()
                torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize()
                n = 8 if b * s < 8192 else 5; ev = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]; ev[0].record(); begin = time.perf_counter()
                for i in range(n): step(); ev[i + 1].record()
                issue = (time.perf_counter() - begin) / n; torch.cuda.synchronize()
                took = [a.elapsed_time(c) for a, c in zip(ev, ev[1:])]
                # forward and backward apart, the host waiting between them
                parts = []
                for _ in range(3):
                    optimizer.zero_grad(set_to_none=True); dist.barrier(); torch.cuda.synchronize(); t0 = time.perf_counter(); loss = model(input_ids=ids, labels=ids).loss; torch.cuda.synchronize()
                    t1 = time.perf_counter(); loss.backward(); t2 = time.perf_counter(); torch.cuda.synchronize(); t3 = time.perf_counter(); parts.append((t1 - t0, t3 - t1, t2 - t1)); del loss
                out(batch=b, length=s, ahead=on, step_ms=[round(t, 3) for t in took], issue_ms=round(1e3 * issue, 2), forward_ms=round(1e3 * middle([p[0] for p in parts]), 2),
                    backward_ms=round(1e3 * middle([p[1] for p in parts]), 2), backward_issue_ms=round(1e3 * middle([p[2] for p in parts]), 2))


def part(f, world, folder, limit, end):
    """In a process for each rank."""
    begun, pids = time.time(), []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            try: f(rank, world, folder, min(end, begun + limit))
            except BaseException: print(f.__name__, rank, traceback.format_exc()[-900:], flush=True)
            os._exit(0)
        pids.append(pid)
    left = set(pids)
    while left and time.time() < min(end, begun + limit) + 8:
        left -= {p for p in left if os.waitpid(p, os.WNOHANG)[0]}
        time.sleep(.05)
    for p in left: os.kill(p, 9); os.waitpid(p, 0); print("killed", f.__name__, flush=True)
    print(f.__name__, "%.1f s" % (time.time() - begun), flush=True)


def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=240); ap.add_argument("--parts", default="messages,beside,prefetch,cases"); ap.add_argument("--after", help="a file that says when to begin")
    a = ap.parse_args(); begun = time.time(); end = begun + a.budget; os.makedirs(a.outdir, exist_ok=True)
    import torch, transformers, peft, torch.distributed.fsdp, torch.distributed.tensor.parallel, torch.distributed.pipelining, torch.distributed.optim, torch.distributed.tensor.experimental
    import torch.distributed._functional_collectives
    from importlib import import_module
    waiting = [dict(c, port=29820 + i) for i, c in enumerate(cases.read(a.cases))]
    import models
    of = lambda c: c.get("config") or models.MODELS[c["model"]][1]  # torchvision's are names
    for kind in sorted({of(c)["model_type"] for c in waiting if not isinstance(of(c), str)} | {"llama", "bert", "gpt2"}):
        import_module("transformers.models.%s.modeling_%s" % (kind, kind))
    if any(isinstance(of(c), str) for c in waiting): import_module("torchvision")
    if any(c.get("loop") == "trainer" for c in waiting): import_module("transformers").Trainer
    print("imports %.1f" % (time.time() - begun), flush=True)
    while a.after and not os.path.exists(a.after): time.sleep(.05)
    parts = a.parts.split(",")
    if "messages" in parts: part(messages, 2, a.outdir, 16, end)
    if "prefetch" in parts: part(prefetch, 2, a.outdir, 44, end)
    if "beside" in parts: part(beside, 2, a.outdir, 26, end)
    for c in waiting if "cases" in parts else []:
        if time.time() > end - 8: print("no time for", c["id"], flush=True); continue
        run = MP.start(c, a.outdir)
        while not MP.ended(run): time.sleep(.05)
    print("all %.1f" % (time.time() - begun), flush=True)


if __name__ == "__main__": main()
