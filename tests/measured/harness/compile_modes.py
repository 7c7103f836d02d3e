"""Compiled steps on a card, with and without CUDA graphs: memory by step and phase, segments by pool, step time, kernels and launches.

usage: compile_modes.py draw SEED > CASES.jsonl
       compile_modes.py run CASES.jsonl OUT_DIR [--seconds LIMIT]
All cases compile side by side, each in a process of its own, as compiling is the host's work; a row's memory is its own
process's. Each then waits until all have, and times its steps alone. A row is written as soon as it is known; one that
comes before its time is known says so by "step_ms_median": null. The case whose harness says "history" leaves the
allocator's events of its first four steps in OUT_DIR/history.json.gz.
"""
import fcntl, gc, gzip, json, os, random, subprocess, sys, time, traceback

import cases

# (model, layers, batches, sequences): small enough that twelve fit on a card side by side.
POOL = [("bert-base", (4, 12), (8, 16, 32), (128, 256, 512)), ("bert-large", (6, 24), (4, 8), (128, 512)), ("roberta-base", (6, 12), (8, 32), (128, 384)),
        ("electra-base", (6, 12), (8, 16), (128, 512)), ("opt-125m", (6, 12), (4, 8), (512, 1024)), ("pythia-410m", (6, 12), (2, 4), (512, 1024)),
        ("llama-3.2-1b", (2, 4), (1, 2), (512, 1024)), ("qwen3-0.6b", (4, 14), (2, 4), (256, 512, 1024)), ("qwen2.5-0.5b", (6, 12), (1, 4), (512, 1024)),
        ("vit-base", (6, 12), (16, 32), (0,)), ("deit-base", (6, 12), (16, 32), (0,))]


def draw(seed, count=6):
    rng = random.Random(seed)
    for number, (model, layers, batches, sequences) in enumerate(rng.sample(POOL, count)):
        case = dict(model=model, layers=rng.choice(layers), batch_size=rng.choice(batches), precision=rng.choice(("fp32", "bf16", "amp-bf16")),
                    loop="bare", optimizer=rng.choice(("adamw", "adamw-fused")), accumulation_steps=1, max_grad_norm=rng.choice((0.0, 1.0)), compile=True)
        length = rng.choice(sequences)
        if length: case["sequence_length"] = length
        for mode in ("default", "reduce-overhead"):
            name = "-".join(str(p) for p in (model, f"{case['layers']}l", f"b{case['batch_size']}", f"s{length}" if length else "", case["precision"],
                                             "graphs" if mode != "default" else "compiled") if p)
            one = dict(case, id=name, compile_mode=mode)
            if number == 0 and mode != "default": one["history"] = True
            print(json.dumps(cases.head(one)))


def pools():
    """Bytes of the allocator's segments by (pool, stream), and how much of them is allocated."""
    import torch
    found = {}
    for segment in torch.cuda.memory_snapshot():
        key = f"{'private' if tuple(segment['segment_pool_id']) != (0, 0) else 'default'} {segment['stream'] != 0:d}"
        sums = found.setdefault(key, [0, 0, 0])
        sums[0] += segment["total_size"]
        sums[1] += segment["allocated_size"]
        sums[2] += 1
    return found


def profiled(step):
    """Of one step: kernels and their time, calls that launch kernels or graphs."""
    import torch
    from torch.profiler import profile, ProfilerActivity
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        step()
        torch.cuda.synchronize()
    kernels, calls, names = [0, 0.0], {}, {}
    for event in p.events():
        if str(event.device_type).endswith("CUDA"):
            if event.name.startswith(("Memset", "Memcpy")) or "ProfilerStep" in event.name: continue
            kernels[0] += 1
            kernels[1] += event.device_time_total
            one = names.setdefault(event.name[:60], [0, 0.0])
            one[0] += 1
            one[1] += event.device_time_total
        elif event.name.startswith(("cudaLaunch", "cuLaunch", "cudaGraphLaunch")):
            calls[event.name] = calls.get(event.name, 0) + 1
    most = sorted(names.items(), key=lambda item: -item[1][1])[:12]
    return dict(kernels=kernels[0], kernels_us=round(kernels[1], 1), calls=calls, most=[[n, c, round(t, 1)] for n, (c, t) in most])


def run(case, out, others):
    began = time.time()
    import torch
    import measure
    row = dict(cases.head(case), gpu=torch.cuda.get_device_name(0), torch=torch.__version__, step_ms_median=None)
    precision = case["precision"]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    amp = {"amp-bf16": torch.bfloat16}.get(precision)
    torch.zeros(1, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    allocated, peak, reserved = torch.cuda.memory_allocated, torch.cuda.max_memory_allocated, torch.cuda.memory_reserved
    base = allocated()
    model, batch, config, _ = measure.build(case)
    gc.collect()
    torch.cuda.empty_cache()
    row["attn_impl"] = getattr(config, "_attn_implementation", None)
    row["alloc_after_model_and_batch"] = allocated() - base
    row["params"] = sum(p.numel() for p in model.parameters())
    model.train()
    optimizer = measure.make_opt(case, [p for p in model.parameters() if p.requires_grad])
    mode = case["compile_mode"]
    compiled = torch.compile(model) if mode == "default" else torch.compile(model, mode=mode)

    def forward():
        with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
            output = compiled(**batch)
        return output.loss

    def update():
        if case["max_grad_norm"]: torch.nn.utils.clip_grad_norm_(model.parameters(), case["max_grad_norm"])
        optimizer.step()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        del loss
        update()

    phases, peaks = [], []
    if case.get("history"): torch.cuda.memory._record_memory_history(max_entries=400000, context=None, stacks="python")
    for number in range(5):
        optimizer.zero_grad(set_to_none=True)
        loss = None

        def phase(name, call):
            torch.cuda.reset_peak_memory_stats()
            before = allocated() - base
            made = call()
            torch.cuda.synchronize()
            phases.append([number, name, before, peak() - base, allocated() - base, reserved()])
            peaks.append((peak() - base, torch.cuda.max_memory_reserved()))
            return made
        loss = phase("forward", forward)
        phase("backward", loss.backward)
        del loss
        phase("optimizer", update)
        if number == 3 and case.get("history"):
            events = torch.cuda.memory._snapshot()["device_traces"][0]
            kept = [[e["action"], e["addr"], e["size"], e["stream"]] for e in events]
            with gzip.open(os.path.join(out, "history.json.gz"), "wt") as f: json.dump(kept, f)
            torch.cuda.memory._record_memory_history(enabled=None)
    row.update(phases=phases, peak_allocated=max(p for p, _ in peaks[:9]), peak_reserved=max(r for _, r in peaks[:9]), pools=pools(), wall_s=round(time.time() - began, 1))
    write(out, row)
    open(os.path.join(out, "ready." + case["id"]), "w").close()
    while time.time() - began < 80 and sum(n.startswith("ready.") for n in os.listdir(out)) < others: time.sleep(0.2)
    with open(os.path.join(out, "card.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        step()
        torch.cuda.synchronize()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(26)]
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        torch.cuda.synchronize()
        times = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
        row["step_ms_median"], row["step_ms_min"] = times[len(times) // 2], times[0]
        row["host_ms"] = {}
        for name in ("forward", "backward", "optimizer"): row["host_ms"][name] = []
        for _ in range(8):  # what the host needs to issue each phase
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            for name, call in (("forward", lambda: row.update(loss=forward())), ("backward", lambda: row.pop("loss").backward()), ("optimizer", update)):
                start = time.perf_counter()
                call()
                row["host_ms"][name].append((time.perf_counter() - start) * 1e3)
                torch.cuda.synchronize()
        row["host_ms"] = {name: round(sorted(each)[len(each) // 2], 3) for name, each in row["host_ms"].items()}
        row["step_profile"] = profiled(step)
    write(out, row)


def write(out, row):
    with open(os.path.join(out, "rows.jsonl"), "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write(json.dumps(row) + "\n")


def main():
    if sys.argv[1] == "draw": return draw(int(sys.argv[2]))
    if sys.argv[1] == "one":
        case, out, others = json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
        try: run(case, out, others)
        except BaseException as error: write(out, dict(cases.head(case), error=repr(error)[:600], tb=traceback.format_exc()[-1500:]))
        open(os.path.join(out, "ready." + case["id"]), "w").close()
        return None
    todo, out = cases.read(sys.argv[2]), sys.argv[3]
    limit = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 150
    began = time.time()
    environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="4", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    running = []
    for number, case in enumerate(todo):
        environment["TORCHINDUCTOR_CACHE_DIR"] = f"/tmp/inductor{number}"
        log = open(os.path.join(out, "log." + case["id"]), "w")
        running.append(subprocess.Popen([sys.executable, __file__, "one", json.dumps(case), out, str(len(todo))], env=environment, stdout=log, stderr=log))
    while time.time() - began < limit and any(p.poll() is None for p in running): time.sleep(0.5)
    for process in running:
        if process.poll() is None: process.kill()
    print("took", round(time.time() - began, 1), "s,", sum(p.poll() == 0 for p in running), "of", len(running), "ended")
    return None


if __name__ == "__main__": main()
