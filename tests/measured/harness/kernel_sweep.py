"""Single operators over shapes that profiled steps had predicted badly, on a card: their kernels by the profiler.

usage: kernel_sweep.py OUT.jsonl SECONDS          the first ones
       kernel_sweep.py OUT.jsonl SECONDS later    attention with a bias, losses of vocabularies, Whisper's encoder (2026-11-30)

A row: [operator, {sizes}, type, [[kernel, microseconds], …]] of one call, the second.
"""
import json
import random
import sys
import time
from contextlib import nullcontext

TYPES = ("bf16", "fp32", "fp16")


def cases(torch, device):
    """(name, sizes, type, function that makes the call)"""
    functional, pick = torch.nn.functional, random.Random(5)
    types = dict(bf16=torch.bfloat16, fp32=torch.float32, fp16=torch.float16)
    scale = 1 if device == "cuda" else 4096
    made = []

    def rand(kind, *shape): return torch.randn(*shape, device=device, dtype=types[kind])

    def add(name, sizes, kind, make): made.append((name, sizes, kind, make))

    for kind in ("bf16", "fp32"):
        for width in (49, 64, 197, 300, 513, 577, 1000, 1024, 1025, 1280, 1500, 2000, 2048, 2049, 3001, 4096, 4097, 8192, 30522, 50257, 50304, 51865, 128256, 151936):
            for elements in (3e6, 4e7):
                rows = max(8, int(elements / scale / width))
                for log in ((False, True) if width > 8192 else (False,)):
                    def of(kind=kind, rows=rows, width=width, log=log):
                        x = rand(kind, rows, width)
                        y = (torch.log_softmax if log else torch.softmax)(x, -1)
                        backward = torch.ops.aten._log_softmax_backward_data if log else torch.ops.aten._softmax_backward_data
                        return lambda: ((torch.log_softmax if log else torch.softmax)(x, -1), backward(x, y, -1, x.dtype))
                    add("log_softmax" if log else "softmax", dict(rows=rows, width=width), kind, of)
        for width in (96, 384, 768, 1024, 2048, 3072, 4096):
            for rows in (512, 4096, 16384, 65536):
                rows = max(8, rows // scale)
                if rows * width > 1.5e8: continue
                def means(kind=kind, rows=rows, width=width):
                    x = rand(kind, rows, width)
                    return lambda: (x.mean(-1, keepdim=True), x.sum(-1), x.pow(2), x.pow(3), x.sum(0))
                add("means", dict(rows=rows, width=width), kind, means)

                def norms(kind=kind, rows=rows, width=width):
                    x, w, b = rand(kind, rows, width), rand(kind, width), rand(kind, width)
                    y, mean, rstd = torch.native_layer_norm(x, [width], w, b, 1e-5)
                    return lambda: (torch.native_layer_norm(x, [width], w, b, 1e-5), torch.ops.aten.native_layer_norm_backward(y, x, [width], mean, rstd, w, b, [True] * 3))
                add("layer_norm", dict(rows=rows, width=width), kind, norms)
        for batch, length, heads, width in ((8, 512, 12, 64), (40, 200, 16, 64), (4, 2048, 32, 64), (16, 500, 32, 128), (3, 777, 20, 80), (56, 100, 16, 64)):
            def layouts(kind=kind, batch=batch, length=length, heads=heads, width=width):
                batch_ = max(1, batch // scale) if scale > 1 else batch
                x = rand(kind, batch_, length, heads, width)
                cos, y = rand(kind, batch_, 1, length, width), x.transpose(1, 2)
                bias, mask, scores = rand(kind, heads * width), torch.ones(batch_, 1, length, length, dtype=torch.bool, device=device), rand(kind, batch_, 4, length, length)
                flat = x.view(batch_, length, heads * width)

                def call():
                    y.contiguous()
                    y * cos
                    torch.cat((-y[..., width // 2:], y[..., :width // 2]), -1)
                    flat + bias
                    flat * flat[..., :1]
                    scores.masked_fill(mask, 0.0)
                    torch.where(mask, scores, bias[0])
                    scores + scores[:, :1]
                    flat.to(torch.float32 if kind != "fp32" else torch.bfloat16)
                    flat.float().transpose(1, 2).contiguous()
                    y[:, :, ::2].contiguous()
                    torch.dropout(flat, 0.1, True)
                    flat.clamp_min(0)
                    flat.chunk(2, -1)[0] * flat.chunk(2, -1)[1]
                    torch.gelu(flat) if hasattr(torch, "gelu") else functional.gelu(flat)
                    functional.silu(flat)
                return call
            add("layouts", dict(batch=batch, length=length, heads=heads, width=width), kind, layouts)
    for kind in ("fp16", "fp32"):
        for batch, channels, side in ((192, 64, 96), (192, 256, 48), (112, 512, 28), (96, 2048, 7), (64, 32, 112), (160, 144, 56), (128, 1280, 7), (64, 96, 56), (8, 512, 28)):
            for last in (False, True):
                def images(kind=kind, batch=batch, channels=channels, side=side, last=last):
                    batch_ = batch if scale == 1 else 1
                    side_ = side if scale == 1 else 7
                    x = rand(kind, batch_, channels, side_, side_).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format).requires_grad_()
                    norm = torch.nn.BatchNorm2d(channels, device=device)

                    def call():
                        y = norm(x) if kind == "fp32" else norm(x)
                        z = functional.relu(y, inplace=False)
                        z = z + x
                        if side_ > 7: z = functional.max_pool2d(z, 3, 2, 1)
                        z = functional.adaptive_avg_pool2d(z, 1)
                        z.sum().backward()
                        x.grad = None
                    return call
                add("images", dict(batch=batch, channels=channels, side=side, last=last), kind, images)
    for kind in ("bf16", "fp32"):
        for batch, heads, length, width in ((40, 16, 200, 64), (20, 12, 360, 64), (8, 32, 720, 64), (10, 16, 896, 64), (4, 32, 2000, 64), (2, 32, 2048, 128), (16, 32, 500, 128), (56, 12, 300, 64), (10, 20, 1500, 64), (7, 8, 1280, 256), (28, 12, 224, 64), (3, 25, 1024, 80)):
            for causal in (False, True):
                for dropout in ((0.0, 0.1) if not causal and kind == "bf16" else (0.0,)):
                    def attention(kind=kind, batch=batch, heads=heads, length=length, width=width, causal=causal, dropout=dropout):
                        q, k, v = (rand(kind, batch if scale == 1 else 1, heads, length if scale == 1 else 16, width).requires_grad_() for _ in range(3))

                        def call():
                            functional.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout).sum().backward()
                            q.grad = k.grad = v.grad = None
                        return call
                    add("attention", dict(batch=batch, heads=heads, length=length, width=width, causal=causal, dropout=dropout), kind, attention)
    for kind in ("bf16", "fp32"):
        for batch, length in ((6, 249), (16, 249), (40, 249), (8, 999)):
            def positions(kind=kind, batch=batch, length=length):
                x = rand(kind, batch, 768, length).requires_grad_()
                conv = torch.nn.Conv1d(768, 768, 128, padding=64, groups=16, device=device, dtype=types[kind])

                def call():
                    conv(x).sum().backward()
                    x.grad = None
                return call
            if scale == 1: add("positions", dict(batch=batch, length=length), kind, positions)
    pick.shuffle(made)
    return made


def later(torch, device):
    """As cases(): what the profiled steps of seeds 4001 and 5001 had badly."""
    functional, pick = torch.nn.functional, random.Random(7)
    types = dict(bf16=torch.bfloat16, fp32=torch.float32, fp16=torch.float16, tf32=torch.float32)
    efficient = torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION
    on_card = device == "cuda"
    made = []

    def rand(kind, *shape): return torch.randn(*shape, device=device, dtype=types[kind])

    for kind in ("bf16", "fp32", "fp16"):
        for batch, heads, length, width in ((28, 12, 512, 64), (7, 16, 1000, 64), (18, 12, 720, 64), (4, 16, 2000, 64), (40, 12, 197, 64), (64, 16, 197, 64), (14, 16, 512, 64),
                                            (56, 8, 128, 64), (20, 6, 256, 64), (10, 32, 384, 128), (4, 64, 512, 128), (28, 12, 224, 64), (24, 8, 300, 32), (6, 10, 640, 80)):
            for learned, shared in ((True, True), (True, False), (False, True), (False, False)):
                if kind == "fp16" and (shared or length % 8): continue
                def attention(kind=kind, batch=batch, heads=heads, length=length, width=width, learned=learned, shared=shared):
                    batch, length = (batch, length) if on_card else (2, 16)
                    q, k, v = (rand(kind, batch, length, heads, width).transpose(1, 2).detach().requires_grad_() for _ in range(3))
                    bias = rand(kind, 1 if shared else batch, heads, length, length).requires_grad_(learned)
                    go = rand(kind, batch, heads, length, width)

                    def call():
                        with torch.nn.attention.sdpa_kernel(efficient) if on_card else nullcontext(): out = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
                        out.backward(go)
                        q.grad = k.grad = v.grad = bias.grad = None
                    return call
                made.append(("bias", dict(batch=batch, heads=heads, length=length, width=width, learned=learned, shared=shared), kind, attention))
    for kind in ("bf16", "fp32", "fp16"):
        for width in (30522, 32000, 32128, 50257, 50264, 50265, 51865, 65024, 128256, 151936, 250002, 250112, 256000):
            for elements in (2e7, 1e8, 4e8) if kind != "fp16" else (1e8,):
                rows = int(elements / width) if on_card else 2
                for upcast in ((False, True) if kind == "bf16" and elements == 1e8 else (False,)):
                    def loss(kind=kind, rows=rows, width=width, upcast=upcast):
                        x, y = rand(kind, rows, width).requires_grad_(), torch.randint(0, width, (rows,), device=device)

                        def call():
                            functional.cross_entropy(x.float() if upcast else x, y).backward()
                            x.grad = None
                        return call
                    made.append(("loss", dict(rows=rows, width=width, upcast=upcast), kind, loss))
    for kind in ("bf16", "fp32", "tf32", "fp16"):
        for width, heads in ((384, 6), (512, 8), (768, 12), (1024, 16), (1280, 20)):
            for batch in (5, 14, 40):
                if kind == "fp32" and batch == 40: continue
                def convolutions(kind=kind, width=width, batch=batch):
                    batch, length = (batch, 3000) if on_card else (1, 30)
                    x = rand(kind, batch, 80, length)
                    one = torch.nn.Conv1d(80, width, 3, padding=1, device=device, dtype=types[kind])
                    two = torch.nn.Conv1d(width, width, 3, stride=2, padding=1, device=device, dtype=types[kind])

                    def call():
                        if on_card: torch.backends.cudnn.allow_tf32 = kind == "tf32"
                        functional.gelu(two(functional.gelu(one(x)))).permute(0, 2, 1).sum().backward()
                        one.zero_grad(); two.zero_grad()
                    return call
                made.append(("whisper", dict(batch=batch, width=width), kind, convolutions))
                if kind == "tf32": continue
                for queries in (1500, 300, 100):
                    def attends(kind=kind, heads=heads, batch=batch, queries=queries):
                        batch, queries, keys = (batch, queries, 1500) if on_card else (1, 8, 16)
                        q, k, v = (rand(kind, batch, each, heads, 64).transpose(1, 2).detach().requires_grad_() for each in (queries, keys, keys))
                        go = rand(kind, batch, heads, queries, 64)

                        def call():
                            functional.scaled_dot_product_attention(q, k, v).backward(go)
                            q.grad = k.grad = v.grad = None
                        return call
                    made.append(("attends", dict(batch=batch, heads=heads, queries=queries, keys=1500), kind, attends))
    pick.shuffle(made)
    return made


def main(out, seconds, which="first"):
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function
    on_card = torch.cuda.is_available()
    end = time.time() + float(seconds)
    left = (later if which == "later" else cases)(torch, "cuda" if on_card else "cpu")
    with open(out, "w") as file:
        while left and time.time() < end:
            now, left = left[:12], left[12:]
            calls = []
            for each in now:
                try:
                    call = each[3]()
                    call()
                    calls.append((each, call))
                except (RuntimeError, AttributeError) as error: print(each[:3], str(error)[:200])
            if on_card: torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_card) as profiled:
                for place, (_, call) in enumerate(calls):
                    with record_function(f"case {place}"):
                        call()
                        if on_card: torch.cuda.synchronize()
            begins, operators, kernels = {}, {}, []
            for event in profiled.profiler.kineto_results.events():
                if str(event.device_type()).endswith("CUDA"):
                    if event.linked_correlation_id() > 0: kernels.append((event.linked_correlation_id(), event.name(), event.start_ns(), event.duration_ns() / 1e3))
                elif event.name().startswith("case "): begins[int(event.name()[5:])] = event.start_ns()
                else: operators[event.correlation_id()] = (event.start_ns(), event.name())
            starts = [begins[place] for place in range(len(calls))] + [float("inf")]
            of = [[] for _ in calls]
            for link, name, _, us in sorted(kernels, key=lambda each: each[2]):
                if link not in operators or name.startswith(("aten::", "case ")): continue
                begin, operator = operators[link]
                place = max((i for i, start in enumerate(starts[:-1]) if start <= begin), default=None)
                if place is not None: of[place].append([operator.removeprefix("aten::"), name[:70], round(us, 2)])
            for ((name, sizes, kind, _), _), found in zip(calls, of): file.write(json.dumps([name, sizes, kind, found], separators=(",", ":")) + "\n")
            file.flush()
    print(len(left), "left")


if __name__ == "__main__": main(*sys.argv[1:])
