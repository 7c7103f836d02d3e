"""What experts and Adafactor take on the host and on the card, part by part: no profiler before the last part.

usage: expert_parts.py OUT.jsonl [--parts adafactor,operators,turns,kernels] [--seconds N] [--device cuda]
Each part runs in a process of its own and appends lines:
  adafactor  a step over lists of small parameters that take turns (nothing for the card to do): microseconds a parameter
  operators  one operator in a loop, microseconds of the host; of those that wait for the card, the whole call
  turns      tiny models of families with experts at two depths, and LLaMA, take turns: forward, backward (host, from an idle card) and until
             the card is done, a forward without autograd (grouped) and of one token by batched_mm: milliseconds of each round
  inside     where Python's time goes in a forward (cProfile), and what autograd's thread calls in a backward (torch.profiler without a card's events)
  kernels    last: the profiler's kernels of one layer of experts of real sizes, forward and backward
A loop of Python beside each round says whether the core is shared (docs/time.md).
"""
import argparse, json, os, sys, time, traceback

SMALL = dict(vocab_size=99, hidden_size=64, num_attention_heads=4, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def middle(values): return sorted(values)[len(values) // 2]


def spin():
    begin = time.perf_counter()
    x = 0
    for i in range(20000): x += i & 3
    return round(1e6 * (time.perf_counter() - begin), 1)


def config(family, layers):
    import transformers as tf
    kv = dict(SMALL, num_hidden_layers=layers, num_key_value_heads=2)
    latent = dict(SMALL, num_hidden_layers=layers, num_key_value_heads=4, intermediate_size=128, moe_intermediate_size=64, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=0,
                  kv_lora_rank=16, q_lora_rank=None, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16)
    return {
        "llama": lambda: tf.LlamaConfig(**kv, intermediate_size=128),
        "mixtral": lambda: tf.MixtralConfig(**kv, intermediate_size=128, num_local_experts=8),
        "qwen3_moe": lambda: tf.Qwen3MoeConfig(**kv, head_dim=16, intermediate_size=128, moe_intermediate_size=64, num_experts=8, num_experts_per_tok=2),
        "olmoe": lambda: tf.OlmoeConfig(**kv, intermediate_size=64, num_experts=8, num_experts_per_tok=2),
        "granitemoe": lambda: tf.GraniteMoeConfig(**kv, intermediate_size=64, num_local_experts=8),
        "gpt_oss": lambda: tf.GptOssConfig(**kv, head_dim=16, intermediate_size=64, num_local_experts=8, num_experts_per_tok=2),
        "deepseek_v2": lambda: tf.DeepseekV2Config(**latent),
        "deepseek_v3": lambda: tf.DeepseekV3Config(**latent, n_group=2, topk_group=1),
        "lfm2_moe": lambda: tf.Lfm2MoeConfig(**kv, intermediate_size=128, moe_intermediate_size=64, num_experts=8, num_experts_per_tok=2, num_dense_layers=0, layer_types=["full_attention"] * layers),
    }[family]()


TURNS = (("llama", "bf16"), ("llama", "fp32"), ("mixtral", "bf16"), ("mixtral", "fp32"), ("mixtral", "amp"), ("qwen3_moe", "bf16"), ("olmoe", "bf16"), ("granitemoe", "bf16"),
         ("gpt_oss", "bf16"), ("deepseek_v2", "bf16"), ("deepseek_v3", "bf16"), ("lfm2_moe", "bf16"), ("mixtral", "fp16"))


def build(family, layers, dtype, device):
    import torch, transformers as tf
    torch.manual_seed(0)
    cfg = config(family, layers)
    attention = "eager" if family == "gpt_oss" else "sdpa"
    model = tf.AutoModelForCausalLM.from_config(cfg, attn_implementation=attention).to({"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)).to(device).train()
    ids = torch.randint(5, 90, (1, 16), device=device)
    return model, dict(input_ids=ids, labels=ids)


def turns(emit, device, seconds, families=TURNS):
    import torch
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    models = {}
    for family, dtype in families:
        for layers in (2, 6):
            try: models[family, dtype, layers] = build(family, layers, dtype, device)
            except Exception as error: emit(kind="turns", family=family, dtype=dtype, layers=layers, error=repr(error)[:300])
    clock = time.perf_counter

    def once(model, batch, dtype):
        got = {}
        for p in model.parameters(): p.grad = None
        sync(); t = clock()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "amp"): loss = model(**batch).loss
        got["forward"] = clock() - t; sync(); got["forward_all"] = clock() - t
        t = clock(); loss.backward(); got["backward"] = clock() - t; sync(); got["backward_all"] = clock() - t
        return got

    def without(model, batch, batched):
        got = {}
        kw = dict(input_ids=batch["input_ids"][:, :1] if batched else batch["input_ids"], use_cache=False)
        with torch.no_grad():
            sync(); t = clock(); model(**kw); got["token" if batched else "plain"] = clock() - t; sync()
        return got

    rows, spins, end = {key: {} for key in models}, [], None
    failed = set()
    for round_ in range(40):
        if round_ == 2: end = clock() + seconds
        if end and clock() > end: break
        for key, (model, batch) in models.items():
            try:
                got = once(model, batch, key[1])
                if key[1] in ("bf16",):
                    got |= without(model, batch, False)
                    if hasattr(model, "set_experts_implementation") and key[0] != "llama" and (key, "b") not in failed:
                        was = model.config._experts_implementation
                        try:
                            model.set_experts_implementation("batched_mm"); got |= without(model, batch, True)
                        except Exception as error:
                            failed.add((key, "b")); emit(kind="turns", family=key[0], error="batched: " + repr(error)[:200])
                        model.set_experts_implementation(was if was else "grouped_mm")
                    elif key[0] == "llama": got |= without(model, batch, True)
            except Exception as error:
                if key not in failed: emit(kind="turns", family=key[0], dtype=key[1], layers=key[2], error=traceback.format_exc()[-400:])
                failed.add(key)
                continue
            if round_ >= 2:
                for name, value in got.items(): rows[key].setdefault(name, []).append(round(1e3 * value, 3))
        spins.append(spin())
    import transformers
    for (family, dtype, layers), row in rows.items(): emit(kind="turns", transformers=transformers.__version__, family=family, dtype=dtype, layers=layers, ms={k: v for k, v in row.items()})
    emit(kind="spin", part="turns", us=spins)


def adafactor(emit, device, seconds):
    import torch
    from transformers.optimization import Adafactor
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    lists = {}
    for shape in ((64,), (64, 64), (8, 64, 64)):
        for dtype in (torch.float32, torch.bfloat16):
            params = [torch.nn.Parameter(torch.randn(shape, device=device, dtype=dtype)) for _ in range(24)]
            for p in params: p.grad = torch.randn_like(p)
            name = f"{'x'.join(map(str, shape))} {str(dtype)[6:]}"
            lists["transformers", name] = Adafactor(params, lr=1e-5, relative_step=False, scale_parameter=False)
            if len(shape) < 3:
                again = [torch.nn.Parameter(p.detach().clone()) for p in params]
                for p in again: p.grad = torch.randn_like(p)
                lists["torch", name] = torch.optim.Adafactor(again, lr=1e-5)
                if dtype == torch.float32:
                    other = [torch.nn.Parameter(p.detach().clone()) for p in params]
                    for p in other: p.grad = torch.randn_like(p)
                    lists["relative", name] = Adafactor(other)
    llama, batch = build("llama", 4, "bf16", device)
    rows, tiny, spins = {k: [] for k in lists}, [], []
    end = time.perf_counter() + seconds
    for round_ in range(60):
        if time.perf_counter() > end: break
        for key, opt in lists.items():
            sync(); t = time.perf_counter(); opt.step(); us = 1e6 * (time.perf_counter() - t) / 24; sync()
            if round_ > 1: rows[key].append(round(us, 1))
        sync(); t = time.perf_counter(); loss = llama(**batch).loss; f = time.perf_counter() - t; sync(); t = time.perf_counter(); loss.backward(); b = time.perf_counter() - t; sync()
        tiny.append([round(1e3 * f, 3), round(1e3 * b, 3)]); spins.append(spin())
    for (which, name), us in rows.items(): emit(kind="adafactor", optimizer=which, of=name, us=us)
    emit(kind="adafactor", optimizer="tiny llama of 4 layers", ms=tiny)
    emit(kind="spin", part="adafactor", us=spins)


def cases(device):
    """name: (call, waits): of one matrix of Adafactor's, of a layer of experts with 16 tokens and of a decoder's token."""
    import torch
    F = torch.nn.functional
    f32 = dict(device=device)
    b16 = dict(device=device, dtype=torch.bfloat16)
    m, y, r, c, s, v = torch.rand(64, 64, **f32), torch.rand(64, 64, **f32), torch.rand(64, **f32), torch.rand(64, **f32), torch.rand((), **f32), torch.rand(64, **f32)
    mb = torch.rand(64, 64, **b16)
    h, w = torch.randn(16, 64, **b16), torch.randn(8, 128, 64, **b16)
    d = torch.randn(8, 64, 64, **b16)
    ids = torch.randint(0, 8, (32,), device=device)
    perm = torch.randperm(32, device=device)
    places = torch.empty_like(perm)
    hg, gu = h[perm // 2], torch.randn(32, 128, **b16)
    offs = torch.arange(4, 36, 4, device=device, dtype=torch.int32)
    offs_host = offs.cpu()
    x32, w32 = torch.randn(32, 64, **f32), torch.randn(8, 128, 64, **f32)
    logits = torch.randn(16, 8, **f32)
    mask = (torch.sort(ids)[0] >= 8).unsqueeze(-1)
    one = ids[:2].clone()
    gp = gu.clone().requires_grad_(True)
    cases = {
        "mul": lambda: m * y, "mul_ number": lambda: m.mul_(1.0), "pow": lambda: m ** 2, "add number": lambda: m + 1e-30, "mean -1": lambda: m.mean(dim=-1), "mean -2": lambda: m.mean(dim=-2),
        "mean keepdim": lambda: r.mean(dim=-1, keepdim=True), "norm": lambda: m.norm(2), "norm v": lambda: v.norm(2), "scalar / number": lambda: s / 64.0, "scalar clamp_": lambda: s.clamp_(min=1.0), "div_ scalar": lambda: m.div_(s),
        "neg": lambda: -m, "add_": lambda: m.add_(y), "add_ alpha": lambda: r.add_(c, alpha=0.5), "rsqrt": lambda: c.rsqrt(), "mul outer": lambda: torch.mul(r.unsqueeze(-1), c.unsqueeze(-2)), "unsqueeze": lambda: r.unsqueeze(-1), "float": lambda: mb.float(), "copy_": lambda: mb.copy_(m),
        "reshape": lambda: h.reshape(-1), "sort": lambda: torch.sort(ids), "floor divide": lambda: perm // 2, "index rows": lambda: h[perm // 2], "index": lambda: r[perm], "int": lambda: ids.int(),
        "histc": lambda: torch.histc(offs, bins=8, min=0, max=7), "cumsum": lambda: torch.cumsum(offs, dim=0, dtype=torch.int32), "ge": lambda: ids >= 8, "clamp_": lambda: ids.clamp_(max=7), "masked_fill_": lambda: hg.masked_fill_(mask, 0.0),
        "masked_fill": lambda: hg.masked_fill(mask, 0.0), "grouped_mm": lambda: F.grouped_mm(hg, w.transpose(-2, -1), offs=offs), "chunk": lambda: gu.chunk(2, dim=-1), "silu": lambda: F.silu(gu), "empty_like": lambda: torch.empty_like(perm),
        "arange": lambda: torch.arange(32, device=device), "index_put": lambda: places.__setitem__(perm, ids), "sum": lambda: gu.view(16, 2, 128).sum(dim=1), "softmax": lambda: F.softmax(logits, dim=-1, dtype=torch.float32), "topk": lambda: torch.topk(logits, 2, dim=-1),
        "div_ sum": lambda: logits.div_(logits.sum(dim=-1, keepdim=True)), "one_hot": lambda: F.one_hot(ids, 8), "linear": lambda: F.linear(h, d[0]), "mm": lambda: torch.mm(h, d[0]), "repeat_interleave": lambda: h.repeat_interleave(2, dim=0),
        "clamp": lambda: ids.clamp(0, 7), "gather experts": lambda: w[one], "bmm": lambda: torch.bmm(w[:2], h[:2].unsqueeze(-1)).squeeze(-1), "slice": lambda: hg[2:4], "select": lambda: w[3],
        "mm out": lambda: torch.mm(x32[0:4], w32[0].t(), out=x32.new_empty(4, 128)),
        "index_add_": lambda: h.index_add_(0, one, gu[:2, :64].contiguous()),
        # those that wait
        "item": lambda: s.item(), "bool": lambda: bool(s > 0.5), "tolist": lambda: offs.tolist(), "cpu": lambda: offs.cpu(), "nonzero": lambda: torch.nonzero(mask), "where": lambda: torch.where(mask), "grouped_mm 8 in fp32": lambda: F.grouped_mm(x32, w32.transpose(-2, -1), offs=offs),
        "grouped_mm 8 in fp16": lambda: F.grouped_mm(hg.half(), w.half().transpose(-2, -1), offs=offs), "index by bool": lambda: h[h[:, 0] > 0], "max of two": lambda: max(1e-3, s),
    }
    waits = {"item", "bool", "tolist", "cpu", "nonzero", "where", "grouped_mm 8 in fp32", "grouped_mm 8 in fp16", "index by bool", "max of two"}
    return {name: (call, name in waits) for name, call in cases.items()}


def operators(emit, device, seconds):
    import torch
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    got, spins, end = {}, [], time.perf_counter() + seconds
    with torch.no_grad():
        all_of = cases(device)
        for round_ in range(12):
            if time.perf_counter() > end: break
            for name, (call, waits) in list(all_of.items()):
                n = 20 if waits else 60
                try:
                    call(); sync(); t = time.perf_counter()
                    for _ in range(n): call()
                    got.setdefault(name, []).append(round(1e6 * (time.perf_counter() - t) / n, 2)); sync()
                except Exception as error:
                    emit(kind="operator", name=name, error=repr(error)[:200]); all_of.pop(name)
            spins.append(spin())
    for name, us in got.items(): emit(kind="operator", name=name, us=us)
    emit(kind="spin", part="operators", us=spins)


# (family, tokens, hidden, inner, experts, chosen, dtype)
KERNELS = (("mixtral", 4096, 1024, 3584, 8, 2, "bf16"), ("mixtral", 1024, 1024, 1024, 8, 2, "bf16"), ("qwen3_moe", 4096, 2048, 768, 128, 8, "bf16"), ("qwen3_moe", 1024, 1024, 384, 32, 4, "bf16"), ("olmoe", 8192, 2048, 1024, 64, 8, "bf16"),
           ("granitemoe", 2048, 1024, 512, 32, 8, "bf16"), ("gpt_oss", 2048, 1024, 1024, 8, 2, "bf16"), ("deepseek_v3", 4096, 1024, 512, 16, 4, "bf16"), ("mixtral", 2048, 1024, 1024, 8, 2, "fp16"), ("qwen3_moe", 2048, 1024, 512, 16, 4, "fp32"))


def kernels(emit, device, seconds):
    import torch, transformers as tf
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import profile_steps
    from torch.profiler import ProfilerActivity as PA, profile
    end = time.perf_counter() + seconds
    for family, tokens, hidden, inner, experts, chosen, dtype in KERNELS:
        if time.perf_counter() > end: break
        try:
            cfg = config(family, 1)
            for name, value in dict(hidden_size=hidden, intermediate_size=inner, moe_intermediate_size=inner, num_experts=experts, num_local_experts=experts, n_routed_experts=experts, num_experts_per_tok=chosen, n_group=4 if family == "deepseek_v3" else None,
                                    topk_group=2 if family == "deepseek_v3" else None, num_attention_heads=8, num_key_value_heads=8 if "deepseek" in family else 2).items():
                if value is not None and hasattr(cfg, name): setattr(cfg, name, value)
            torch.manual_seed(0)
            model = tf.AutoModelForCausalLM.from_config(cfg, attn_implementation="eager" if family == "gpt_oss" else "sdpa").to({"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]).to(device).train()
            ids = torch.randint(5, 90, (tokens // 512, 512), device=device)
            for _ in range(2): model(input_ids=ids, labels=ids).loss.backward()
            counts = []
            histc = torch.histc
            def counted(*a, **k):
                out = histc(*a, **k); counts.append(out); return out
            torch.histc = counted
            model(input_ids=ids, labels=ids).loss.backward(); torch.cuda.synchronize()
            torch.histc = histc
            with profile(activities=[PA.CPU, PA.CUDA], record_shapes=True) as p:
                model(input_ids=ids, labels=ids).loss.backward(); torch.cuda.synchronize()
            emit(kind="kernels", family=family, tokens=tokens, hidden=hidden, inner=inner, experts=experts, chosen=chosen, dtype=dtype, rows_of_experts=[each.tolist() for each in counts][:1], **profile_steps.operators(p))
            del model
        except Exception as error: emit(kind="kernels", family=family, dtype=dtype, error=traceback.format_exc()[-500:])


def inside(emit, device, seconds, families=(("llama", "bf16"), ("mixtral", "bf16"), ("mixtral", "fp16"))):
    """Where Python's time goes within a forward (cProfile: each built-in function), and what autograd's thread does in a backward."""
    import cProfile, pstats
    import torch
    from torch.profiler import ProfilerActivity as PA, profile
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    models = {(f, d): build(f, 6, d, device) for f, d in families}
    for (family, dtype), (model, batch) in models.items():
        for _ in range(3): model(**batch).loss.backward()
        sync()
        t = time.perf_counter()
        for _ in range(6): sync(); model(**batch)
        plain = (time.perf_counter() - t) / 6
        profiler = cProfile.Profile(); profiler.enable()
        for _ in range(10): sync(); model(**batch)
        profiler.disable()
        rows = [[f"{name[0][-40:]}:{name[1]}({name[2]})", calls / 10, round(1e5 * own, 1), round(1e5 * total, 1)] for name, (_, calls, own, total, _) in pstats.Stats(profiler).stats.items()]
        emit(kind="inside", family=family, dtype=dtype, layers=6, forward_ms=round(1e3 * plain, 3), columns=["function", "calls", "own us", "us in all"], rows=sorted(rows, key=lambda r: -r[2])[:90])
    for (family, dtype), (model, batch) in models.items():
        loss = model(**batch).loss; sync()
        with profile(activities=[PA.CPU]) as p: loss.backward(); sync()
        ops = {}
        for e in p.profiler.kineto_results.events():
            row = ops.setdefault(e.name()[:60], [0, 0.0]); row[0] += 1; row[1] += e.duration_ns() / 1e3
        own = {}
        for e in p.events():
            row = own.setdefault(e.name[:60], [0, 0.0]); row[0] += 1; row[1] += e.self_cpu_time_total
        emit(kind="backward", family=family, dtype=dtype, layers=6, columns=["calls", "us", "own us"], ops={k: [v[0], round(v[1], 1), round(own.get(k, [0, 0])[1], 1)] for k, v in sorted(ops.items(), key=lambda kv: -kv[1][1])[:80]})
    emit(kind="spin", part="inside", us=[spin() for _ in range(5)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--parts", default="adafactor,operators,turns,kernels")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--families", default="")
    a = parser.parse_args()

    def emit(**row):
        with open(a.out, "a") as f: f.write(json.dumps(row, separators=(",", ":")) + "\n")
    import torch, transformers  # noqa: F401
    import transformers.optimization  # noqa: F401
    for part in a.parts.split(","):
        child = os.fork()
        if child == 0:
            begin = time.time()
            try:
                more = {}
                if part in ("turns", "inside") and a.families: more["families"] = [tuple(each.split(":")) for each in a.families.split(",")]
                dict(adafactor=adafactor, operators=operators, turns=turns, inside=inside, kernels=kernels)[part](emit, a.device, a.seconds, **more)
            except Exception: emit(kind=part, error=traceback.format_exc()[-600:])
            print(part, round(time.time() - begin, 1), "s", flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__": main()
