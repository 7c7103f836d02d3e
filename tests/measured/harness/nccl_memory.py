"""What NCCL takes of a card outside of PyTorch's allocator: NVML's reading after every step of a sequence of process groups
and collectives, each sequence in fresh processes (one a rank), with NCCL's own log of its allocations beside it.
usage: nccl_memory.py OUTDIR --budget SECONDS [--only NAME]"""
import argparse, json, os, re, sys, time, traceback, warnings
warnings.filterwarnings("ignore")

K, M, G = 1 << 10, 1 << 20, 1 << 30
# Tokens of a sequence: OP[:BYTES][@GROUP]. Groups: w (default), a, b, ... as they are made; "group=a", "split=a", "ones=a".
SEQUENCES = [
    ("collectives", 2, {}, "ctx init barrier ar:4 ar:64K ar:1M ar:16M ar:256M ag:64K ag:16M ag:256M rs:64K rs:16M rs:256M bc:64K bc:64M rd:64M a2a:64K a2a:16M a2a:256M"),
    ("sends", 2, {}, "ctx init barrier s01:1K s01:16M s01:256M s10:1K s10:256M sx:64M"),
    ("groups", 2, {}, "ctx init barrier ar:64M group=a group=b ar:4@a ar:64M@a ag:64M@a rs:64M@a s01:64M@a s10:64M@a ar:64M@b group=c ar:64M@c"),
    ("gather-first", 2, {}, "ctx init ag:256M rs:256M ar:256M"),
    ("sends-first", 2, {}, "ctx init s01:1K s01:256M s10:256M barrier ar:16M"),
    ("mesh12", 2, {}, "ctx init barrier mesh:1x2 ar:64M@m0 ar:64M@m1"),
    ("ones", 2, {}, "ctx init barrier ar:64M ones=a ar:64M@a ag:64M@a ones=b ar:64M@b"),
    ("split", 2, {}, "ctx init barrier ar:64M split=a ar:4@a ar:64M@a s01:64M@a split=b ar:64M@b"),
    ("bf16", 2, {}, "ctx init barrier ar:16M:bf16 rs:16M:bf16 ar:256M:bf16 rs:256M:bf16 ar:16M:fp32 avg:16M:bf16 avgrs:64M:fp32 avgrs:64M:bf16 max:4 min:4"),
    ("alone", 1, {}, "ctx init barrier ar:64M ag:64M rs:64M group=a ar:64M@a mesh:1 ar:64M@m0"),
    ("lazy", 2, {}, "ctx lazy barrier ar:16M s01:1K s01:16M s10:16M"),
    ("mesh21", 2, {}, "ctx init barrier mesh:2x1 ar:64M@m0 ar:64M@m1"),
    ("ctas-4", 2, {"NCCL_MAX_CTAS": "4"}, "ctx init barrier ar:64M ag:64M s01:64M s10:64M group=a ar:64M@a"),
    ("buffsize-1M", 2, {"NCCL_BUFFSIZE": "1048576"}, "ctx init barrier ar:64M ag:64M s01:64M s10:64M group=a ar:64M@a"),
    ("exchange-first", 2, {}, "ctx init sx:1K sx:256M a2a:64M"),
    ("connect-at-init", 2, {"NCCL_RUNTIME_CONNECT": "0"}, "ctx init barrier ar:64M s01:64M s10:64M group=a ar:64M@a"),
    ("no-cumem", 2, {"NCCL_CUMEM_ENABLE": "0"}, "ctx init barrier ar:64M s01:64M s10:64M group=a ar:64M@a"),
    ("groups-lazy", 2, {}, "ctx lazy barrier ar:64M group=a ar:4@a ar:64M@a ag:64M@a s01:64M@a group=b s01:64M@b ar:64M@b"),
    ("kernels", 2, {}, "ctx init barrier ar:64M mm:fp32 mm:bf16 sdpa conv"),
    ("mesh1", 2, {}, "ctx init barrier mesh:2 ar:64M@m0 mesh:2 ar:64M@m0"),
    ("mesh211", 2, {}, "ctx init barrier mesh:2x1x1 ar:64M@m0 ar:64M@m1 ar:64M@m2"),
    ("p2p-channels-4", 2, {"NCCL_MAX_P2P_NCHANNELS": "4"}, "ctx init barrier ar:64M s01:64M s10:64M"),
]

def size_of(t):
    n, unit = re.match(r"(\d+)([KMG]?)", t).groups(); return int(n) * {"": 1, "K": K, "M": M, "G": G}[unit]

def run(name, world, env, tokens, rank, port, outdir):
    os.environ.update(env, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ALLOC,P2P,GRAPH,ENV", NCCL_DEBUG_FILE=os.path.join(outdir, "log", "%s.%d.txt" % (name, rank)))
    import torch, torch.distributed as dist, pynvml
    pynvml.nvmlInit(); card = pynvml.nvmlDeviceGetHandleByIndex(rank); used = lambda: pynvml.nvmlDeviceGetMemoryInfo(card).used
    r = dict(name=name, world=world, rank=rank, env=env, torch=torch.__version__, steps=[]); groups = {"w": None}
    torch.cuda.set_device(rank); device = torch.device("cuda", rank); log = os.environ["NCCL_DEBUG_FILE"]
    def step(what):
        if torch.cuda.is_initialized(): torch.cuda.synchronize()
        free = torch.cuda.mem_get_info()[0] if torch.cuda.is_initialized() else 0
        line = sum(1 for _ in open(log, errors="replace")) if os.path.exists(log) else 0
        u = used(); reserved = torch.cuda.memory_reserved() if torch.cuda.is_initialized() else 0
        r["steps"].append([what, u, reserved, u - reserved, line])
    step("start")
    for token in tokens.split():
        where = token.partition("@"); g = groups[where[2] or "w"]; op, *args = re.split("[:=]", where[0])
        if op == "ctx": torch.zeros(1, device="cuda")
        elif op == "init": dist.init_process_group("nccl", device_id=device); r["nccl"] = torch.cuda.nccl.version()
        elif op == "lazy": dist.init_process_group("nccl"); r["nccl"] = torch.cuda.nccl.version()
        elif op == "barrier": dist.barrier(device_ids=[rank])
        elif op == "group": groups[args[0]] = dist.new_group(list(range(world)))
        elif op == "split": groups[args[0]] = dist.split_group(split_ranks=[list(range(world))])
        elif op == "ones":
            made = [dist.new_group([i]) for i in range(world)]; groups[args[0]] = made[rank]
        elif op == "mesh":
            from torch.distributed.device_mesh import init_device_mesh
            shape = tuple(int(x) for x in args[0].split("x")); names = tuple("d%d" % i for i in range(len(shape)))
            mesh = init_device_mesh("cuda", shape, mesh_dim_names=names)
            for i in range(len(shape)): groups["m%d" % i] = mesh.get_group(i)
        elif op in ("mm", "sdpa", "conv"):
            if op == "mm":
                t = {"fp32": torch.float32, "bf16": torch.bfloat16}[args[0]]; x = torch.ones(4096, 4096, device="cuda", dtype=t); x @ x; del x
            elif op == "sdpa": x = torch.ones(1, 8, 1024, 64, device="cuda", dtype=torch.bfloat16); torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True); del x
            else: x = torch.ones(8, 64, 56, 56, device="cuda"); torch.nn.functional.conv2d(x, torch.ones(64, 64, 3, 3, device="cuda")); del x
        else:
            n = size_of(args[0]); t = {"bf16": torch.bfloat16, "fp32": torch.float32}[args[1] if len(args) > 1 else "fp32"]
            n = max(n // torch.empty((), dtype=t).element_size(), 1); w = dist.get_world_size(g)
            n = max(n // w, 1) * w if op in ("ag", "rs", "a2a", "avgrs") else n
            x = torch.ones(n, device="cuda", dtype=t)
            if op in ("ar", "avg", "max", "min"): dist.all_reduce(x, group=g, op=dict(ar=dist.ReduceOp.SUM, avg=dist.ReduceOp.AVG, max=dist.ReduceOp.MAX, min=dist.ReduceOp.MIN)[op])
            elif op == "ag": dist.all_gather_into_tensor(x, x[:n // w].clone(), group=g)
            elif op in ("rs", "avgrs"): dist.reduce_scatter_tensor(torch.empty(n // w, device="cuda", dtype=t), x, group=g, op=dist.ReduceOp.AVG if op == "avgrs" else dist.ReduceOp.SUM)
            elif op == "bc": dist.broadcast(x, 0, group=g)
            elif op == "rd": dist.reduce(x, 0, group=g)
            elif op == "a2a": dist.all_to_all_single(torch.empty_like(x), x, group=g)
            elif op in ("s01", "s10"):
                src = int(op[1]); dist.send(x, 1 - src, group=g) if rank == src else dist.recv(x, src, group=g)
            elif op == "sx":
                y = torch.empty_like(x); q = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank, group=g), dist.P2POp(dist.irecv, y, 1 - rank, group=g)]); [z.wait() for z in q]; del y
            torch.cuda.synchronize(); del x; torch.cuda.empty_cache()
        step(token)
    return r

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=110); ap.add_argument("--only"); a = ap.parse_args(); t0 = time.time()
    os.makedirs(os.path.join(a.outdir, "log"), exist_ok=True)
    import torch, torch.distributed.device_mesh
    print("imports %.1f" % (time.time() - t0), flush=True)
    for i, (name, world, env, tokens) in enumerate(SEQUENCES):
        if a.only and a.only not in name: continue
        if time.time() - t0 > a.budget: print("budget spent before", name, flush=True); continue
        t = time.time(); pids = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                try: r = run(name, world, env, tokens, rank, 29500 + i, a.outdir)
                except BaseException as e: r = dict(name=name, rank=rank, error=repr(e)[:300], tb=traceback.format_exc()[-900:])
                with open(os.path.join(a.outdir, "nccl.%d.jsonl" % rank), "a") as f: f.write(json.dumps(r) + "\n")
                if rank == 0: print(name, r.get("error") or " ".join("%s %d" % (s[0], s[3] >> 20) for s in r["steps"]), flush=True)
                os._exit(0)
            pids.append(pid)
        deadline = time.time() + 15; left = set(pids)
        while left and time.time() < deadline:
            for p in list(left):
                if os.waitpid(p, os.WNOHANG)[0]: left.discard(p)
            time.sleep(.02)
        for p in left: os.kill(p, 9); os.waitpid(p, 0); print("killed", name, flush=True)
        print("   %.1fs" % (time.time() - t), flush=True)
if __name__ == "__main__": main()
