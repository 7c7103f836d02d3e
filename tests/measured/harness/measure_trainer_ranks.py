"""transformers' Trainer on two GPUs as torchrun starts it: DDP, FSDP2, DeepSpeed's ZeRO 1 to 3, with and without adapters and
quantised bases. One forked child per rank and case; a quantised one gets a process of its own, because bitsandbytes starts
CUDA as it is imported ($BNB: a folder that holds it). The model is made in host memory, as from_pretrained leaves it; under
ZeRO-3 by zero.Init. Peaks are those of the steps. A case's harness: "history" (with Python frames), "quant_storage"
(bnb_4bit_quant_storage), "ds" (beside {"stage"}; its sizes are "auto" unless the run's "deepspeed" says others), "limit", "fake" (rank 0 alone
in torch's fake process group), "nocard" (on a CUDA runtime that computes nothing). A quantised base whose shards are on the host
is packed there.
usage: measure_trainer_ranks.py CASES.jsonl OUTDIR --budget SECONDS"""
import argparse, gc, json, os, sys, tempfile, time, traceback, warnings
import cases
warnings.filterwarnings("ignore")
os.environ.setdefault("DS_ACCELERATOR", "cuda")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

def ds_config(case):
    z = dict(stage=int(case["parallel"][-1]), reduce_bucket_size="auto", stage3_prefetch_bucket_size="auto", stage3_param_persistence_threshold="auto")
    z.update(case.get("deepspeed") or {})
    for key, name in (("offload_states", "offload_optimizer"), ("offload_parameters", "offload_param")):
        if case.get(key): z[name] = dict(device="cpu", pin_memory=False)
    c = dict(train_micro_batch_size_per_gpu="auto", train_batch_size="auto", gradient_accumulation_steps="auto", gradient_clipping="auto",
             bf16=dict(enabled="auto"), zero_optimization=z, zero_force_ds_cpu_optimizer=False, steps_per_print=1000000)
    c.update(case.get("ds", {}))
    return c

def config_of(case):
    """As measure.py's build, without a card."""
    import transformers as tf
    from models import MODELS
    task, spec = MODELS[case["model"]]; spec = dict(spec); mt = spec.pop("model_type")
    for k in ("num_hidden_layers", "n_layer"):
        if "layers" in case and k in spec: spec[k] = case["layers"]
    spec.update(case.get("config", {}))
    return tf.AutoConfig.for_model(mt, **spec)

def saved(case): return os.path.join(tempfile.gettempdir(), "q_%s_%d" % (case["id"], case["port"]))

def save(case, cfg, rank, torch, tf):
    """What a quantised base is loaded from, before there is a process group: rank 0 writes, the others wait."""
    done = saved(case) + ".done"
    if rank == 0:
        tf.AutoModelForCausalLM.from_config(cfg, dtype=torch.bfloat16).save_pretrained(saved(case), is_main_process=True)
        open(done, "w").close()
    while not os.path.exists(done): time.sleep(.05)

def build(case, cfg, rank, torch, tf):
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[case["weights_dtype"]]
    attention = case.get("attention", "sdpa")
    if not case.get("quantize"):
        m = tf.AutoModelForCausalLM.from_config(cfg, dtype=dtype, attn_implementation=attention)
    else:
        bnb = tf.BitsAndBytesConfig(load_in_8bit=True) if case["quantize"] == "int8" else tf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=case["quantize"] == "nf4-double", bnb_4bit_compute_dtype=torch.bfloat16,
                                    bnb_4bit_quant_storage={"bf16": torch.bfloat16}.get(case.get("quant_storage"), torch.uint8))
        where = dict(device_map={"": "cpu"}) if case.get("offload_parameters") else {}
        m = tf.AutoModelForCausalLM.from_pretrained(saved(case), quantization_config=bnb, dtype=dtype, attn_implementation=attention, **where)
    if case.get("prepare_kbit"):
        from peft import prepare_model_for_kbit_training
        m = prepare_model_for_kbit_training(m, use_gradient_checkpointing=case.get("checkpointing") == "full")
    if case.get("lora"):
        from peft import LoraConfig, get_peft_model
        m = get_peft_model(m, LoraConfig(r=case["lora"], lora_alpha=16, target_modules="all-linear", lora_dropout=case.get("lora_dropout", 0.0)))
        if case.get("checkpointing") == "full" and not case.get("prepare_kbit"): m.enable_input_require_grads()
    return m

def run_case(case, rank, outdir):
    import torch, transformers as tf, measure_trainer as T
    from measure_parallel import nvml, write_history
    world = case["gpus"]
    if case.get("nocard"): nvml = lambda rank: 0
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world), LOCAL_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case["port"]))
    torch.set_num_threads(14); torch.manual_seed(0)
    torch.cuda.set_device(rank); torch.zeros(1, device="cuda")
    if case.get("fake"):
        from torch.testing._internal.distributed.fake_pg import FakeStore
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    r = dict(cases.head(case), rank=rank, gpu="NVIDIA H200" if case.get("nocard") else torch.cuda.get_device_name(0), nvml_context=nvml(rank))
    kw = dict(output_dir=os.path.join(tempfile.gettempdir(), "t_" + case["id"]), per_device_train_batch_size=case["batch_size"], max_steps=3, bf16=case["precision"] == "amp-bf16",
              gradient_accumulation_steps=case.get("accumulation_steps", 1), gradient_checkpointing=case.get("checkpointing") == "full", max_grad_norm=case.get("max_grad_norm", 1.0),
              report_to="none", logging_strategy="no", save_strategy="no", disable_tqdm=True, dataloader_num_workers=0, remove_unused_columns=False)
    if case["parallel"].startswith("fsdp"): kw.update(fsdp=True, fsdp_config=dict(version=int(case["parallel"][-1]), **(dict(cpu_offload=True) if case.get("offload_parameters") else {})))
    if case["parallel"].startswith("ds-"): kw.update(deepspeed=ds_config(case))
    cfg = config_of(case)
    if case.get("quantize"): save(case, cfg, rank, torch, tf)
    args = tf.TrainingArguments(**kw)
    A, R, P = torch.cuda.memory_allocated, torch.cuda.memory_reserved, torch.cuda.max_memory_allocated
    gc.collect(); torch.cuda.empty_cache(); base = A(); history = case.get("history", False); marks = []
    if history: torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=1000000)
    n = lambda: len(torch.cuda.memory._snapshot()["device_traces"][rank]) if history else 0
    mark = lambda name: marks.append([n(), name, A() - base, R(), P() - base]) if history else None
    mark("start")
    items, collate = T.dataset(case, "causal", cfg.vocab_size, n=case["batch_size"] * world * case.get("accumulation_steps", 1) * 4)
    m = build(case, cfg, rank, torch, tf)
    r["params"] = sum(getattr(p, "ds_numel", p.numel()) for p in m.parameters()); r["trainable"] = sum(getattr(p, "ds_numel", p.numel()) for p in m.parameters() if p.requires_grad)
    r["alloc_after_model"] = A() - base; mark("model")
    class Marks(tf.TrainerCallback):
        def on_step_begin(self, args, state, *a, **k):
            if state.global_step == 0: r.update(alloc_after_wrap=A() - base, reserved_after_wrap=R()); torch.cuda.reset_peak_memory_stats()
            mark("step %d begin" % state.global_step)
        def on_step_end(self, args, state, *a, **k): torch.cuda.synchronize(); mark("step %d end" % (state.global_step - 1))
    t = tf.Trainer(model=m, args=args, train_dataset=items, data_collator=collate, callbacks=[Marks()]); del m
    t.train()
    r.update(optim=str(args.optim), wrapped=type(t.model_wrapped).__name__, peak_allocated=P() - base, peak_reserved=torch.cuda.max_memory_reserved(), alloc_end=A() - base,
             nvml_after=nvml(rank), retries=torch.cuda.memory_stats()["num_alloc_retries"])
    if case["parallel"].startswith("fsdp") and rank == 0:
        r["units"] = [n for n, x in t.model_wrapped.named_modules() if type(x).__name__.startswith("FSDP")][:40]
    if case["parallel"].startswith("ds-") and rank == 0: r["zero_config"] = {k: str(v) for k, v in t.model_wrapped._config.zero_config.__dict__.items() if k in ("reduce_bucket_size", "prefetch_bucket_size", "param_persistence_threshold", "overlap_comm", "contiguous_gradients", "reduce_scatter")}
    if history and rank in case.get("ranks", [0]): write_history(case, rank, marks, r, outdir, torch)
    return r

def child(c, rank, outdir, out):
    try: r = run_case(c, rank, outdir)
    except BaseException as e: r = dict(cases.head(c), rank=rank, error=repr(e)[:500], tb=traceback.format_exc()[-2500:])
    with open(os.path.join(outdir, "rows.%d.jsonl" % rank), "a") as f: f.write(json.dumps(r) + "\n")
    if out is not None: os.write(out, (" ".join([c["id"], str(rank), (r.get("error") or "peak %.1f res %.1f MiB" % (r["peak_allocated"] / 2**20, r["peak_reserved"] / 2**20))[:260]]) + "\n").encode())
    os._exit(0)

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=400)
    ap.add_argument("--only"); ap.add_argument("--direct"); ap.add_argument("--rank", type=int); ap.add_argument("--port", type=int); a = ap.parse_args(); t0 = time.time()
    os.makedirs(a.outdir, exist_ok=True)
    if a.direct: child(dict(cases.flat(json.loads(a.direct)), port=a.port), a.rank, a.outdir, None)
    import torch, transformers, torch.distributed.fsdp, torch.distributed.tensor, accelerate
    import transformers.models.llama.modeling_llama, transformers.models.auto.modeling_auto
    from transformers import Trainer, TrainingArguments, TrainerCallback, default_data_collator
    print("imports %.1f" % (time.time() - t0), transformers.__version__, accelerate.__version__, flush=True)
    for i, c in enumerate(cases.read(a.cases)):
        if a.only and a.only not in c["id"]: continue
        if time.time() - t0 > a.budget: print("budget spent before", c["id"], flush=True); continue
        c["port"] = 29800 + i; t = time.time(); pids = []
        for rank in [0] if c.get("fake") else range(c["gpus"]):
            pid = os.fork()
            if pid == 0:
                out = os.dup(1); log = os.open(os.path.join(a.outdir, "noise.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND); os.dup2(log, 1); os.dup2(log, 2)
                if c.get("quantize") or c.get("nocard"):
                    os.environ["PYTHONPATH"] = os.environ.get("BNB", "") + ":" + os.environ.get("PYTHONPATH", "")
                    os.execv(sys.executable, [sys.executable, sys.argv[0], a.cases, a.outdir, "--direct", json.dumps(cases.head(c)), "--rank", str(rank), "--port", str(c["port"])])
                child(c, rank, a.outdir, out)
            pids.append(pid)
        deadline = time.time() + c.get("limit", 45); left = set(pids)
        while left and time.time() < deadline:
            for p in list(left):
                if os.waitpid(p, os.WNOHANG)[0]: left.discard(p)
            time.sleep(.02)
        for p in left: os.kill(p, 9); os.waitpid(p, 0); print("killed", c["id"], flush=True)
        print("   %.1fs" % (time.time() - t), flush=True)
if __name__ == "__main__": main()
