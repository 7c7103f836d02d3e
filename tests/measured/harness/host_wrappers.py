"""Microseconds of the host in loops and wrappers, on tiny models whose kernels take no time; what a collective costs
beside compute. usage: host_wrappers.py OUT.jsonl SECONDS (2 GPUs of one host; one is enough for the parts named single)"""
import json, os, sys, tempfile, time, traceback, warnings
from host_clock import middle, tiny as build
warnings.filterwarnings("ignore")
OUT, BUDGET, START = sys.argv[1], float(sys.argv[2]), time.time()


def emit(op, us, **more):
    with open(OUT, "a") as f: f.write(json.dumps(dict(kind="host", op=op, us_issue=us, **more)) + "\n")


def phases(run, batch, opt, amp=None, steps=13):
    """Host seconds of forward, backward and step, each from an idle card."""
    import torch
    f, b, s = [], [], []
    for _ in range(steps):
        opt.zero_grad(set_to_none=True); torch.cuda.synchronize(); t0 = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp is not None): loss = run(**batch).loss
        t1 = time.perf_counter(); torch.cuda.synchronize(); t2 = time.perf_counter()
        loss.backward(); t3 = time.perf_counter(); torch.cuda.synchronize(); t4 = time.perf_counter()
        opt.step(); t5 = time.perf_counter(); del loss
        f.append(t1 - t0); b.append(t3 - t2); s.append(t5 - t4)
    return dict(us_issue=1e6 * middle(f), backward_us=1e6 * middle(b), step_us=1e6 * middle(s))


def wrapped(family, mode, layers, rank, world):
    import torch, torch.distributed as dist
    model, batch = build(family, layers)
    n = sum(1 for _ in model.parameters()); run = model
    if mode == "ddp": run = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    elif mode == "fsdp2":
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
        kw = dict(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
        for layer in (model.model.layers if family == "llama" else model.transformer.h): fully_shard(layer, **kw)
        fully_shard(model, **kw)
    elif mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        run = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])}), device_id=rank, use_orig_params=True,
                   mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    elif mode == "tp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        plan = {f"self_attn.{k}_proj": ColwiseParallel() for k in "qkv"} | {"self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
        for layer in model.model.layers: parallelize_module(layer, init_device_mesh("cuda", (world,)), plan)
    params = [p for p in run.parameters() if p.requires_grad]
    made = {"tp": (("adamw-for", dict(foreach=False)),), "fsdp2": (("adamw", {}), ("adamw-fused", dict(fused=True)))}.get(mode, (("adamw", {}),))
    for name, kw in made:
        got = phases(run, batch, torch.optim.AdamW(params, lr=1e-5, **kw)); dist.barrier()
        if rank == 0: emit(f"model_{family}", got.pop("us_issue"), mode=mode, layers=layers, optimizer=name, parameters=n, world=world, **got)


def collectives(rank, world):
    import torch, torch.distributed as dist
    for log in range(12, 31, 2):
        n = 2 ** log // 2
        x = torch.ones(n, device="cuda", dtype=torch.bfloat16); y = torch.empty(n // world, device="cuda", dtype=torch.bfloat16); z = torch.empty(n, device="cuda", dtype=torch.bfloat16)
        for name, f in (("all_reduce", lambda: dist.all_reduce(x)), ("reduce_scatter", lambda: dist.reduce_scatter_tensor(y, x)), ("all_gather", lambda: dist.all_gather_into_tensor(z, y))):
            for _ in range(3): f()
            torch.cuda.synchronize(); dist.barrier()
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True); it = 20 if log < 26 else 6
            t = time.perf_counter(); a.record(); [f() for _ in range(it)]; issue = (time.perf_counter() - t) / it; b.record(); torch.cuda.synchronize()
            if rank == 0: emit(name, 1e6 * issue, bytes=2 * n, ms=a.elapsed_time(b) / it, world=world, gpu="NVIDIA H200")
    # a product and an element-wise kernel, alone and beside a collective that lasts longer
    big = torch.ones(2 ** 28, device="cuda", dtype=torch.bfloat16); part = torch.empty(2 ** 28 // world, device="cuda", dtype=torch.bfloat16)
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16); e = torch.randn(2 ** 27, device="cuda", dtype=torch.bfloat16); o = torch.empty_like(e)
    for name, f, reps in (("product", lambda: a @ a, 40), ("elementwise", lambda: torch.add(e, 1, out=o), 40)):
        for beside in ("nothing", "all_reduce", "all_gather", "reduce_scatter"):
            for _ in range(3): f()
            torch.cuda.synchronize(); dist.barrier(); works = []
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for _ in range(0 if beside == "nothing" else 12):
                if beside == "all_reduce": works.append(dist.all_reduce(big, async_op=True))
                elif beside == "all_gather": works.append(dist.all_gather_into_tensor(big, part, async_op=True))
                else: works.append(dist.reduce_scatter_tensor(part, big, async_op=True))
            start.record(); [f() for _ in range(reps)]; end.record()
            torch.cuda.current_stream().synchronize(); still = not works[-1].is_completed() if works else None
            ms = start.elapsed_time(end) / reps
            for w in works: w.wait()
            torch.cuda.synchronize()
            if rank == 0: emit("contention_" + name, 0, beside=beside, ms=ms, lasted=still, world=world)


def distributed(rank, world):
    import torch, torch.distributed as dist
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    torch.cuda.set_device(rank); dist.init_process_group("nccl", device_id=torch.device("cuda", rank)); dist.barrier(); torch.cuda.synchronize()
    collectives(rank, world)
    for family, mode in (("llama", "none"), ("llama", "fsdp2"), ("llama", "ddp"), ("gpt2", "none"), ("gpt2", "ddp"), ("llama", "tp"), ("llama", "fsdp1")):
        for layers in (4, 16):
            if time.time() - START > BUDGET - 35: return
            try: wrapped(family, mode, layers, rank, world)
            except Exception: emit("error", 0, part=f"{family} {mode}", rank=rank, trace=traceback.format_exc()[-900:])


def families(rank, world):
    import torch
    for family in ("mixtral", "gemma3", "gpt_neox", "qwen3", "vit", "bert"):
        for layers in (2, 8):
            for dtype in ("float32", "bfloat16"):
                model, batch = build(family, layers, dtype)
                got = phases(model, batch, torch.optim.AdamW(model.parameters(), lr=1e-5))
                emit(f"model_{family}", got.pop("us_issue"), mode="single", layers=layers, dtype=dtype, parameters=sum(1 for _ in model.parameters()), **got)
    from transformers.optimization import Adafactor
    model, batch = build("bert", 8)
    emit("step_adafactor", phases(model, batch, Adafactor(model.parameters(), lr=1e-5, relative_step=False, scale_parameter=False))["step_us"], parameters=sum(1 for _ in model.parameters()))


def trainer(rank, world):
    import torch, transformers as tf
    if torch.cuda.device_count() > 1: return  # the Trainer would wrap the model in nn.DataParallel
    for family, layers, kw in (("bert", 4, {}), ("bert", 16, {}), ("bert", 16, dict(gradient_accumulation_steps=4)), ("bert", 16, dict(bf16=True)), ("bert", 16, dict(fp16=True)), ("llama", 4, {}), ("llama", 16, {})):
        model, batch = build(family, layers); n = sum(1 for _ in model.parameters())
        items = [dict(input_ids=torch.randint(1, 90, (16,)), labels=torch.tensor(0) if family == "bert" else torch.randint(1, 90, (16,))) for _ in range(64)]
        for sync in (True, False):
            marks = []
            class Marks(tf.TrainerCallback):
                def on_step_end(self, *a, **k):
                    if sync: torch.cuda.synchronize()
                    marks.append(time.perf_counter())
            args = tf.TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, max_steps=14, report_to="none", logging_strategy="no", save_strategy="no",
                                        disable_tqdm=True, dataloader_num_workers=0, remove_unused_columns=False, **kw)
            tf.Trainer(model=model, args=args, train_dataset=items, data_collator=tf.default_data_collator, callbacks=[Marks()]).train()
            emit("trainer_" + family, 1e6 * middle([b - a for a, b in zip(marks[3:], marks[4:])]), layers=layers, synchronized=sync, parameters=n, modules=sum(1 for _ in model.modules()), **kw)
        # the same step in a plain loop, from one synchronized end to the next
        scaler = torch.amp.GradScaler("cuda", enabled=bool(kw.get("fp16"))); half = torch.float16 if kw.get("fp16") else torch.bfloat16 if kw.get("bf16") else None
        opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True); accum = kw.get("gradient_accumulation_steps", 1); ends = []
        for _ in range(14):
            for _ in range(accum):
                with torch.autocast("cuda", dtype=half or torch.bfloat16, enabled=half is not None): loss = model(**batch).loss
                scaler.scale(loss / accum).backward(); bool(torch.isnan(loss) or torch.isinf(loss))
            scaler.unscale_(opt); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); scaler.step(opt); scaler.update(); opt.zero_grad(set_to_none=True)
            torch.cuda.synchronize(); ends.append(time.perf_counter())
        emit("plain_" + family, 1e6 * middle([b - a for a, b in zip(ends[3:], ends[4:])]), layers=layers, synchronized=True, parameters=n, **kw)


def children(part, world, limit):
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            try: part(rank, world)
            except BaseException: emit("error", 0, part=part.__name__, rank=rank, trace=traceback.format_exc()[-900:])
            os._exit(0)
        pids.append(pid)
    end = time.time() + limit
    while pids and time.time() < end:
        pids = [p for p in pids if os.waitpid(p, os.WNOHANG)[0] == 0]; time.sleep(.05)
    for p in pids: os.kill(p, 9); os.waitpid(p, 0)
    if pids: emit("error", 0, part=part.__name__, trace="killed")


def main():
    import torch, transformers, torch.distributed.fsdp, torch.distributed.tensor.parallel
    from transformers import Trainer, TrainingArguments, TrainerCallback, default_data_collator
    import transformers.models.bert.modeling_bert, transformers.models.llama.modeling_llama, transformers.models.gpt2.modeling_gpt2, transformers.models.mixtral.modeling_mixtral
    import transformers.models.gemma3.modeling_gemma3, transformers.models.qwen3.modeling_qwen3, transformers.models.gpt_neox.modeling_gpt_neox, transformers.models.vit.modeling_vit
    emit("device", 0, torch=torch.__version__, transformers=transformers.__version__, imports_s=time.time() - START)
    if "trainer" in sys.argv[3:]: return children(trainer, 1, BUDGET)
    children(trainer, 1, 35); children(distributed, 2, max(5, BUDGET - (time.time() - START) - 20)); children(families, 1, max(5, BUDGET - (time.time() - START)))
    emit("done", 0, seconds=time.time() - START)


if __name__ == "__main__": main()
