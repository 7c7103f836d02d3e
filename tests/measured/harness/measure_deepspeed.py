"""DeepSpeed's ZeRO on 1 or 2 GPUs, one forked child per rank and case: peaks of each phase and the allocator's whole history
(from the model's construction through three steps), rank by rank. A case's "cp" is how many ranks share each sequence by
DeepSpeed's Ulysses, each with its shard of the batch on the card, as UlyssesSPDataLoaderAdapter cuts it.
What of DeepSpeed's configuration no option of memcalc says stands in the harness's "ds".
usage: measure_deepspeed.py CASES.jsonl OUTDIR --budget SECONDS [--cpu]"""
import argparse, gc, json, os, sys, time, traceback, warnings
import cases
warnings.filterwarnings("ignore")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
CPU = "--cpu" in sys.argv
os.environ["DS_ACCELERATOR"] = "cpu" if CPU else "cuda"
from measure_parallel import nvml, time_steps, write_history

def ds_config(case):
    prec = case["precision"]
    z = dict(stage=int(case["parallel"][-1]), **case.get("deepspeed", {}))
    for key, name in (("offload_states", "offload_optimizer"), ("offload_parameters", "offload_param")):
        if case.get(key): z[name] = dict(device={"host": "cpu"}.get(case[key], case[key]), pin_memory=False)
    c = dict(train_micro_batch_size_per_gpu=case["batch_size"], gradient_accumulation_steps=case.get("accumulation_steps", 1), zero_optimization=z,
             zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False, steps_per_print=1000000)
    if prec in ("bf16", "fp16"): c[prec] = dict(enabled=True)
    if prec == "fp16" and case.get("scale_power"): c["fp16"]["initial_scale_power"] = case["scale_power"]
    c["gradient_clipping"] = case.get("max_grad_norm") or 0.0  # without it DeepSpeed clips at 1.0, as it did in the rows until 2026-11-30
    c.update(case.get("ds", {}))
    return c

def tiny(case):
    """The case small enough for --cpu, where only whether it runs is asked."""
    sizes = dict(hidden_size=128, intermediate_size=256, num_attention_heads=4)
    if "llama" in case["model"]: sizes.update(num_key_value_heads=2, head_dim=32, vocab_size=1000, max_position_embeddings=512)
    small = {k: v // 1000 if k.endswith(("size", "parameters", "distance", "threshold")) else v for k, v in case.get("deepspeed", {}).items()}
    return dict(case, batch_size=2, sequence_length=32, layers=2, optimizer="adamw", config=sizes, deepspeed=small,
                precision="bf16" if case["precision"] == "fp16" else case["precision"])

def sequence_shard(batch, sp, place):
    """This rank's part of a batch: UlyssesSPDataLoaderAdapter.refill, then the loop's own copy to the card."""
    import torch
    ids = batch["input_ids"]; n = ids.shape[1] // sp
    whole = dict(input_ids=ids, position_ids=torch.arange(ids.shape[1], device=ids.device).repeat(ids.shape[0], 1),
                 shift_labels=torch.nn.functional.pad(batch["labels"], (0, 1), value=-100)[..., 1:])
    shard = {k: v[:, n * place:n * (place + 1)].contiguous().cpu() for k, v in whole.items()}; del whole
    return {k: v.to(ids.device) for k, v in shard.items()}

def ulysses_loss(model, inputs):
    """transformers/integrations/deepspeed.py, deepspeed_sp_compute_loss."""
    import torch, torch.distributed.nn
    from deepspeed.utils import groups
    if "labels" not in inputs: inputs["labels"] = inputs["shift_labels"]
    outputs = model(**inputs)
    loss = outputs.loss
    sp_group = groups._get_sequence_parallel_group()
    losses_per_rank = torch.distributed.nn.functional.all_gather(loss, group=sp_group)
    good_tokens = (inputs["shift_labels"] != -100).view(-1).sum()
    good_tokens_per_rank = torch.distributed.nn.functional.all_gather(good_tokens, group=sp_group)
    losses_stacked = torch.stack(losses_per_rank)
    good_tokens_stacked = torch.stack(good_tokens_per_rank)
    mask = good_tokens_stacked > 0
    safe_losses = torch.where(mask, losses_stacked, torch.zeros_like(losses_stacked))
    total_loss = (safe_losses * good_tokens_stacked).sum()
    total_good_tokens = good_tokens_stacked.sum()
    loss = total_loss / total_good_tokens.clamp(min=1)
    return loss

def run_case(case, rank, outdir):
    import torch, torch.distributed as dist
    world = case["gpus"]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case["port"]))
    r = dict(cases.head(case), rank=rank)
    if CPU:
        A = R = P = lambda: 0
        dist.init_process_group("gloo"); device = torch.device("cpu")
        sync = reset = empty = lambda: None
    else:
        A, R, P = torch.cuda.memory_allocated, torch.cuda.memory_reserved, torch.cuda.max_memory_allocated
        sync, reset, empty = torch.cuda.synchronize, torch.cuda.reset_peak_memory_stats, torch.cuda.empty_cache
        torch.cuda.set_device(rank); r["gpu"] = torch.cuda.get_device_name(0); device = torch.device("cuda", rank)
        r["nvml_before_context"] = nvml(rank); torch.zeros(1, device="cuda"); sync(); r["nvml_context"] = nvml(rank)
        dist.init_process_group("nccl", device_id=device); dist.barrier(); sync(); r["nvml_nccl"] = nvml(rank)
    import deepspeed, logging
    if CPU: sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    from deepspeed.utils import logger; logger.setLevel(logging.ERROR)
    r["deepspeed"] = deepspeed.__version__
    import measure as M
    gc.collect(); empty(); base = A()
    history = case.get("history", False) and not CPU; marks = []
    if history: torch.cuda.memory._record_memory_history(enabled="all", context="alloc" if case.get("stacks") else None, stacks="python", max_entries=2000000)
    n = lambda: len(torch.cuda.memory._snapshot()["device_traces"][rank]) if history else 0
    mark = lambda name: marks.append([n(), name, A() - base, R(), P() - base]) if history else None
    mark("start")
    config = ds_config(case)
    phases = []; overall = 0
    def phase(step, name, f, *a):
        nonlocal overall
        reset(); b = A(); x = f(*a)
        if not history: sync()
        phases.append([step, name, b - base, P() - base, A() - base, R()]); overall = max(overall, P() - base); mark(f"step {step} {name}"); return x
    if case.get("zero_init"):
        with deepspeed.zero.Init(config_dict_or_path=config): m, batch, cfg, task = build(M, case, device)
    else: m, batch, cfg, task = build(M, case, device)
    mpu = None
    if case.get("cp", 1) > 1:
        from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
        deepspeed.init_distributed(dist_backend="gloo" if CPU else "nccl", verbose=False)
        batch = sequence_shard(batch, case["cp"], rank % case["cp"])
        mpu = UlyssesSPAttentionHF.register_with_transformers(model_name_or_path=m, sequence_parallel_size=case["cp"], core_attn_implementation="sdpa",
                                                              micro_batch_size=case["batch_size"], seq_length_is_variable=True, disable_in_eval=True)
    mark("built model and batch"); gc.collect(); empty(); mark("empty_cache")
    r["params"] = sum(getattr(p, "ds_numel", p.numel()) for p in m.parameters()); m.train()
    if case.get("checkpointing") == "full": m.gradient_checkpointing_enable()
    reset(); b = A()
    ps = [p for p in m.parameters() if p.requires_grad]
    opt = None if "optimizer" in config else M.make_opt(case, ps)
    engine, opt, _, _ = deepspeed.initialize(model=m, model_parameters=ps, optimizer=opt, config=config, dist_init_required=False, mpu=mpu)
    del ps
    phases.append([-1, "initialize", b - base, P() - base, A() - base, R()]); mark("deepspeed.initialize")
    r["wrapper"] = type(opt).__name__; r["basic"] = type(getattr(opt, "optimizer", None)).__name__
    gc.collect(); r["alloc_after_wrap"] = A() - base; r["reserved_after_wrap"] = R()
    r["zero_config"] = {k: str(v) for k, v in engine._config.zero_config.__dict__.items()} if rank == 0 and case.get("print_config") else None
    accum = case.get("accumulation_steps", 1)
    def forward(): return ulysses_loss(engine, batch) if mpu else engine(**batch).loss
    for step in range(case.get("steps", 3)):
        for k in range(accum):
            l = phase(step, "forward", forward); phase(step, "backward", engine.backward, l); del l
            if k + 1 < accum: phase(step, "micro", engine.step)
        phase(step, "optimizer", engine.step)
    sync()
    r.update(phases=phases, peak_allocated=overall, peak_reserved=max(x[5] for x in phases if x[0] >= 0), steady_peak_allocated=max(x[3] for x in phases if x[0] >= 1))
    if not CPU: r.update(nvml_after=nvml(rank), retries=torch.cuda.memory_stats()["num_alloc_retries"])
    r["skipped_steps"] = getattr(engine, "skipped_steps", None)
    if case.get("offload_states") or case.get("offload_parameters"):
        import resource; r["max_rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if case.get("timed") and not CPU:
        dist.barrier(); sync(); t = time.time()
        for _ in range(4):
            for k in range(accum): engine.backward(forward()); engine.step()
        sync(); r["step_ms"] = (time.time() - t) / 4 * 1e3
    if case.get("time_s") and not CPU:
        def timed():
            for _ in range(accum): engine.backward(forward()); engine.step()
        time_steps(timed, case, rank, r, outdir, torch)
    if history and rank in case.get("ranks", [0]):
        write_history(case, rank, marks, r, outdir, torch)
    return r

def build(M, case, device):
    """measure.py's build, on the CPU where there is no card."""
    if not CPU: return M.build(case)
    import torch
    keep = torch.device, torch.Generator, torch.randint
    class Dev:
        def __new__(cls, name="cpu", *a): return keep[0]("cpu" if name == "cuda" else name, *a)
    torch.device, torch.Generator = Dev, (lambda device="cpu": keep[1]())
    torch.randint = lambda lo, hi, s, device=None, generator=None: keep[2](lo, hi, s, generator=generator)
    try: return M.build(case)
    finally: torch.device, torch.Generator, torch.randint = keep

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=150)
    ap.add_argument("--cpu", action="store_true"); ap.add_argument("--only"); ap.add_argument("--late", action="store_true"); ap.add_argument("--after", help="a file that says when to begin"); a = ap.parse_args(); t0 = time.time()
    os.makedirs(a.outdir, exist_ok=True); sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch, transformers
    import transformers.models.llama.modeling_llama, transformers.models.bert.modeling_bert
    if not a.late:
        import deepspeed, deepspeed.runtime.zero.stage3, deepspeed.runtime.superoffload.superoffload_stage3, deepspeed.runtime.zero.muon.muon_optimizer
    print("imports %.1f" % (time.time() - t0), flush=True)
    if not CPU and not a.late:  # does a forked child still get its card?
        pid = os.fork()
        if pid == 0:
            try: torch.zeros(1, device="cuda"); os._exit(0)
            except BaseException as e: print("fork:", repr(e)[:200], flush=True); os._exit(1)
        if os.waitpid(pid, 0)[1]:
            print("children import DeepSpeed themselves", flush=True); os.execv(sys.executable, [sys.executable] + sys.argv + ["--late"])
    while a.after and not os.path.exists(a.after): time.sleep(.05)
    for i, c in enumerate(cases.read(a.cases)):
        if CPU: c = tiny(c)
        c["port"] = 29700 + i
        if a.only and a.only not in c["id"]: continue
        if time.time() - t0 > a.budget: print("budget spent before", c["id"], flush=True); continue
        t = time.time(); pids = []
        for rank in range(c["gpus"]):
            pid = os.fork()
            if pid == 0:
                log = os.open(os.path.join(a.outdir, "noise.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND); out = os.dup(1); os.dup2(log, 1); os.dup2(log, 2)
                if CPU: import faulthandler; faulthandler.dump_traceback_later(40, file=sys.stderr)
                try: r = run_case(c, rank, a.outdir)
                except BaseException as e: r = dict(cases.head(c), rank=rank, error=repr(e)[:400], tb=traceback.format_exc()[-1500:])
                with open(os.path.join(a.outdir, "rows.%d.jsonl" % rank), "a") as f: f.write(json.dumps(r) + "\n")
                os.write(out, (" ".join([c["id"], str(rank), (r.get("error") or "peak %.1f res %.1f MiB %s" % (r["peak_allocated"] / 2**20, r["peak_reserved"] / 2**20, r["wrapper"]))[:220]]) + "\n").encode())
                os._exit(0)
            pids.append(pid)
        deadline = time.time() + (45 if CPU else c.get("limit", 25)); left = set(pids)
        while left and time.time() < deadline:
            for p in list(left):
                if os.waitpid(p, os.WNOHANG)[0]: left.discard(p)
            time.sleep(.02)
        for p in left: os.kill(p, 9); os.waitpid(p, 0); print("killed", c["id"], flush=True)
        print("   %.1fs" % (time.time() - t), flush=True)
if __name__ == "__main__": main()
