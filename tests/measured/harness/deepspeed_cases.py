"""Writes cases.jsonl, the most telling first."""
import json
L = dict(model="llama-3.2-1b", batch=2, seq=1024, world=2, layers=2, history=True, stacks=True)
B = dict(model="bert-large", batch=8, seq=512, world=2, layers=2, history=True, stacks=True)
out = []
def add(id, base, **k):
    c = dict(base); c.update(k); c["id"] = id; out.append(c)
F = dict(optimizer="adamw-fused")
# histories, llama bf16
add("llama-2l-dsz1-bf16-w2", L, stage=1, precision="bf16", ranks=[0, 1])
add("llama-2l-dsz2-bf16-w2", L, stage=2, precision="bf16", ranks=[0, 1])
add("llama-2l-dsz3-bf16-w2", L, stage=3, precision="bf16", ranks=[0, 1])
add("bertL-2l-dsz1-fp16-w2", B, stage=1, precision="fp16", ranks=[0, 1], **F)
add("bertL-2l-dsz2-fp16-w2", B, stage=2, precision="fp16", ranks=[0, 1], **F)
add("bertL-2l-dsz3-fp16-w2", B, stage=3, precision="fp16", ranks=[0, 1], **F)
add("llama-2l-dsz2-bf16-smallbucket-w2", L, stage=2, precision="bf16", zero=dict(reduce_bucket_size=50000000), **F)
add("llama-2l-dsz3-bf16-small-w2", L, stage=3, precision="bf16", zero=dict(reduce_bucket_size=50000000, stage3_prefetch_bucket_size=20000000, stage3_max_live_parameters=100000000, stage3_max_reuse_distance=100000000, stage3_param_persistence_threshold=10000), **F)
add("llama-2l-dsz2-bf16-accum2-w2", L, stage=2, precision="bf16", accum=2, **F)
add("llama-2l-dsz1-bf16-accum2-w2", L, stage=1, precision="bf16", accum=2, **F)
add("llama-2l-dsz3-bf16-accum2-w2", L, stage=3, precision="bf16", accum=2, **F)
add("llama-2l-dsz2-bf16-offload-w2", L, stage=2, precision="bf16", zero=dict(offload_optimizer=dict(device="cpu", pin_memory=False)), optimizer="adamw", offload_host=True)
add("llama-2l-dsz3-bf16-offload-w2", L, stage=3, precision="bf16", zero=dict(offload_optimizer=dict(device="cpu", pin_memory=False)), optimizer="adamw", offload_host=True)
add("llama-2l-dsz3-bf16-offloadparam-w2", L, stage=3, precision="bf16", zero=dict(offload_optimizer=dict(device="cpu", pin_memory=False), offload_param=dict(device="cpu", pin_memory=False)), optimizer="adamw", offload_host=True)
add("llama-2l-dsz2-bf16-clip-w2", L, stage=2, precision="bf16", ds=dict(gradient_clipping=1.0), **F)
add("llama-2l-dsz3-bf16-clip-w2", L, stage=3, precision="bf16", ds=dict(gradient_clipping=1.0), **F)
add("bertL-2l-dsz2-fp32-w2", B, stage=2, precision="fp32", **F)
add("bertL-2l-dsz3-fp32-w2", B, stage=3, precision="fp32", **F)
add("bertL-2l-dsz1-fp32-w2", B, stage=1, precision="fp32", **F)
add("llama-2l-dsz2-bf16-overlap-w2", L, stage=2, precision="bf16", zero=dict(overlap_comm=True, reduce_bucket_size=50000000), **F)
add("llama-2l-dsz3-bf16-init-w2", L, stage=3, precision="bf16", zero_init=True, **F)
add("llama-2l-dsz3-bf16-ckpt-w2", L, stage=3, precision="bf16", ckpt="full", **F)
add("llama-2l-dsz1-bf16-fp32accum-w2", L, stage=1, precision="bf16", ds=dict(data_types=dict(grad_accum_dtype="fp32")), **F)
add("llama-2l-dsz2-bf16-fp32accum-w2", L, stage=2, precision="bf16", ds=dict(data_types=dict(grad_accum_dtype="fp32")), **F)
add("llama-2l-dsz2-bf16-w1", L, stage=2, precision="bf16", world=1, **F)
add("llama-2l-dsz3-bf16-w1", L, stage=3, precision="bf16", world=1, **F)
# whole models: peaks, device memory, time
W = dict(history=False, stacks=False, timed=True, optimizer="adamw-fused")
for s in (1, 2, 3):
    add(f"llama1b-dsz{s}-bf16-w2", L, stage=s, precision="bf16", layers=16, **W)
    add(f"bertL-dsz{s}-fp16-w2", B, stage=s, precision="fp16", layers=24, **W)
add("llama1b-dsz3-bf16-ckpt-w2", L, stage=3, precision="bf16", layers=16, ckpt="full", **W)
add("llama1b-dsz2-bf16-offload-w2", L, stage=2, precision="bf16", layers=16, zero=dict(offload_optimizer=dict(device="cpu", pin_memory=False)), offload_host=True, **dict(W, optimizer="adamw", timed=False))
add("llama1b-dsz3-bf16-offload-w2", L, stage=3, precision="bf16", layers=16, zero=dict(offload_optimizer=dict(device="cpu", pin_memory=False)), offload_host=True, **dict(W, optimizer="adamw", timed=False))
add("bertL-dsz3-fp32-w2", B, stage=3, precision="fp32", layers=24, **W)
out[0]["print_config"] = True
with open("cases.jsonl", "w") as f:
    for c in out: f.write(json.dumps(c) + "\n")
tiny = dict(hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=1000, max_position_embeddings=512)
tinyb = dict(hidden_size=128, intermediate_size=256, num_attention_heads=4, vocab_size=30522)
with open("cases_cpu.jsonl", "w") as f:
    for c in out:
        c = dict(c, batch=2, seq=32, config=tiny if "llama" in c["model"] else tinyb, layers=2, optimizer="adamw")
        if c["precision"] == "fp16": c["precision"] = "bf16"
        if "zero" in c: c["zero"] = {k: (v if not isinstance(v, int) or isinstance(v, bool) else v // 1000) for k, v in c["zero"].items()}
        f.write(json.dumps(c) + "\n")
