"""What calls of models are made of, apart from any model's own size: the host's microseconds of operators with and without
autograd, of tiny models' forward and of a token of generate() (whose kernels take no time), and the card's of products of few
rows, of attention of one query and of what generate() does to logits.
usage: inference_parts.py OUT.jsonl [--seconds N]"""
import argparse, json, statistics, time
import torch
import torch.nn.functional as F

A = argparse.ArgumentParser(); A.add_argument("out"); A.add_argument("--seconds", type=float, default=150); A = A.parse_args()
OUT, START, DEV = open(A.out, "a"), time.time(), "cuda"
left = lambda: A.seconds - (time.time() - START)


def emit(kind, **values):
    OUT.write(json.dumps(dict(kind=kind, **values)) + "\n"); OUT.flush()


def per(call, n=200, rounds=7):
    call(); torch.cuda.synchronize(); best = []
    for _ in range(rounds):
        t = time.perf_counter()
        for _ in range(n): call()
        best.append((time.perf_counter() - t) / n * 1e6); torch.cuda.synchronize()
    return round(statistics.median(best), 2)


def operators():
    def rq(*s, dtype=torch.float32): return torch.randn(*s, device=DEV, dtype=dtype, requires_grad=True)
    x, y, v4 = rq(8, 64), rq(8, 64), rq(2, 16, 4, 64)
    lin, ln = torch.nn.Linear(64, 64, device=DEV), torch.nn.LayerNorm(64, device=DEV)
    q = rq(2, 4, 16, 64, dtype=torch.bfloat16); q1 = rq(2, 4, 1, 64, dtype=torch.bfloat16); k = rq(2, 4, 33, 64, dtype=torch.bfloat16)
    class Empty(torch.nn.Module):
        def forward(self, x): return x
    e = Empty(); ids = torch.randint(0, 64, (2, 16), device=DEV); emb = torch.nn.Embedding(64, 64, device=DEV)
    calls = {"add": lambda: x + y, "scale": lambda: x * 0.5, "gelu": lambda: F.gelu(x), "cast": lambda: x.to(torch.bfloat16), "view": lambda: v4.view(2, 16, 256),
             "transpose": lambda: v4.transpose(1, 2), "slice": lambda: v4[..., :32], "cat": lambda: torch.cat((x, y), -1), "layer_norm": lambda: ln(x), "linear": lambda: lin(x),
             "matmul": lambda: x @ y.t(), "attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True), "attention_one": lambda: F.scaled_dot_product_attention(q1, k, k),
             "mean": lambda: x.pow(2).mean(-1, keepdim=True), "rsqrt": lambda: torch.rsqrt(x), "module": lambda: e(x), "embedding": lambda: emb(ids), "argmax": lambda: x.argmax(-1),
             "item": lambda: bool(ids.max() == 0)}
    for name, call in calls.items():
        both = []
        for grad in (True, False):
            with torch.set_grad_enabled(grad): both.append(per(call))
        emit("operator", name=name, grad_us=both[0], no_grad_us=both[1])


SMALL = dict(vocab_size=99, hidden_size=64, num_attention_heads=4, intermediate_size=128)


def tiny(family, layers):
    import transformers as tf
    n = dict(num_hidden_layers=layers)
    return {
        "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(num_key_value_heads=2, **SMALL, **n)),
        "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(num_key_value_heads=2, head_dim=16, **SMALL, **n)),
        "gemma3": lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(num_key_value_heads=2, head_dim=16, **SMALL, **n)),
        "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=99, n_embd=64, n_layer=layers, n_head=4)),
        "gpt_neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**SMALL, **n)),
        "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(vocab_size=99, hidden_size=64, ffn_dim=128, num_attention_heads=4, word_embed_proj_dim=64, **n)),
        "mixtral": lambda: tf.MixtralForCausalLM(tf.MixtralConfig(num_key_value_heads=2, num_local_experts=4, **SMALL, **n)),
        "t5": lambda: tf.T5ForConditionalGeneration(tf.T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=128, num_layers=layers, num_heads=4, decoder_start_token_id=0, pad_token_id=0)),
        "bart": lambda: tf.BartForConditionalGeneration(tf.BartConfig(vocab_size=99, d_model=64, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128)),
    }[family]().to(DEV, torch.bfloat16)


def host_ms(call, n):
    times = []
    for i in range(n + 3):
        torch.cuda.synchronize(); t = time.perf_counter(); out = call(); times.append(1e3 * (time.perf_counter() - t)); torch.cuda.synchronize(); del out
    return round(statistics.median(times[3:]), 3)


def models():
    for family in ("llama", "qwen3", "gpt2", "gemma3", "t5", "mixtral", "gpt_neox", "opt", "bart"):
        for layers in (2, 8):
            if left() < 5: return
            model = tiny(family, layers)
            ids = torch.randint(5, 90, (1, 16), device=DEV)
            batch = dict(input_ids=ids)
            grad = dict(batch, labels=ids)
            row = dict(family=family, layers=layers, parameters=sum(1 for _ in model.parameters()))
            model.train()
            row["train_forward_ms"] = host_ms(lambda: model(**grad).loss, 9)
            model.eval()
            with torch.no_grad():
                row["forward_ms"] = host_ms(lambda: model(**(grad if family in ("t5", "bart") else batch)), 9)
                def gen(new): return lambda: model.generate(**batch, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)
                row["generate_1_ms"], row["generate_17_ms"] = host_ms(gen(1), 7), host_ms(gen(17), 5)
                if family not in ("t5", "bart"):  # a decode's forward by itself
                    def decode():
                        past = model(**batch, use_cache=True).past_key_values
                        mask, pos = torch.ones(1, 17, dtype=torch.long, device=DEV), torch.tensor([[16]], device=DEV)
                        torch.cuda.synchronize(); t = time.perf_counter(); model(input_ids=ids[:, :1], past_key_values=past, attention_mask=mask, position_ids=pos, use_cache=True, logits_to_keep=1); d = 1e3 * (time.perf_counter() - t)
                        torch.cuda.synchronize(); return d
                    row["decode_forward_ms"] = round(statistics.median([decode() for _ in range(12)][3:]), 3)
            emit("model", **row)


def graph_us(calls, rounds=5):
    """Microseconds of each call on the card: all of them in a graph, so that the host counts for nothing."""
    for call in calls[:2]: call()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph(); repeats = max(1, 24 // len(calls))
    with torch.cuda.graph(g):
        for _ in range(repeats):
            for call in calls: call()
    g.replay(); torch.cuda.synchronize(); times = []
    for _ in range(rounds):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); g.replay(); b.record(); torch.cuda.synchronize(); times.append(a.elapsed_time(b) * 1e3 / (repeats * len(calls)))
    return round(statistics.median(times), 2)


SHAPES = ((2048, 2048), (512, 2048), (8192, 2048), (2048, 8192), (128256, 2048), (4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336), (32000, 4096), (11008, 4096), (4096, 11008),
          (896, 896), (128, 896), (4864, 896), (896, 4864), (151936, 1024), (768, 768), (3072, 768), (768, 3072), (50257, 768), (6400, 1600), (1600, 6400), (1600, 1600))


def products():
    for dtype, rows in ((torch.bfloat16, (1, 2, 4, 8, 16, 32, 64)), (torch.float32, (1, 4, 16)), (torch.float16, (1, 8))):
        for n, k in SHAPES:
            size = 2 if dtype != torch.float32 else 4
            copies = max(1, min(24, int(2.0e8 / (n * k * size)) + 1))
            weights = [torch.randn(n, k, device=DEV, dtype=dtype) for _ in range(copies)]
            for m in rows:
                if left() < 5: return
                x = torch.randn(m, k, device=DEV, dtype=dtype)
                with torch.no_grad(): us = graph_us([lambda w=w: F.linear(x, w) for w in weights])
                emit("product", dtype=str(dtype)[6:], m=m, n=n, k=k, layout="linear", us=us)
            if dtype == torch.bfloat16 and n in (768, 3072, 1600, 6400):  # Conv1D
                plain = [w.t().contiguous() for w in weights]; b = torch.randn(n, device=DEV, dtype=dtype)
                for m in rows:
                    x = torch.randn(m, k, device=DEV, dtype=dtype)
                    with torch.no_grad(): us = graph_us([lambda w=w: torch.addmm(b, x, w) for w in plain])
                    emit("product", dtype=str(dtype)[6:], m=m, n=n, k=k, layout="addmm", us=us)
            del weights


def attention():
    for dtype in (torch.bfloat16, torch.float32):
        for heads, width in ((32, 64), (12, 64), (32, 128), (8, 256)):
            for batch in (1, 4, 16):
                for keys in (128, 512, 1024, 2048, 4096):
                    if left() < 5: return
                    if batch * heads * width * keys * 4 > 1.2e9: continue
                    copies = max(1, min(12, int(1.5e8 / (2 * batch * heads * width * keys * 2)) + 1))
                    q = torch.randn(batch, heads, 1, width, device=DEV, dtype=dtype)
                    kv = [torch.randn(2, batch, heads, keys, width, device=DEV, dtype=dtype) for _ in range(copies)]
                    with torch.no_grad(): us = graph_us([lambda c=c: F.scaled_dot_product_attention(q, c[0], c[1]) for c in kv])
                    with torch.no_grad(): cat = graph_us([lambda c=c: torch.cat((c[0], q), -2) for c in kv])
                    emit("attention", dtype=str(dtype)[6:], batch=batch, heads=heads, width=width, keys=keys, us=us, cat_us=cat)


def logits():
    for rows, vocabulary in ((1, 32000), (1, 128256), (1, 151936), (8, 32000), (8, 128256), (16, 151936), (32, 50257)):
        if left() < 5: return
        x = torch.randn(rows, 1, vocabulary, device=DEV, dtype=torch.bfloat16); s = x[:, -1].to(torch.float32); e = torch.tensor([2], device=DEV)
        v = torch.arange(vocabulary, device=DEV)
        with torch.no_grad():
            emit("logits", rows=rows, vocabulary=vocabulary, float_us=graph_us([lambda: x[:, -1].to(copy=True, dtype=torch.float32)]), argmax_us=graph_us([lambda: s.argmax(-1)]),
                 isin_us=graph_us([lambda: torch.isin(v, e)]), where_us=graph_us([lambda: torch.where(v == 2, -float("inf"), s)]), softmax_us=graph_us([lambda: s.softmax(-1)]))


def quantised():
    import bitsandbytes as bnb
    for kind in ("nf4", "int8"):
        for n, k in ((2048, 2048), (8192, 2048), (2048, 8192), (4096, 4096), (14336, 4096), (4096, 14336)):
            make = (lambda: bnb.nn.Linear4bit(k, n, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").cuda()) if kind == "nf4" else (lambda: bnb.nn.Linear8bitLt(k, n, bias=False, has_fp16_weights=False).to(torch.float16).cuda())
            layers = [make() for _ in range(6)]
            for m in (1, 4, 16, 64, 512):
                if left() < 5: return
                x = torch.randn(m, k, device=DEV, dtype=torch.bfloat16 if kind == "nf4" else torch.float16)
                with torch.no_grad():
                    us = per(lambda: [l(x) for l in layers], 10, 5) / len(layers)
                    from torch.profiler import ProfilerActivity as PA, profile
                    with profile(activities=[PA.CUDA]) as p:
                        for _ in range(3):
                            for l in layers: l(x)
                        torch.cuda.synchronize()
                    ks = {}
                    for e in p.events():
                        if str(e.device_type).endswith("CUDA"):
                            c = ks.setdefault(e.name[:80], [0, 0.0]); c[0] += 1; c[1] += e.device_time_total
                emit("quantised", what=kind, m=m, n=n, k=k, call_us=round(us, 2), kernels=[[name, c / 18, round(t / c, 2)] for name, (c, t) in ks.items()])


def main():
    emit("machine", gpu=torch.cuda.get_device_name(0), torch=torch.__version__, cpu=next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if "model name" in l), ""))
    for part in (operators, models, products, attention, logits, quantised):
        t = time.time()
        try: part()
        except Exception as error:
            import traceback; emit("error", part=part.__name__, error=traceback.format_exc()[-600:])
        print(part.__name__, round(time.time() - t, 1), flush=True)


if __name__ == "__main__": main()
