"""FSDP2 with torch.compile of each block, activation checkpointing and float8, as torchtitan puts them together, on one
rank of torch's fake process group. The order is torchtitan's: torchao's conversion, checkpoint wrapper, compile,
fully_shard. A case (cases.py):
  run: model (a name of models.py: transformers' module; "titan-8b" or "titan-small": the LLaMA below), layers, batch_size,
  sequence_length, compile_parts (model: one graph of transformers' whole model, with its own checkpointing), gpus (1: no
  fully_shard), checkpointing, compile, float8, keep_last_layer (torchtitan's default), expandable, max_grad_norm, optimizer
  harness: keep_root, history, stacks, code (writes inductor's graphs and code), steps, limit, gib (a guess of what it needs:
  cases run beside one another while they fit)
usage: measure_titan.py CASES.jsonl OUTDIR --budget SECONDS --jobs N --gib CARD"""
import argparse, gc, gzip, json, os, sys, time, traceback, warnings
import cases
from collections import defaultdict
warnings.filterwarnings("ignore")

SIZES = {"titan-8b": dict(dim=4096, heads=32, kv=8, ffn=14336, vocab=128256, layers=32),
         "titan-small": dict(dim=2048, heads=16, kv=4, ffn=7168, vocab=32000, layers=2)}

def make_titan(size, seq, torch):
    """A LLaMA with torchtitan's operators: rotation in complex float32, key heads copied, nn.RMSNorm."""
    nn, F = torch.nn, torch.nn.functional
    head = size["dim"] // size["heads"]
    def rotated(x, angles):
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * angles[: x.shape[1]].view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)
    class Attention(nn.Module):
        def __init__(s):
            super().__init__()
            s.wq, s.wo = (nn.Linear(size["dim"], size["dim"], bias=False) for _ in range(2))
            s.wk, s.wv = (nn.Linear(size["dim"], size["kv"] * head, bias=False) for _ in range(2))
        def forward(s, x, angles):
            b, t, _ = x.shape
            q, k, v = s.wq(x), s.wk(x), s.wv(x)
            q, k, v = (y.view(b, t, -1, head) for y in (q, k, v))
            q, k = rotated(q, angles), rotated(k, angles)
            n = size["heads"] // size["kv"]
            many = lambda y: y.unsqueeze(3).expand(b, t, size["kv"], n, head).reshape(b, t, size["heads"], head)
            k, v = many(k), many(v)
            o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
            return s.wo(o.transpose(1, 2).contiguous().view(b, t, -1))
    class FeedForward(nn.Module):
        def __init__(s):
            super().__init__()
            s.w1, s.w3 = (nn.Linear(size["dim"], size["ffn"], bias=False) for _ in range(2))
            s.w2 = nn.Linear(size["ffn"], size["dim"], bias=False)
        def forward(s, x): return s.w2(F.silu(s.w1(x)) * s.w3(x))
    class Block(nn.Module):
        def __init__(s):
            super().__init__()
            s.attention, s.feed_forward = Attention(), FeedForward()
            s.attention_norm, s.ffn_norm = nn.RMSNorm(size["dim"], eps=1e-5), nn.RMSNorm(size["dim"], eps=1e-5)
        def forward(s, x, angles):
            h = x + s.attention(s.attention_norm(x), angles)
            return h + s.feed_forward(s.ffn_norm(h))
    class Titan(nn.Module):
        def __init__(s):
            super().__init__()
            s.tok_embeddings = nn.Embedding(size["vocab"], size["dim"])
            s.register_buffer("angles", s.table())
            s.layers = nn.ModuleDict({str(i): Block() for i in range(size["layers"])})
            s.norm = nn.RMSNorm(size["dim"], eps=1e-5)
            s.output = nn.Linear(size["dim"], size["vocab"], bias=False)
        def table(s):
            f = 1.0 / (500000.0 ** (torch.arange(0, head, 2).float() / head))
            f = torch.outer(torch.arange(seq).float(), f)
            return torch.polar(torch.ones_like(f), f)
        def forward(s, ids):
            h = s.tok_embeddings(ids)
            for layer in s.layers.values(): h = layer(h, s.angles)
            return s.output(s.norm(h))
    with torch.device("meta"): return Titan()

def make_hf(name, case, torch):
    import transformers as tf
    from models import MODELS
    spec = dict(MODELS[name][1]); mt = spec.pop("model_type")
    if "layers" in case: spec["num_hidden_layers"] = case["layers"]
    with torch.device("meta"): return tf.AutoModelForCausalLM.from_config(tf.AutoConfig.for_model(mt, **spec), dtype=torch.float32, attn_implementation="sdpa")

def blocks(m):
    """The modules that hold the blocks: name in their parent and block."""
    parent = m.layers if hasattr(m, "layers") else m.model.layers
    return parent, list(parent.named_children())

def selective_context(torch):
    """torchtitan's policy: products, all but every second one, attention, and absolute maxima are kept."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    aten = torch.ops.aten
    kept = {aten.mm.default, aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_cudnn_attention.default,
            torch.ops._c10d_functional.reduce_scatter_tensor.default, aten.max.default}
    counts = defaultdict(int)
    def policy(ctx, op, *args, **kwargs):
        pass_ = "again" if ctx.is_recompute else "first"
        if op == aten.mm.default: counts[pass_] += 1
        keep = op in kept and not (op == aten.mm.default and counts[pass_] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)

def wrap(m, case, torch):
    import torch.distributed as dist
    if case.get("float8"):
        from torchao.float8 import convert_to_float8_training, Float8LinearConfig
        config = Float8LinearConfig.from_recipe_name("rowwise") if case["float8"] == "rowwise" else Float8LinearConfig(enable_fsdp_float8_all_gather=case["float8"] == "tensorwise-gather")
        convert_to_float8_training(m, config=config, module_filter_fn=lambda x, name: name not in ("output", "lm_head"))
    parent, named = blocks(m)
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    for name, b in named:
        if case.get("compile_parts") == "model": continue
        if case.get("checkpointing") == "full": b = checkpoint_wrapper(b, preserve_rng_state=False)
        elif case.get("checkpointing") == "selective": b = checkpoint_wrapper(b, context_fn=lambda: selective_context(torch), preserve_rng_state=False)
        if case.get("compile"): b = torch.compile(b, fullgraph=True)
        parent.register_module(name, b)
    if case.get("gpus", 1) > 1:
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
        from torch.distributed.device_mesh import init_device_mesh
        kw = dict(mesh=init_device_mesh("cuda", (case["gpus"],)), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
        _, named = blocks(m)
        for i, (name, b) in enumerate(named): fully_shard(b, **kw, reshard_after_forward=not (case.get("keep_last_layer") and i == len(named) - 1))
        fully_shard(m, **kw, reshard_after_forward=not case.get("keep_root", False))
    m.to_empty(device="cuda")
    with torch.no_grad():
        for p in m.parameters():
            x = p.to_local() if hasattr(p, "to_local") else p
            x = getattr(x, "_tensor", x)
            x.normal_(0, 0.02)
    if case.get("gpus", 1) == 1: m.to(torch.bfloat16)
    for x in m.modules():
        if hasattr(x, "table"): x.angles = x.table().cuda()
        if hasattr(x, "inv_freq"):
            c, x.attention_scaling = x.config, 1.0
            head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
            x.inv_freq = x.original_inv_freq = 1.0 / (10000.0 ** (torch.arange(0, head, 2, dtype=torch.float32, device="cuda") / head))
    return m.train()

def write_history(case, marks, r, outdir, torch):
    tr = torch.cuda.memory._snapshot()["device_traces"][0]; streams = {}
    low = min(e["addr"] for e in tr if e.get("addr"))
    with gzip.open(os.path.join(outdir, case["id"] + ".history.tsv.gz"), "wt", 6) as f:
        f.write("# " + json.dumps(dict(cases.head(case), rank=0, gpu=r["gpu"], peak_allocated=r["peak_allocated"], peak_reserved=r["peak_reserved"])) + "\n# marks: [events so far, phase just ended, allocated, reserved, max allocated]\n")
        for k in marks: f.write("# " + json.dumps(k) + "\n")
        f.write("action\taddress\tsize\tstream\n")
        for e in tr:
            s = streams.setdefault(e.get("stream", 0), len(streams))
            line = "%s\t%d\t%d\t%d" % (e["action"], e.get("addr", 0) - low, e["size"], s)
            if case.get("stacks") and e["action"] == "alloc":
                frames = [q for q in e.get("frames", []) if not q["filename"].endswith(("_ops.py", "functional.py"))]
                line += "\t" + "<".join("%s:%s:%d" % (os.path.basename(q["filename"])[-24:], q["name"], q["line"]) for q in frames[:6])
            f.write(line + "\n")

def run_case(case, outdir):
    if case.get("expandable"): os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    import torch, torch.distributed as dist, torch._dynamo, torch._inductor.config
    if case.get("expandable"): torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    torch.cuda.set_device(0); torch.zeros(1, device="cuda"); r = dict(cases.head(case), rank=0, gpu=torch.cuda.get_device_name(0))
    A, R, P = torch.cuda.memory_allocated, torch.cuda.memory_reserved, torch.cuda.max_memory_allocated
    if case.get("gpus", 1) > 1:
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=case["gpus"])
    if case.get("code"):
        import logging, torch._logging
        torch._logging.set_logs(aot_joint_graph=True, aot_graphs=True, output_code=True)
        torch._inductor.config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = False  # a cached graph is not logged
    torch._dynamo.config.cache_size_limit = 64
    gc.collect(); torch.cuda.empty_cache(); base = A()
    history = case.get("history", False); marks = []
    if history: torch.cuda.memory._record_memory_history(enabled="all", context="alloc" if case.get("stacks") else None, stacks="python", max_entries=1000000)
    n = lambda: len(torch.cuda.memory._snapshot()["device_traces"][0]) if history else 0
    mark = lambda name: marks.append([n(), name, A() - base, R(), P() - base]) if history else None
    mark("start")
    titan = case["model"] in SIZES
    size = dict(SIZES[case["model"]]) if titan else None
    if titan and "layers" in case: size["layers"] = case["layers"]
    m = make_titan(size, case["sequence_length"], torch) if titan else make_hf(case["model"], case, torch)
    if not titan: m.config.use_cache = False
    if case.get("compile_parts") == "model" and case.get("checkpointing") == "full": m.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
    vocab = size["vocab"] if titan else m.config.vocab_size
    m = wrap(m, case, torch)
    generator = torch.Generator(device="cuda").manual_seed(0)
    ids = torch.randint(5, vocab, (case["batch_size"], case["sequence_length"]), device="cuda", generator=generator); labels = ids.clone(); del generator
    gc.collect(); torch.cuda.empty_cache(); mark("wrapped"); r["alloc_after_wrap"] = A() - base; torch.cuda.reset_peak_memory_stats()
    ps = list(m.parameters()); r["params"] = sum(p.numel() for p in ps)
    opt = torch.optim.AdamW(ps, lr=1e-5, **(dict(fused=True) if case.get("optimizer") == "adamw-fused" else dict(foreach=True)))
    def loss_of(pred, labels): return torch.nn.functional.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))
    if case.get("compile_parts") == "layers-loss": loss_of = torch.compile(loss_of)
    compiled = torch.compile(m) if case.get("compile_parts") == "model" else m
    def forward():
        if not titan: return compiled(input_ids=ids, labels=labels).loss
        pred = m(ids); loss = loss_of(pred, labels); del pred
        return loss
    phases = []; overall = 0
    def phase(step, name, f, *a):
        nonlocal overall
        torch.cuda.reset_peak_memory_stats(); b = A(); t = time.time(); x = f(*a)
        torch.cuda.synchronize()
        phases.append([step, name, b - base, P() - base, A() - base, R(), round(time.time() - t, 2)]); overall = max(overall, P() - base); mark(f"step {step} {name}"); return x
    for step in range(case.get("steps", 3)):
        opt.zero_grad(set_to_none=True); mark(f"step {step} zero_grad")
        l = phase(step, "forward", forward); phase(step, "backward", l.backward); del l
        if case.get("max_grad_norm"):
            norm = torch.nn.utils.clip_grad_norm_(ps, case["max_grad_norm"], foreach=True); del norm
        phase(step, "optimizer", opt.step)
        if case.get("float8") == "tensorwise-gather":
            from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp
            precompute_float8_dynamic_scale_for_fsdp(m)
    stats = torch.cuda.memory_stats()
    r.update(phases=phases, peak_allocated=overall, peak_reserved=max(x[5] for x in phases), retries=stats["num_alloc_retries"])
    # As torchtitan logs it: of the steps after the first.
    r["peak_reserved_later"] = max(x[5] for x in phases if x[0] > 0) if case.get("steps", 3) > 1 else None
    if history: write_history(case, marks, r, outdir, torch)
    return r

def run_one(c, outdir):
    if c.get("code"):  # the compiler logs to stderr
        os.dup2(os.open(os.path.join(outdir, c["id"] + ".code.txt"), os.O_WRONLY | os.O_CREAT, 0o644), 2)
    try: r = run_case(c, outdir)
    except BaseException as e: r = dict(cases.head(c), rank=0, error=repr(e)[:600], tb=traceback.format_exc()[-2500:])
    with open(os.path.join(outdir, "rows.jsonl"), "a") as f: f.write(json.dumps(r) + "\n")
    print(c["id"], (r.get("error") or "peak %.1f res %.1f later %.1f MiB" % tuple((r[k] or 0) / 2**20 for k in ("peak_allocated", "peak_reserved", "peak_reserved_later")))[:400], flush=True)
    sys.stdout.flush(); os._exit(0)

def can_fork():
    """Whether a forked child may use CUDA after this process's imports (some of torch's look at the card)."""
    import torch, torch.distributed.fsdp, torch.distributed.tensor.parallel, transformers
    import transformers.models.llama.modeling_llama
    sys.stdout.flush(); pid = os.fork()
    if pid == 0:
        try: torch.cuda.init(); os._exit(0)
        except BaseException: os._exit(1)
    return os.waitpid(pid, 0)[1] == 0

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("cases"); ap.add_argument("outdir"); ap.add_argument("--budget", type=float, default=190); ap.add_argument("--jobs", type=int, default=6); ap.add_argument("--gib", type=float, default=128)
    ap.add_argument("--one", action="store_true"); a = ap.parse_args(); t0 = time.time()
    if a.one: return run_one(cases.flat(json.loads(a.cases)), a.outdir)
    os.makedirs(a.outdir, exist_ok=True)
    forks = can_fork(); print("imports %.1f, %s" % (time.time() - t0, "forks" if forks else "a process of its own for each case"), flush=True)
    waiting = cases.read(a.cases); running = {}
    while waiting or running:
        left = a.budget + t0 - time.time()
        if waiting and left < 20: print("budget spent before", [c["id"] for c in waiting], flush=True); waiting = []
        for c in list(waiting):
            if len(running) >= a.jobs or sum(x["gib"] for x, _, _ in running.values()) + c["gib"] > a.gib: continue
            waiting.remove(c); sys.stdout.flush()
            if forks:
                pid = os.fork()
                if pid == 0: run_one(c, a.outdir)
            else: pid = os.posix_spawn(sys.executable, [sys.executable, os.path.abspath(__file__), json.dumps(cases.head(c)), a.outdir, "--one"], os.environ)
            running[pid] = (c, time.time(), time.time() + min(c.get("limit", 100), max(5, left)))
        for pid, (c, t, deadline) in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]: del running[pid]; print("   %s %.1fs, at %.1f" % (c["id"], time.time() - t, time.time() - t0), flush=True)
            elif time.time() > deadline: os.kill(pid, 9); os.waitpid(pid, 0); del running[pid]; print("killed", c["id"], flush=True)
        time.sleep(.02)
if __name__ == "__main__": main()
