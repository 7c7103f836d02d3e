"""Plain loops whose layers are compiled one by one (torch.compile of each, as accelerate's regional compilation), on one
card or, with "gpus", one rank of torch's fake process group (fully_shard of each compiled layer and of the model). A case
(cases.py) is as in measure.py; without "use_cache" config.use_cache is off. Its harness's "history": the allocator's events
are written.
One process a case, eight at a time.
usage: measure_compiled_layers.py CASES.jsonl OUTDIR --budget SECONDS"""
import argparse, gc, json, os, subprocess, sys, time, traceback
import cases

def run_case(case, outdir):
    import torch, measure, measure_titan
    from torch._dynamo.utils import counters
    build = case if case.get("use_cache") else dict(case, config={"use_cache": False})
    world, history, prec = case.get("gpus", 1), case.get("history", False), case["precision"]
    if world > 1:
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    torch.zeros(1, device="cuda"); torch.backends.cudnn.allow_tf32 = False
    A, R, P = torch.cuda.memory_allocated, torch.cuda.memory_reserved, torch.cuda.max_memory_allocated
    base = A(); marks = []
    if history: torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=10**6)
    m, batch, _, _ = measure.build(build)
    compiled = []
    for modules in m.modules():
        if not isinstance(modules, torch.nn.ModuleList): continue
        for name, layer in list(modules.named_children()):
            if not type(layer).__name__.endswith(("Layer", "Block")): continue
            modules[int(name)] = torch.compile(layer); compiled.append(modules[int(name)])
    r = dict(cases.head(case), gpu=torch.cuda.get_device_name(0), params=sum(p.numel() for p in m.parameters()), compiled=len(compiled))
    if world > 1:
        from torch.distributed.fsdp import fully_shard
        for x in compiled + [m]: fully_shard(x)
    m.train(); gc.collect(); torch.cuda.empty_cache()
    opt = measure.make_opt(case, list(m.parameters()))
    scaler = torch.amp.GradScaler("cuda", enabled=prec == "amp-fp16")
    amp = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(prec)
    phases = []
    def phase(step, name, f):
        torch.cuda.reset_peak_memory_stats(); before = A()
        x = f(); torch.cuda.synchronize()
        phases.append([step, name, before - base, P() - base, A() - base, R()])
        if history: marks.append([len(torch.cuda.memory._snapshot()["device_traces"][0]), name, step])
        return x
    def forward():
        with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None): return m(**batch).loss
    def step_optimizer(): scaler.step(opt); scaler.update()
    for step in range(3):
        opt.zero_grad()
        loss = phase(step, "forward", forward); phase(step, "backward", lambda: scaler.scale(loss).backward()); del loss
        phase(step, "optimizer", step_optimizer)
    r.update(graphs=counters["stats"]["unique_graphs"], breaks=dict(counters["graph_break"]), phases=phases,
             peak_allocated=max(x[3] for x in phases), peak_reserved=max(x[5] for x in phases))
    if history: measure_titan.write_history(case, marks, r, outdir, torch)
    return r

def run_one(case, outdir):
    try: r = run_case(case, outdir)
    except BaseException as e: r = dict(cases.head(case), error=repr(e)[:600], tb=traceback.format_exc()[-2500:])
    with open(os.path.join(outdir, "rows.jsonl"), "a") as f: f.write(json.dumps(r) + "\n")
    print(case["id"], r.get("error") or (r["peak_allocated"], r["peak_reserved"], r["graphs"]), flush=True); os._exit(0)

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=330)
    ap.add_argument("--one", action="store_true"); a = ap.parse_args(); t0 = time.time()
    if a.one: return run_one(cases.flat(json.loads(a.cases)), a.outdir)
    os.makedirs(a.outdir, exist_ok=True)
    waiting = cases.read(a.cases); running = []
    while waiting or running:
        while waiting and len(running) < 8:
            running.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), json.dumps(cases.head(waiting.pop(0))), a.outdir, "--one"]))
        running = [p for p in running if p.poll() is None]
        if time.time() - t0 > a.budget:
            for p in running: p.kill()
            break
        time.sleep(.1)
if __name__ == "__main__": main()
