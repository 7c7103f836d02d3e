"""Memory-efficient attention with and without an attention bias, forward and backward, one by one. One line a kernel."""
import json, sys, time, torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend
out = open(sys.argv[1], "w")
def times(f, n=30):
    for _ in range(5): f()
    torch.cuda.synchronize()
    a = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    a[0].record()
    for i in range(n):
        f(); a[i + 1].record()
    torch.cuda.synchronize()
    t = sorted(a[i].elapsed_time(a[i + 1]) for i in range(n))
    return t[n // 2]
SHAPES = [(4, 32, 2048, 64), (1, 32, 4096, 128), (4, 16, 512, 64), (4, 4, 512, 256), (8, 12, 1024, 64), (2, 16, 2048, 128),
          (16, 12, 256, 64), (1, 16, 1024, 128), (1, 8, 1024, 256), (21, 16, 197, 64), (4, 32, 500, 80), (2, 12, 2048, 96), (64, 8, 128, 64), (1, 16, 8192, 64)]
print(torch.__version__, torch.cuda.get_device_name())
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    for B, H, S, D in SHAPES:
        q, k, v = (torch.randn(B, H, S, D, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
        for kind in ("none", "causal", "bias", "bias-row"):
            bias = None
            if kind.startswith("bias"):
                P = (S + 7) // 8 * 8
                bias = torch.zeros(B if kind == "bias" else 1, 1, S, P, device="cuda", dtype=dtype)[..., :S].expand(B, H, S, S)
            try:
                with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                    f = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=kind == "causal")
                    with torch.no_grad(): nograd = times(f)
                    o = f(); g = torch.randn_like(o)
                    fwd = times(f)
                    bwd = times(lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True))
            except Exception as e:
                print("error", B, H, S, D, kind, dtype, str(e)[:100]); continue
            row = dict(kind="attention", backend="efficient", mask=kind, B=B, H=H, S=S, D=D, dtype=str(dtype)[6:], forward_ms=nograd, forward_grad_ms=fwd, backward_ms=bwd)
            out.write(json.dumps(row) + "\n"); print(row, flush=True)
        del q, k, v
