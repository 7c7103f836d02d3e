"""Microseconds of the host by operator: the card is never waited for. usage: host_times.py OUT.jsonl"""
import json, sys, time, torch, torch.nn.functional as F
out = open(sys.argv[1], "w"); dev = "cuda"
def per(f, n=400):
    f(); torch.cuda.synchronize(); best = []
    for _ in range(5):
        t = time.perf_counter()
        for _ in range(n): f()
        best.append((time.perf_counter() - t) / n * 1e6); torch.cuda.synchronize()
    return sorted(best)[2]
def emit(op, us, **k): out.write(json.dumps(dict(kind="host", op=op, us_issue=us, **k)) + "\n"); out.flush()
emit("device", 0, name=torch.cuda.get_device_name(0), torch=torch.__version__)
def rq(*s): return torch.randn(*s, device=dev, requires_grad=True)
x = rq(8, 64); y = rq(8, 64); v4 = rq(2, 16, 4, 64); lin = torch.nn.Linear(64, 64, device=dev); ln = torch.nn.LayerNorm(64, device=dev)
nb = torch.nn.Linear(64, 64, bias=False, device=dev); ids = torch.randint(0, 64, (2, 16), device=dev); emb = torch.nn.Embedding(64, 64, device=dev)
q = torch.randn(2, 4, 16, 64, device=dev, dtype=torch.bfloat16, requires_grad=True); q32 = rq(2, 4, 16, 64)
img = rq(2, 16, 8, 8); conv = torch.nn.Conv2d(16, 16, 3, padding=1, device=dev); bn = torch.nn.BatchNorm2d(16, device=dev)
class Empty(torch.nn.Module):
    def forward(self, x): return x
e = Empty()
for name, f in (("add", lambda: x + y), ("mul_scalar", lambda: x * 0.5), ("gelu", lambda: F.gelu(x)), ("view", lambda: v4.view(2, 16, 256)), ("transpose", lambda: v4.transpose(1, 2)),
                ("contiguous", lambda: v4.transpose(1, 2).contiguous()), ("slice", lambda: v4[..., :32]), ("cat", lambda: torch.cat((x, y), -1)), ("to_bf16", lambda: x.to(torch.bfloat16)),
                ("dropout", lambda: F.dropout(x, 0.1)), ("layer_norm", lambda: ln(x)), ("linear", lambda: lin(x)), ("linear_3d", lambda: lin(v4)), ("linear_no_bias", lambda: nb(x)),
                ("embedding", lambda: emb(ids)), ("sdpa_bf16", lambda: F.scaled_dot_product_attention(q, q, q)), ("sdpa_fp32", lambda: F.scaled_dot_product_attention(q32, q32, q32)),
                ("conv", lambda: conv(img)), ("batch_norm", lambda: bn(img)), ("relu_", lambda: F.relu(img)), ("module", lambda: e(x)), ("softmax", lambda: F.softmax(x, -1)), ("pow_mean", lambda: x.pow(2).mean(-1, keepdim=True)), ("rsqrt", lambda: torch.rsqrt(x))):
    emit(name, per(f))
def autocast_linear():
    with torch.autocast("cuda", dtype=torch.bfloat16): return lin(x)
emit("autocast_linear", per(autocast_linear))
# backward: a chain of n nodes, so that the slope is one node with its kernel(s)
def backward(make, n):
    a = rq(8, 64); loss = make(a, n).sum()
    torch.cuda.synchronize(); t = time.perf_counter(); loss.backward(); d = (time.perf_counter() - t) * 1e6; torch.cuda.synchronize(); return d
def chain(step):
    def make(a, n):
        for _ in range(n): a = step(a)
        return a
    return make
for name, step in (("gelu", F.gelu), ("mul_scalar", lambda a: a * 0.5), ("add", lambda a: a + y.detach()), ("view", lambda a: a.view(64, 8).view(8, 64)), ("layer_norm", ln), ("linear", lin), ("linear_no_bias", nb), ("dropout", lambda a: F.dropout(a, 0.1))):
    r = {}
    for n in (1, 50, 150):
        r[n] = sorted(backward(chain(step), n) for _ in range(9))[4]
    emit("backward_" + name, (r[150] - r[50]) / 100, fixed_us=r[1])
for k, cls in (("adamw", torch.optim.AdamW), ("adamw-fused", lambda p: torch.optim.AdamW(p, fused=True)), ("sgd", lambda p: torch.optim.SGD(p, lr=1e-3)), ("sgdm", lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9))):
    r = {}
    for n in (50, 250):
        ps = [torch.nn.Parameter(torch.randn(64, device=dev)) for _ in range(n)]
        for p in ps: p.grad = torch.randn_like(p)
        o = cls(ps); o.step(); o.step(); r[n] = per(o.step, 10)
    emit("step_" + k, (r[250] - r[50]) / 200, fixed_us=r[50] - 50 * (r[250] - r[50]) / 200)
# launches that fit the queue: time of a launch behind a long kernel jumps where the queue is full
a = torch.randn(8192, 8192, device=dev); s = torch.randn(8, device=dev); torch.cuda.synchronize()
for _ in range(12): a @ a
ts = []
for i in range(3000):
    t = time.perf_counter(); s.add_(1); ts.append((time.perf_counter() - t) * 1e6)
torch.cuda.synchronize()
jump = next((i for i, t in enumerate(ts) if t > 1000), None)
emit("queue", jump if jump is not None else -1)
# transformers' and torchvision's own Python around the operators: tiny models, so that only the host takes time
def models():
    from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM, GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration
    import torchvision
    ids = torch.randint(0, 90, (1, 16), device=dev)
    yield "bert", BertForSequenceClassification(BertConfig(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, intermediate_size=128)), dict(input_ids=ids, labels=ids[:, 0] * 0)
    yield "llama", LlamaForCausalLM(LlamaConfig(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128)), dict(input_ids=ids, labels=ids)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=64, n_layer=8, n_head=4)), dict(input_ids=ids, labels=ids)
    yield "t5", T5ForConditionalGeneration(T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=128, num_layers=4, num_heads=4, decoder_start_token_id=0)), dict(input_ids=ids, labels=ids)
    yield "resnet50", torchvision.models.resnet50(), torch.randn(1, 3, 32, 32, device=dev)
from torch.profiler import profile, ProfilerActivity
for name, m, batch in models():
    m = m.to(dev).train()
    for amp in (None, torch.bfloat16):
        def fwd():
            with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
                return m(**batch).loss if isinstance(batch, dict) else m(batch).sum()
        opt = torch.optim.AdamW(m.parameters(), lr=1e-5); f = []; b = []; s = []
        for i in range(14):
            opt.zero_grad(set_to_none=True); torch.cuda.synchronize(); t0 = time.perf_counter(); l = fwd(); t1 = time.perf_counter(); torch.cuda.synchronize(); t2 = time.perf_counter(); l.backward(); t3 = time.perf_counter(); torch.cuda.synchronize(); t4 = time.perf_counter(); opt.step(); t5 = time.perf_counter()
            f.append(t1 - t0); b.append(t3 - t2); s.append(t5 - t4)
        n = {}
        try:
            for part in ("forward", "backward"):
                opt.zero_grad(set_to_none=True); l = fwd() if part == "backward" else None; torch.cuda.synchronize()
                with profile(activities=[ProfilerActivity.CUDA]) as p:
                    if part == "forward": fwd()
                    else: l.backward()
                    torch.cuda.synchronize()
                n[part] = sum(e.count for e in p.key_averages())
        except Exception as e: n["error"] = repr(e)[:100]
        mid = lambda v: sorted(v)[len(v) // 2] * 1e6
        emit("model_" + name, mid(f), amp=amp is not None, backward_us=mid(b), step_us=mid(s), parameters=sum(1 for _ in m.parameters()), kernels=n)
