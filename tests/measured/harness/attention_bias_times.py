"""Fused attention with and without an attention bias, forward and backward, one by one: a line a kernel.

    attention_bias_times.py OUT.jsonl [cudnn|efficient …]
"""
import json, sys, torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend as Backend

BACKENDS = {"efficient": Backend.EFFICIENT_ATTENTION, "cudnn": Backend.CUDNN_ATTENTION}
SHAPES = [(4, 32, 2048, 64), (1, 32, 4096, 128), (4, 16, 512, 64), (4, 4, 512, 256), (8, 12, 1024, 64), (2, 16, 2048, 128), (16, 12, 256, 64),
          (1, 16, 1024, 128), (1, 8, 1024, 256), (21, 16, 197, 64), (4, 32, 500, 80), (2, 12, 2048, 96), (64, 8, 128, 64), (1, 16, 8192, 64)]
# bias: a sequence's own, of all heads; row: one of all sequences; heads: each head's, of all sequences; learned: that with a gradient
KINDS = ("none", "causal", "bias", "bias-row", "bias-heads", "bias-learned")


def times(f, n=30):
    for _ in range(5): f()
    torch.cuda.synchronize()
    a = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    a[0].record()
    for i in range(n): f(); a[i + 1].record()
    torch.cuda.synchronize()
    return sorted(a[i].elapsed_time(a[i + 1]) for i in range(n))[n // 2]


def main():
    out = open(sys.argv[1], "w")
    about = dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__)
    for backend in sys.argv[2:] or list(BACKENDS):
        for dtype in (torch.bfloat16, torch.float16, torch.float32)[: 2 if backend == "cudnn" else 3]:
            for B, H, S, D in SHAPES:
                q, k, v = (torch.randn(B, S, H, D, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
                for kind in KINDS:
                    bias, leaves = None, (q, k, v)
                    if kind.startswith("bias"):
                        of_heads = kind in ("bias-heads", "bias-learned")
                        if of_heads and H * S * S > 3e8: continue
                        whole = torch.zeros(B if kind == "bias" else 1, H if of_heads else 1, S, (S + 7) // 8 * 8, device="cuda", dtype=dtype)
                        if kind == "bias-learned": whole.requires_grad_(); leaves = (q, k, v, whole)
                        bias = whole[..., :S].expand(B, H, S, S)
                    try:
                        with sdpa_kernel(BACKENDS[backend]):
                            f = lambda: F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=bias, is_causal=kind == "causal")
                            with torch.no_grad(): without = times(f)
                            o = f(); g = torch.randn_like(o); forward = times(f)
                            backward = times(lambda: torch.autograd.grad(o, leaves, g, retain_graph=True))
                    except Exception as e: print("error", backend, B, H, S, D, kind, dtype, str(e)[:100]); continue
                    row = dict(kind="attention", backend=backend, mask=kind, B=B, H=H, S=S, D=D, dtype=str(dtype)[6:], forward_ms=without, forward_grad_ms=forward, backward_ms=backward, **about)
                    out.write(json.dumps(row) + "\n")
                    out.flush()


main()
