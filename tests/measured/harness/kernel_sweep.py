"""Single operators over shapes that profiled steps had predicted badly, on a card: their kernels by the profiler.

usage: kernel_sweep.py OUT.jsonl SECONDS

A row: [operator, {sizes}, type, [[kernel, microseconds], …]] of one call, the second.
"""
import json
import random
import sys
import time

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


def main(out, seconds):
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function
    on_card = torch.cuda.is_available()
    end = time.time() + float(seconds)
    left = cases(torch, "cuda" if on_card else "cpu")
    with open(out, "w") as file:
        while left and time.time() < end:
            now, left = left[:24], left[24:]
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
