"""Microseconds of the host by operator: the card is never waited for. usage: host.py OUT.jsonl"""
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
# transformers' and torchvision's own Python around the operators: tiny models, so that only the host takes time
def models():
    from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM, GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration
    import torchvision
    ids = torch.randint(0, 90, (1, 16), device=dev)
    yield "bert", BertForSequenceClassification(BertConfig(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, intermediate_size=128)), dict(input_ids=ids, labels=ids[:, 0] * 0)
    yield "llama", LlamaForCausalLM(LlamaConfig(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128)), dict(input_ids=ids, labels=ids)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=64, n_layer=8, n_head=4)), dict(input_ids=ids, labels=ids)
    yield "t5", T5ForConditionalGeneration(T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=128, num_layers=4, num_heads=4, decoder_start_token_id=0)), dict(input_ids=ids, labels=ids)
    yield "resnet50", torchvision.models.resnet50(), torch.randn(2, 3, 64, 64, device=dev)
from torch.profiler import profile, ProfilerActivity
for name, m, batch in models():
    m = m.to(dev).train()
    for amp, ckpt in ((None, False), (None, True), (torch.bfloat16, True)):
        if ckpt:
            if name == "resnet50": continue
            m.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
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
        emit("model_" + name, mid(f), amp=amp is not None, ckpt=ckpt, backward_us=mid(b), step_us=mid(s), parameters=sum(1 for _ in m.parameters()), kernels=n)
