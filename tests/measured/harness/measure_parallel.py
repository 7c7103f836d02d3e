"""Runs on several GPUs, one forked child per rank and case: peaks of each phase and the allocator's whole history (from
the model's construction through three steps), rank by rank. A case (cases.py) says in its `harness`: "history", "stacks",
"ranks", "limit", "gib". A case with "fake" runs its "ranks" one beside
another on GPU 0 in torch's fake process group: collectives move nothing, but allocate what real ones do.
usage: measure_parallel.py CASES.jsonl OUTDIR --budget SECONDS"""
import argparse, gc, gzip, json, os, sys, time, traceback, warnings
import cases
warnings.filterwarnings("ignore")

def nvml(i):
    import pynvml
    pynvml.nvmlInit(); return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(i)).used

def layers_of(m):
    """The outermost members of module lists that hold parameters: layers, blocks, stages of any family."""
    found = []
    for name, x in m.named_modules():
        parts = name.split(".")
        if parts[-1].isdigit() and not any(p.isdigit() for p in parts[:-1]) and next(x.parameters(), None) is not None: found.append(x)
    if not found: raise ValueError("no layers")
    return found

def device_of(case, rank): return 0 if case.get("fake") else rank

def join(case, rank, world):
    """The process group of all ranks."""
    import torch, torch.distributed as dist
    if not case.get("fake"): dist.init_process_group("nccl", device_id=torch.device("cuda", rank)); dist.barrier(); return
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)

def reduce_nothing(module, case, torch):
    """DDP's reducer asks the group's work for a result, which the fake group has not: a hook that gives the bucket back."""
    def hook(_, bucket):
        future = torch.futures.Future(); future.set_result(bucket.buffer()); return future
    if case.get("fake"): module.register_comm_hook(None, hook)
    return module

def lora(m, case):
    import peft
    return peft.get_peft_model(m, peft.LoraConfig(r=case["lora"], target_modules="all-linear", lora_dropout=0.0, bias="none"))

TP_PLAN = dict(columns=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"), rows=("self_attn.o_proj", "mlp.down_proj"))

def split_layers(m, mesh):
    """In the order in which a layer runs."""
    from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel
    plan = {**{k: ColwiseParallel() for k in TP_PLAN["columns"]}, **{k: RowwiseParallel() for k in TP_PLAN["rows"]}}
    for l in layers_of(m): parallelize_module(l, mesh, {k: plan[k] for k in sorted(plan, key=[n for n, _ in l.named_modules()].index)})

def split_model(m, mesh, case):
    """Tensor parallelism of the layers as above; with "sp" torch's tutorial's and torchtitan's: the sequence split between
    the layers' products, embedding and head split, logits gathered or (with "loss_parallel") left split for
    loss_parallel; with the harness's "tp_plan": "auto" transformers' own plan."""
    if case.get("tp_plan") == "auto":
        from transformers.distributed import DistributedConfig
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
        m.config.distributed_config = DistributedConfig(tp_size=mesh.size(), tp_plan="auto")
        return apply_tensor_parallelism(m, mesh)
    if not case.get("sp"): return split_layers(m, mesh)
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput
    loss = case.get("loss_parallel", False); sequence, whole = Shard(1), Replicate()
    parallelize_module(m, mesh, {"model.embed_tokens": RowwiseParallel(input_layouts=whole, output_layouts=sequence), "model.norm": SequenceParallel(),
                                 "lm_head": ColwiseParallel(input_layouts=sequence, output_layouts=Shard(-1) if loss else whole, use_local_output=not loss)})
    for l in layers_of(m):
        parallelize_module(l, mesh, {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel(),
                                     "self_attn": PrepareModuleInput(input_kwarg_layouts=dict(hidden_states=sequence), desired_input_kwarg_layouts=dict(hidden_states=whole)),
                                     "mlp": PrepareModuleInput(input_layouts=(sequence,), desired_input_layouts=(whole,)),
                                     **{"self_attn.%s_proj" % k: ColwiseParallel() for k in "qkv"}, "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
                                     "self_attn.o_proj": RowwiseParallel(output_layouts=sequence), "mlp.down_proj": RowwiseParallel(output_layouts=sequence)})

def announce_split(m, mesh):
    """What peft looks for in a layer that ranks share, where transformers has split it: adapters are then split, too."""
    for l in layers_of(m):
        for kind, names in (("colwise", TP_PLAN["columns"]), ("rowwise", TP_PLAN["rows"])):
            for name in names:
                x = l.get_submodule(name); x._hf_tp_plan, x._hf_device_mesh = kind, mesh

def shard(m, case, mesh, torch):
    from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy, CPUOffloadPolicy
    kw = dict(reshard_after_forward=not case.get("no_reshard_after_forward", False))
    if mesh is not None: kw["mesh"] = mesh
    if case.get("fsdp_param_dtype"): kw["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[case.get("fsdp_reduce_dtype", "fp32")])
    if case.get("offload_parameters"): kw["offload_policy"] = CPUOffloadPolicy()
    for l in layers_of(m): fully_shard(l, **kw)
    fully_shard(m, **kw)

def meshes(case, world):
    """The mesh of a case with more than one dimension, in the order in which ranks are numbered, and its parts by name."""
    from torch.distributed.device_mesh import init_device_mesh
    pp, cp, tp, hsdp = (case.get(k, 1) for k in ("pp", "cp", "tp", "hsdp_shard"))
    dp = world // (pp * cp * tp)
    sizes = dict(pp=pp, replicate=dp // hsdp if hsdp > 1 else 1, shard=hsdp if hsdp > 1 else dp, cp=cp, tp=tp)
    sizes = {k: v for k, v in sizes.items() if v > 1}
    mesh = init_device_mesh("cuda", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    parts = {k: mesh[k] for k in sizes if k in ("pp", "cp", "tp")}
    shared = [k for k in ("replicate", "shard", "cp") if k in sizes]
    if "cp" in shared and len(shared) > 1: parts["dp"] = mesh[tuple(shared)]._flatten("dp_cp")
    elif shared: parts["dp"] = mesh[tuple(shared)] if len(shared) > 1 else mesh[shared[0]]
    return parts

def pipeline_stage(m, index, layers, torch):
    """The model's layers split as `layers` counts them by stage; the first embeds, the last has the norm and the head. It
    holds nothing else of the model, so that the rest dies with `m`."""
    class Stage(torch.nn.Module):
        def __init__(s, embed_tokens, layers, rotary_emb, norm, lm_head):
            super().__init__()
            s.embed_tokens, s.layers, s.rotary_emb, s.norm, s.lm_head = embed_tokens, layers, rotary_emb, norm, lm_head
        def forward(s, x):
            h = s.embed_tokens(x) if s.embed_tokens is not None else x
            pos = torch.arange(h.shape[1], device=h.device).unsqueeze(0)
            pe = s.rotary_emb(h, pos)
            for l in s.layers:
                h = l(h, attention_mask=None, position_ids=pos, position_embeddings=pe)
                h = h[0] if isinstance(h, tuple) else h
            return s.lm_head(s.norm(h)) if s.lm_head is not None else h
    first, last, start = index == 0, index == len(layers) - 1, sum(layers[:index])
    return Stage(m.model.embed_tokens if first else None, torch.nn.ModuleList(m.model.layers[start:start + layers[index]]), m.model.rotary_emb,
                 m.model.norm if last else None, m.lm_head if last else None)

def talk_alone(case, m, torch):
    """In the fake process group a stage is told the shapes that the stage before it would send, and tells none."""
    import torch.distributed as dist
    hidden = torch.empty(case["batch_size"], case["sequence_length"] // case.get("cp", 1), m.config.hidden_size, dtype=torch.bfloat16 if case.get("fsdp_param_dtype") else m.dtype, device="meta")
    dist.recv_object_list = lambda objects, **kw: objects.__setitem__(0, (hidden,))
    dist.send_object_list = lambda objects, **kw: None

def pipeline(m, case, parts, rank, world, torch):
    """This rank's stages as one module, and the schedule that runs them. `parts`: of the mesh, where there are others."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble
    group = parts["pp"].get_group() if parts else None
    if parts: rank, world = parts["pp"].get_local_rank(), parts["pp"].size()
    kind = case["schedule"]; chunks = case.get("virtual_stages", 1); n = world * chunks
    mine = [rank, 2 * world - 1 - rank] if kind == "zbv" else [rank + c * world for c in range(chunks)]
    if hasattr(m, "peft_config"): m = m.get_base_model()
    if case.get("fake"): talk_alone(case, m, torch)
    layers = case.get("stage_layers") or [len(m.model.layers) // n] * n
    modules = [pipeline_stage(m, i, layers, torch) for i in mine]
    for x in modules:
        if "tp" in parts and not case.get("lora"): split_layers(x, parts["tp"])
        if cases.parallel_of(case) == "fsdp2": shard(x, case, parts["dp"], torch)
    if cases.parallel_of(case) == "ddp": modules = [reduce_nothing(torch.nn.parallel.DistributedDataParallel(x, process_group=parts["dp"].get_group()), case, torch) for x in modules]
    device = torch.device("cuda", torch.cuda.current_device())
    stages = [PipelineStage(x, i, n, device, group=group) for x, i in zip(modules, mine)]
    loss_fn = lambda out, target: torch.nn.functional.cross_entropy(out.flatten(0, 1), target.flatten(0, 1))
    cls = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B, "zero-bubble": ScheduleInterleavedZeroBubble, "zbv": ScheduleZBVZeroBubble}[kind]
    schedule = cls(stages if chunks > 1 else stages[0], case["micro_batches"], loss_fn=loss_fn)
    return torch.nn.ModuleList(modules), schedule, 0 in mine, n - 1 in mine

def write_history(case, rank, marks, r, outdir, torch):
    tr = torch.cuda.memory._snapshot()["device_traces"][device_of(case, rank)]; streams = {}
    addresses = [e["addr"] for e in tr if e.get("addr")]; low = min(addresses)
    with gzip.open(os.path.join(outdir, "%s-rank%d.history.tsv.gz" % (case["id"], rank)), "wt", 9) as f:
        f.write("# " + json.dumps(dict(cases.head(case), rank=rank, gpu=r["gpu"], peak_allocated=r["peak_allocated"], peak_reserved=r["peak_reserved"])) + "\n# marks: [events so far, phase just ended, allocated, reserved, max allocated]\n")
        for k in marks: f.write("# " + json.dumps(k) + "\n")
        f.write("action\taddress\tsize\tstream\n")
        for e in tr:
            s = streams.setdefault(e.get("stream", 0), len(streams))
            line = "%s\t%d\t%d\t%d" % (e["action"], e.get("addr", 0) - low, e["size"], s)
            if case.get("stacks") and e["action"] == "alloc": line += "\t" + "<".join("%s:%s" % (os.path.basename(q["filename"]), q["name"]) for q in e.get("frames", [])[:6])
            f.write(line + "\n")

def run_case(case, rank, world, outdir):
    import torch, torch.distributed as dist
    gpu = device_of(case, rank)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(gpu), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case["port"]))
    torch.cuda.set_device(gpu); mode = cases.parallel_of(case); r = dict(cases.head(case), rank=rank, gpu=torch.cuda.get_device_name(0))
    r["nvml_before_context"] = nvml(gpu); torch.zeros(1, device="cuda"); torch.cuda.synchronize(); r["nvml_context"] = nvml(gpu)
    if mode == "dp": case = dict(case, batch_size=case["batch_size"] * world)  # one process; nn.DataParallel splits the batch
    else: join(case, rank, world); torch.cuda.synchronize(); r["nvml_nccl"] = nvml(gpu)
    import measure as M
    A, R, P = torch.cuda.memory_allocated, torch.cuda.memory_reserved, torch.cuda.max_memory_allocated
    gc.collect(); torch.cuda.empty_cache(); base = A()
    history = case.get("history", False); marks = []
    if history: torch.cuda.memory._record_memory_history(enabled="all", context="alloc" if case.get("stacks") else None, stacks="python", max_entries=1000000)
    n = lambda: len(torch.cuda.memory._snapshot()["device_traces"][gpu]) if history else 0
    mark = lambda name: marks.append([n(), name, A() - base, R(), P() - base]) if history else None
    mark("start")
    m, batch, cfg, task = M.build(case)
    if case.get("sp"): batch["position_ids"] = torch.arange(case["sequence_length"], device="cuda").unsqueeze(0)  # the model sees a part of the sequence
    mark("built model and batch")
    gc.collect(); torch.cuda.empty_cache(); mark("empty_cache")
    prec = case.get("precision", "fp32"); amp = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(prec)
    from torch.distributed.device_mesh import init_device_mesh
    parts = meshes(case, world) if cases.several_dimensions(case) else {}
    torch.cuda.synchronize(); r["nvml_mesh"] = nvml(gpu)
    tp = parts.get("tp") or (init_device_mesh("cuda", (world,)) if mode == "tp" and not parts else None)
    if case.get("lora"):
        if tp is not None: split_layers(m, tp); announce_split(m, tp)
        m = lora(m, case); mark("lora")
    elif tp is not None and "pp" not in parts: split_model(m, tp, case)
    r["params"] = sum(p.numel() for p in m.parameters()); m.train()
    run = m; schedule = None; cp = None
    if "cp" in parts:
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method
        set_rotate_method({"ring": "alltoall"}.get(case.get("cp_type"), "allgather"))
        cp = lambda: context_parallel(parts["cp"], buffers=[batch["input_ids"], batch["labels"]], buffer_seq_dims=[1, 1])
    if "pp" in parts:
        run, schedule, feeds, predicts = pipeline(m, case, parts, rank, world, torch); del m
    elif mode in ("ddp", "zero1"):
        kw = dict(device_mesh=parts["dp"]) if parts else {}
        run = torch.nn.parallel.DistributedDataParallel(m, device_ids=[gpu], gradient_as_bucket_view=case.get("ddp_bucket_view", False), static_graph=case.get("ddp_static_graph", False), **kw)
        reduce_nothing(run, case, torch)
    elif mode == "fsdp2":
        shard(m, case, parts.get("dp"), torch)
    elif mode == "ep":  # as from_pretrained(distributed_config=DistributedConfig(tp_size=world, enable_expert_parallel=True))
        from transformers.distributed import DistributedConfig
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
        m.config.distributed_config = DistributedConfig(tp_size=world, tp_plan="auto", enable_expert_parallel=True)
        apply_tensor_parallelism(m, init_device_mesh("cuda", (world,)))
    elif mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        mp = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if case.get("fsdp_param_dtype") else None
        run = FSDP(m, auto_wrap_policy=ModuleWrapPolicy({type(layers_of(m)[0])}), mixed_precision=mp, device_id=gpu, use_orig_params=True, sharding_strategy=ShardingStrategy.FULL_SHARD)
    elif mode == "cp" and not parts:
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method
        mesh = init_device_mesh("cuda", (world,)); set_rotate_method({"ring": "alltoall"}.get(case.get("cp_type"), "allgather"))
        cp = lambda: context_parallel(mesh, buffers=[batch["input_ids"], batch["labels"]], buffer_seq_dims=[1, 1])
    elif mode == "pp":
        run, schedule, feeds, predicts = pipeline(m, case, {}, rank, world, torch); del m
    elif mode == "dp":
        run = torch.nn.DataParallel(m)
    gc.collect(); torch.cuda.empty_cache(); mark("wrapped"); r["alloc_after_wrap"] = A() - base
    ps = [p for p in run.parameters() if p.requires_grad]
    if mode == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        opt = ZeroRedundancyOptimizer(ps, optimizer_class=torch.optim.AdamW, lr=1e-5)
    else: opt = M.make_opt(case, ps)
    accum = case.get("accumulation_steps", 1); phases = []; overall = 0
    from contextlib import nullcontext
    autocast = lambda: torch.autocast("cuda", dtype=amp) if amp is not None else nullcontext()
    def forward():
        with autocast(): o = run(**batch); l = o if torch.is_tensor(o) else o.loss; del o
        return l.mean() if mode == "dp" else l
    def phase(step, name, f, *a):
        nonlocal overall
        torch.cuda.reset_peak_memory_stats(); b = A(); x = f(*a)
        if not history: torch.cuda.synchronize()
        phases.append([step, name, b - base, P() - base, A() - base, R()]); overall = max(overall, P() - base); mark(f"step {step} {name}"); return x
    peak_reserved = 0
    if case.get("loss_parallel"):
        from torch.distributed.tensor.parallel import loss_parallel
        cp = loss_parallel
    for step in range(3):
        opt.zero_grad(set_to_none=True); mark(f"step {step} zero_grad")
        if schedule is not None:
            ids, labels = batch["input_ids"], batch["labels"]
            def pp_step():
                with (cp() if cp else nullcontext()), autocast(): schedule.step(*([ids] if feeds else []), **(dict(target=labels, losses=[]) if predicts else {}))
            phase(step, "backward", pp_step)
        else:
            with (cp() if cp else nullcontext()):
                for _ in range(accum):
                    l = phase(step, "forward", forward); phase(step, "backward", (l / accum if accum > 1 else l).backward); del l
        phase(step, "optimizer", opt.step); peak_reserved = max(peak_reserved, torch.cuda.max_memory_reserved())
    torch.cuda.synchronize()
    if mode == "dp": r.update(peak_allocated_by_rank=[P(i) for i in range(world)], peak_reserved_by_rank=[torch.cuda.max_memory_reserved(i) for i in range(world)])  # of the last phase, and of all
    r.update(phases=phases, peak_allocated=overall, peak_reserved=max(x[5] for x in phases), nvml_after=nvml(gpu), retries=torch.cuda.memory_stats()["num_alloc_retries"])
    if history:
        for i in case.get("ranks", [0]):
            if i == rank or mode == "dp": write_history(case, i, marks, r, outdir, torch)
    if case.get("time_s"):
        def step():
            opt.zero_grad(set_to_none=True)
            if schedule is not None: pp_step()
            else:
                with (cp() if cp else nullcontext()):
                    for _ in range(accum): l = forward(); (l / accum if accum > 1 else l).backward(); del l
            opt.step()
        time_steps(step, case, rank, r, outdir, torch)
    return r

def time_steps(step, case, rank, r, outdir, torch):
    """Steps by events on each card, the host not waiting between them; then, where the case asks for it, the kernels of one."""
    import torch.distributed as dist, two_cards
    if case.get("beside", True): r["beside"] = two_cards.beside_of()
    step(); torch.cuda.synchronize(); dist.barrier(); t = time.time(); step(); torch.cuda.synchronize()
    taken = torch.tensor([time.time() - t], device="cuda"); dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    n = max(5, min(24, int(case["time_s"] / taken.item()))); ev = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    dist.barrier(); torch.cuda.synchronize(); ev[0].record(); t = time.perf_counter()
    for i in range(n): step(); ev[i + 1].record()
    r["issue_ms"] = round(1e3 * (time.perf_counter() - t) / n, 2); torch.cuda.synchronize()
    took = [round(a.elapsed_time(b), 2) for a, b in zip(ev, ev[1:])]
    r.update(step_ms=took, step_ms_median=sorted(took)[n // 2], step_ms_min=min(took), ended_at=round(time.time(), 2))
    if case.get("trace_step"): two_cards.timeline(step, two_cards.Out(outdir, "timelines", rank, every=True), steps=case.get("trace_steps", 1), part="cases", id=case["id"])

def run_trainer_case(case, rank, world, outdir):
    """transformers' Trainer as torchrun (or, for dp, a plain python) would start it. Peaks are those of the steps."""
    import torch, tempfile, transformers as tf, measure as M, measure_trainer as T
    mode = cases.parallel_of(case)
    if mode != "dp": os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case["port"]))
    torch.cuda.set_device(rank); torch.zeros(1, device="cuda")
    r = dict(cases.head(case), rank=rank, gpu=torch.cuda.get_device_name(0), nvml_context=nvml(rank))
    kw = dict(output_dir=os.path.join(tempfile.gettempdir(), "t_" + case["id"]), per_device_train_batch_size=case["batch_size"], max_steps=case.get("timed_steps") or case.get("steps", 3), bf16=case["precision"] == "amp-bf16",
              gradient_checkpointing=case.get("checkpointing") == "full", report_to="none", logging_strategy="no", save_strategy="no", disable_tqdm=True, dataloader_num_workers=0, remove_unused_columns=False)
    if mode.startswith("fsdp"): kw.update(fsdp=True, fsdp_config=dict(version=int(mode[-1])))
    args = tf.TrainingArguments(**kw)
    A, R, P = torch.cuda.memory_allocated, torch.cuda.memory_reserved, torch.cuda.max_memory_allocated
    base = A(); history = case.get("history", False); marks = []
    if history: torch.cuda.memory._record_memory_history(enabled="all", context="alloc" if case.get("stacks") else None, stacks="python", max_entries=1000000)
    n = lambda: len(torch.cuda.memory._snapshot()["device_traces"][rank]) if history else 0
    mark = lambda name: marks.append([n(), name, A() - base, R(), P() - base]) if history else None
    mark("start")
    m, batch, cfg, task = M.build(dict(case, precision={"amp-bf16": "fp32"}.get(case["precision"], case["precision"]), checkpointing="none"))
    items, collate = T.dataset(case, task, cfg.vocab_size, n=case["batch_size"] * world * max(8, case.get("timed_steps", 3))); del batch
    m = m.cpu(); gc.collect(); torch.cuda.empty_cache(); mark("model on the host")  # as from_pretrained leaves it
    r["params"] = sum(p.numel() for p in m.parameters())
    stamps = []
    class Marks(tf.TrainerCallback):
        def on_step_begin(self, args, state, *a, **k):
            if state.global_step == 0: r["alloc_after_wrap"] = A() - base; [torch.cuda.reset_peak_memory_stats(i) for i in range(world if mode == "dp" else 0)] or torch.cuda.reset_peak_memory_stats()
            mark("step %d begin" % state.global_step)
        def on_step_end(self, args, state, *a, **k): torch.cuda.synchronize(); stamps.append(time.perf_counter()); mark("step %d end" % (state.global_step - 1))
    t = tf.Trainer(model=m, args=args, train_dataset=items, data_collator=collate, callbacks=[Marks()]); t.train()
    r["optim"] = str(args.optim); r["wrapped"] = type(t.model_wrapped).__name__
    if case.get("time_s"):  # each step ends with a wait, as measure_trainer.py has it; the first two are left out
        took = [round(1e3 * (b - a), 2) for a, b in zip(stamps[1:], stamps[2:])]; r.update(step_ms=took, step_ms_median=sorted(took)[len(took) // 2], step_ms_min=min(took))
    r.update(peak_allocated=P() - base, peak_reserved=torch.cuda.max_memory_reserved(), alloc_end=A() - base, nvml_after=nvml(rank))
    if case.get("time_s") and case.get("beside", True): import two_cards; r["beside"] = two_cards.beside_of()
    if mode == "dp": r.update(peak_allocated_by_rank=[P(i) for i in range(world)], peak_reserved_by_rank=[torch.cuda.max_memory_reserved(i) for i in range(world)])
    if history:
        for i in case.get("ranks", [0]):
            if i == rank or mode == "dp": write_history(case, i, marks, r, outdir, torch)
    return r

def start(c, outdir):
    """Forks a child for each of the case's ranks."""
    pids = []
    for rank in c.get("ranks", [0]) if c.get("fake") else range(1 if cases.parallel_of(c) == "dp" else c["gpus"]):
        pid = os.fork()
        if pid == 0:
            try: r = (run_trainer_case if c.get("loop") == "trainer" else run_case)(c, rank, c["gpus"], outdir)
            except BaseException as e: r = dict(cases.head(c), rank=rank, error=repr(e)[:300], tb=traceback.format_exc()[-900:])
            with open(os.path.join(outdir, "rows.%d.jsonl" % rank), "a") as f: f.write(json.dumps(r) + "\n")
            print(c["id"], rank, (r.get("error") or "peak %.1f res %.1f MiB" % (r["peak_allocated"] / 2**20, r["peak_reserved"] / 2**20))[:220], flush=True)
            os._exit(0)
        pids.append(pid)
    return dict(case=c, left=set(pids), begun=time.time())

def ended(run):
    """Whether all children are gone; kills those that ran past the case's limit."""
    for p in list(run["left"]):
        if os.waitpid(p, os.WNOHANG)[0]: run["left"].discard(p)
    if run["left"] and time.time() > run["begun"] + run["case"].get("limit", 25):
        for p in run["left"]: os.kill(p, 9); os.waitpid(p, 0)
        run["left"] = set(); print("killed", run["case"]["id"], flush=True)
    if not run["left"]: print("   %.1fs" % (time.time() - run["begun"]), flush=True)
    return not run["left"]

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=190)
    ap.add_argument("--jobs", type=int, default=1, help="cases side by side: of the fake group, which need not wait for each other")
    ap.add_argument("--memory", type=float, default=125, help="GiB that cases side by side may take; a case's \"gib\" is what it takes")
    a = ap.parse_args(); t0 = time.time()
    os.makedirs(a.outdir, exist_ok=True)
    import torch, transformers, peft, torch.distributed.fsdp, torch.distributed.tensor.parallel, torch.distributed.pipelining, torch.distributed.optim, torch.distributed.tensor.experimental
    import transformers.models.llama.modeling_llama, transformers.models.bert.modeling_bert, accelerate
    from transformers import Trainer, TrainingArguments, TrainerCallback, default_data_collator
    print("imports %.1f" % (time.time() - t0), flush=True)
    waiting = [dict(c, port=29600 + i) for i, c in enumerate(cases.read(a.cases))]; running = []
    takes = lambda c: c.get("gib", 20) + .8 * len(c.get("ranks", [0]))
    while waiting or running:
        running = [r for r in running if not ended(r)]
        if waiting and time.time() - t0 > a.budget: print("budget spent before", len(waiting), "cases, the first:", waiting[0]["id"], flush=True); waiting = []
        free = a.memory - sum(takes(r["case"]) for r in running)
        nxt = next((c for c in waiting if takes(c) <= free or not running), None) if len(running) < a.jobs else None
        if nxt is None: time.sleep(.02); continue
        waiting.remove(nxt); running.append(start(nxt, a.outdir))

if __name__ == "__main__": main()
