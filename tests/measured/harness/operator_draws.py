"""Single operators of shapes drawn at random, alone on a card, by events around loops whose inputs the second-level cache does not hold.

usage: operator_draws.py OUT.jsonl SECONDS SEED [KIND …]     kinds: attention, elementwise, depthwise, product, rows [all]
       operator_draws.py OUT.jsonl SECONDS sustained         products, convolutions and attention for 0.8 s each: their rate by moments, clocks and power

A row: {"kind", "name", sizes …, "type", "us": {operator: microseconds of one call, its launches' gaps included}, "kernels": {operator: [[kernel,
microseconds], …]}}. The host issues each loop while the card waits (torch.cuda._sleep), so that it decides nothing. Kernels are of one call each by the
profiler, after everything was timed. Without a card it tries each kind with tiny sizes.
"""
import json
import random
import statistics
import sys
import time

TYPES = ("bf16", "bf16", "fp16", "fp32")
COLD, MOST_BYTES, LOOP_US, MOST_CALLS = 160e6, 6e9, 6000, 200
PROFILED = 0.25  # of the time


class Draw:
    def __init__(self, torch, seed):
        self.torch, self.pick, self.on_card = torch, random.Random(seed), torch.cuda.is_available()
        self.device = "cuda" if self.on_card else "cpu"
        self.types = dict(bf16=torch.bfloat16, fp16=torch.float16, fp32=torch.float32)

    def rand(self, kind, *shape): return self.torch.randn(*shape, device=self.device, dtype=self.types[kind])

    def logarithmic(self, least, most): return round(least * (most / least) ** self.pick.random())

    def attention(self):
        """cuDNN's, as models call it: heads lie inside of a position."""
        torch, pick = self.torch, self.pick
        kind, width = pick.choice(("bf16", "bf16", "fp16")), pick.choice((32, 64, 64, 64, 80, 96, 128, 128, 128, 256))
        heads = pick.choice((4, 8, 12, 16, 20, 32))
        mode = pick.choice(("plain", "causal", "causal", "shared", "shared", "bias", "bias", "dropout"))
        keys = pick.choice((pick.choice((128, 256, 512, 1024, 2048, 4096)), 8 * self.logarithmic(8, 400)))
        queries = 8 * self.logarithmic(4, 200) if mode == "plain" and pick.random() < 0.5 else keys
        scores = self.logarithmic(20e6, 2e9)
        batch = min(max(1, round(scores / heads / queries / keys)), 96)
        of_bias = pick.choice(("sequences", "all", "heads", "scores")) if mode == "bias" else ""  # what has a row of its own
        kv_heads = heads // pick.choice([each for each in (2, 4, 8, heads) if heads % each == 0]) if mode == "shared" else heads
        causal = mode == "causal" or (mode == "shared" and pick.random() < 0.8)
        if not self.on_card: batch, queries, keys, width = 1, 16, 16, 8
        sizes = dict(mode=mode, batch=batch, heads=heads, kv_heads=kv_heads, queries=queries, keys=keys, width=width, causal=causal, bias=of_bias)
        drop = 0.1 if mode == "dropout" else 0.0
        each = 2 * batch * width * (4 * heads * queries + 4 * kv_heads * keys)

        def make():
            q, k, v = (self.rand(kind, batch, length, count, width).transpose(1, 2) for length, count in ((queries, heads), (keys, kv_heads), (keys, kv_heads)))
            go = self.rand(kind, batch, queries, heads, width).transpose(1, 2)
            bias = self.rand(kind, *dict(sequences=(batch, 1), all=(1, 1), heads=(1, heads), scores=(batch, heads))[of_bias], queries, keys) if of_bias else None
            if not self.on_card: return dict(forward=lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True), backward=lambda: go.sum())
            forward = lambda: torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, drop, causal, False)
            out, sums, cum_q, cum_k, most_q, most_k, seed, offset, _ = forward()
            return dict(forward=forward, backward=lambda: torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
                go, q, k, v, out, sums, seed, offset, bias, cum_q, cum_k, most_q, most_k, drop, causal))
        return mode, sizes, kind, each, make

    def elementwise(self):
        """What models make of rows: norms by hand, rotary positions, masks, gates."""
        torch, pick = self.torch, self.pick
        functional, kind = torch.nn.functional, pick.choice(TYPES)
        heads, width = pick.choice((4, 8, 16, 24, 32)), pick.choice((32, 64, 80, 128, 256))
        batch, length = pick.choice((1, 2, 4, 8, 16, 32)), 8 * self.logarithmic(8, 300)
        least = 1e6 / heads / width / length
        batch = max(batch, round(least)) if self.on_card else 1
        if batch * length * heads * width > 2.5e8: batch = max(1, round(2.5e8 / length / heads / width))
        if not self.on_card: length = 8
        sizes = dict(batch=batch, length=length, heads=heads, width=width)
        name = pick.choice(("norm", "rotary", "gates", "masks", "moves", "activations"))

        def make():
            x = self.rand(kind, batch, length, heads * width)
            y, turned = self.rand(kind, batch, length, heads * width), self.rand(kind, batch, length, heads, width).transpose(1, 2)
            if name == "norm":
                wide, weight, row = x.float(), self.rand("fp32", heads * width), self.rand("fp32", batch, length, 1)
                return {"float": lambda: x.float(), "pow": lambda: wide.pow(2), "mean": lambda: wide.mean(-1, keepdim=True), "mul row": lambda: wide * row, "mul weight": lambda: weight * wide,
                        "mul own weight": lambda: weight.to(x.dtype) * x, "div row": lambda: wide / row, "expand div": lambda: row.expand_as(wide) / 64, "sum first": lambda: wide.sum((0, 1)),
                        "sum last": lambda: (wide.sum(-1, keepdim=True)), "to half": lambda: wide.to(self.types["bf16"]), "pow mul": lambda: wide.pow(1.0) * 2.0}
            if name == "rotary":
                cos, half = self.rand(kind, batch, 1, length, width), width // 2
                return {"mul": lambda: turned * cos, "neg": lambda: -turned[..., half:], "cat": lambda: torch.cat((turned[..., half:], turned[..., :half]), -1), "add": lambda: turned + turned,
                        "contiguous": lambda: turned.contiguous(), "cat heads": lambda: torch.cat((turned, turned), -2), "cat empty": lambda: torch.cat((torch.empty(0, device=x.device, dtype=x.dtype), turned), -2),
                        "repeat": lambda: turned[:, :, None].expand(batch, heads, 2, length, width).reshape(batch, heads * 2, length, width)}
            if name == "gates":
                both = torch.cat((x, y), -1)
                first, second = both.chunk(2, -1)
                return {"mul": lambda: x * y, "mul halves": lambda: first * second, "silu halves": lambda: functional.silu(first), "add": lambda: x + y, "add bias": lambda: x + y[0, 0], "mul number": lambda: x * 0.5,
                        "add in place": lambda: x.add_(y), "copy halves": lambda: first.contiguous(), "fill": lambda: torch.zeros_like(x), "three": lambda: torch.addcmul(x, x, y)}
            if name == "masks":
                scores = self.rand(kind, max(1, batch // 4), 4, length, length) if batch * length * length < 2e8 else self.rand(kind, 1, 4, length, length)
                one = torch.ones(scores.shape[0], 1, length, length, dtype=torch.bool, device=x.device)
                added = self.rand(kind, scores.shape[0], 1, length, length)
                return {"masked_fill": lambda: scores.masked_fill(one, 0.0), "where": lambda: torch.where(one, scores, added), "add mask": lambda: scores + added, "softmax": lambda: torch.softmax(scores, -1, dtype=torch.float32),
                        "div": lambda: scores / 8.0, "dropout": lambda: torch.native_dropout(x, 0.1, True), "tanh": lambda: torch.tanh(scores)}
            if name == "moves":
                return {"float turned": lambda: turned.float(), "transpose": lambda: x.transpose(1, 2).contiguous(), "permute": lambda: x.view(batch, length, heads, width).permute(2, 0, 1, 3).contiguous(), "every second": lambda: turned[:, :, ::2].contiguous(),
                        "chunks": lambda: [each.contiguous() for each in x.chunk(3, -1)], "pad": lambda: functional.pad(turned, (0, 0, 0, 8)), "split add": lambda: x[:, :, :width] + y[:, :, :width], "rows": lambda: x[:, ::2].contiguous(), "cat rows": lambda: torch.cat((x, y), 1)}
            return {"gelu": lambda: functional.gelu(x), "gelu tanh": lambda: functional.gelu(x, approximate="tanh"), "silu": lambda: functional.silu(x), "tanh": lambda: torch.tanh(x), "relu": lambda: functional.relu(x), "sigmoid": lambda: torch.sigmoid(x),
                    "gelu_backward": lambda: torch.ops.aten.gelu_backward(y, x), "gelu tanh backward": lambda: torch.ops.aten.gelu_backward(y, x, approximate="tanh"), "silu_backward": lambda: torch.ops.aten.silu_backward(y, x),
                    "tanh_backward": lambda: torch.ops.aten.tanh_backward(y, x), "threshold_backward": lambda: torch.ops.aten.threshold_backward(y, x, 0), "exp": lambda: torch.exp(x), "softplus": lambda: functional.softplus(x)}
        each = batch * length * heads * width * (4 if kind == "fp32" else 2)
        return name, sizes, kind, each, make

    def rows(self):
        """Sums over many rows or columns, softmax and losses of vocabularies, embeddings."""
        torch, pick = self.torch, self.pick
        kind, name = pick.choice(TYPES), pick.choice(("softmax", "loss", "sums", "norm", "embedding"))
        width = {"loss": lambda: pick.choice((8, 4, 1)) * self.logarithmic(15000, 33000), "softmax": lambda: self.logarithmic(32, 8192)}.get(name, lambda: 64 * self.logarithmic(2, 128))()
        count = max(32, round(self.logarithmic(2e6, 3e8) / width)) if self.on_card else 8
        sizes = dict(rows=count, width=width)

        def make():
            x, y = self.rand(kind, count, width), self.rand(kind, count, width)
            if name in ("softmax", "loss"):
                call = torch.log_softmax if name == "loss" else torch.softmax
                backward = torch.ops.aten._log_softmax_backward_data if name == "loss" else torch.ops.aten._softmax_backward_data
                out = call(x, -1)
                labels = torch.randint(0, width, (count,), device=self.device)
                calls = {"forward": lambda: call(x, -1), "backward": lambda: backward(y, out, -1, x.dtype)}
                if name == "loss": calls |= {"nll": lambda: torch.ops.aten.nll_loss_forward(out, labels, None, 1, -100), "wide": lambda: x.float()}
                return calls
            if name == "embedding":
                table, places = self.rand(kind, 32000, width), torch.randint(0, 32000, (count,), device=self.device)
                return {"forward": lambda: torch.nn.functional.embedding(places, table), "backward": lambda: torch.ops.aten.embedding_dense_backward(x, places, 32000, -1, False)}
            if name == "norm":
                weight = self.rand(kind, width)
                out, mean, deviation = torch.native_layer_norm(x, [width], weight, weight, 1e-5)
                calls = {"forward": lambda: torch.native_layer_norm(x, [width], weight, weight, 1e-5), "backward": lambda: torch.ops.aten.native_layer_norm_backward(y, x, [width], mean, deviation, weight, weight, [True, True, True])}
                if hasattr(torch.ops.aten, "_fused_rms_norm") and self.on_card: calls["rms"] = lambda: torch.ops.aten._fused_rms_norm(x, [width], weight, 1e-5)
                return calls
            return {"sum columns": lambda: x.sum(0), "sum rows": lambda: x.sum(-1), "mean rows": lambda: x.mean(-1, keepdim=True), "argmax": lambda: x.argmax(-1), "norm": lambda: torch.linalg.vector_norm(x), "max": lambda: x.amax(-1)}
        return name, sizes, kind, count * width * (4 if kind == "fp32" else 2), make

    def depthwise(self):
        torch, pick = self.torch, self.pick
        kind, window, stride = pick.choice(("bf16", "fp16", "fp32")), pick.choice((3, 3, 5, 7)), pick.choice((1, 1, 1, 2))
        channels, side = 8 * self.logarithmic(4, 250), pick.choice((7, 14, 16, 28, 32, 56, 64, 112))
        batch = min(256, max(8, round(self.logarithmic(3e6, 1.5e8) / channels / side / side)))
        last = pick.random() < 0.4
        if not self.on_card: batch, channels, side = 1, 8, 7
        sizes = dict(batch=batch, channels=channels, side=side, window=window, stride=stride, last=last)

        def make():
            form = torch.channels_last if last else torch.contiguous_format
            x = self.rand(kind, batch, channels, side, side).contiguous(memory_format=form)
            weight = self.rand(kind, channels, 1, window, window).contiguous(memory_format=form)
            call = lambda: torch.ops.aten.convolution(x, weight, None, [stride] * 2, [window // 2] * 2, [1, 1], False, [0, 0], channels)
            go = torch.randn_like(call())
            back = lambda mask: torch.ops.aten.convolution_backward(go, x, weight, None, [stride] * 2, [window // 2] * 2, [1, 1], False, [0, 0], channels, mask)
            return {"forward": call, "input": lambda: back([True, False, False]), "filter": lambda: back([False, True, False])}
        return "depthwise", sizes, kind, batch * channels * side * side * (4 if kind == "fp32" else 2), make

    def product(self):
        """Thin ones (LoRA, routers, heads of few classes) and usual ones."""
        torch, pick = self.torch, self.pick
        kind, thin = pick.choice(("bf16", "bf16", "fp16", "fp32")), pick.random() < 0.7
        rows, wide = 8 * self.logarithmic(16, 4000), 64 * self.logarithmic(4, 220)
        narrow = pick.choice((2, 4, 8, 16, 32, 64, 128, 256)) if thin else 64 * self.logarithmic(4, 200)
        if kind == "fp32" and rows * wide * narrow > 4e11: rows = max(128, round(4e11 / wide / narrow))
        if not self.on_card: rows, wide, narrow = 8, 8, 4
        sizes = dict(rows=rows, wide=wide, narrow=narrow)

        def make():
            x, weight, go = self.rand(kind, rows, wide), self.rand(kind, narrow, wide), self.rand(kind, rows, narrow)
            up, back = self.rand(kind, wide, narrow), self.rand(kind, rows, wide)
            return {"down": lambda: x @ weight.t(), "down input": lambda: go @ weight, "down weight": lambda: go.t() @ x, "up": lambda: go @ up.t(), "up input": lambda: back @ up, "up weight": lambda: back.t() @ go}
        return "thin" if thin else "usual", sizes, kind, rows * (wide + narrow) * (4 if kind == "fp32" else 2), make


def timed(torch, copies, operator):
    """Microseconds of a call: the median of three loops."""
    calls = [each[operator] for each in copies]
    for call in calls[:2]: call()
    if not torch.cuda.is_available(): return None
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    calls[0]()
    end.record()
    torch.cuda.synchronize()
    once = 1e3 * begin.elapsed_time(end)
    times = int(min(max(LOOP_US / max(once, 1), 8), MOST_CALLS))
    found = []
    for _ in range(3):
        torch.cuda._sleep(int(2e9 * 60e-6 * times))  # some 60 us of the host for each call
        begin.record()
        for i in range(times): calls[i % len(calls)]()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * begin.elapsed_time(end) / times)
    return round(statistics.median(found), 2)


def kernels_of(torch, made, sizes):
    from torch.profiler import ProfilerActivity, profile, record_function
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for operator, call in made.items():
            with record_function("case " + operator):
                call()
                torch.cuda.synchronize()
    begins, kernels, launched = [], [], {}
    for event in profiled.profiler.kineto_results.events():
        if str(event.device_type()).endswith("CUDA"): kernels.append((event.start_ns(), event.name()[:90], event.duration_ns() / 1e3, event.linked_correlation_id()))
        elif event.name().startswith("case "): begins.append((event.start_ns(), event.name()[5:]))
        else: launched[event.correlation_id()] = event.start_ns()
    begins.sort()
    found = {}
    for _, name, us, link in sorted(kernels):
        if name.startswith("case ") or link not in launched: continue
        of = [operator for start, operator in begins if start <= launched[link]]
        if of: found.setdefault(of[-1], []).append([name, round(us, 2)])
    return found


def sustained(torch, out, seconds):
    """A row: {"what", "type", "beside" (share of the time that additions take), "slices": [[seconds, TFLOP/s], …], "card": [[seconds, MHz, W], …]}."""
    import os
    import subprocess
    import threading
    on_card = torch.cuda.is_available()
    draw, begin, samples, stop = Draw(torch, 1), time.time(), [], []
    number = os.environ.get("CUDA_VISIBLE_DEVICES", "0")

    def watch():
        process = subprocess.Popen(["nvidia-smi", "-i", number, "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "-lms", "40"], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            try: samples.append([time.time(), *map(float, line.split(","))])
            except ValueError: pass
            if stop: break
        process.kill()
    if on_card: threading.Thread(target=watch, daemon=True).start()
    large, side, functional = (8192, 4096, torch.nn.functional) if on_card else (16, 16, torch.nn.functional)

    def products(kind):
        a, b = draw.rand(kind, large, side), draw.rand(kind, side, side)
        return lambda: a @ b, 2.0 * large * side * side

    def convolutions(kind):
        x, weight = draw.rand(kind, 128 if on_card else 1, 256, 56, 56).contiguous(memory_format=torch.channels_last), draw.rand(kind, 256, 256, 3, 3).contiguous(memory_format=torch.channels_last)
        return lambda: functional.conv2d(x, weight, padding=1), 2.0 * x.shape[0] * 56 * 56 * 256 * 256 * 9

    def attends(kind):
        q, k, v = (draw.rand(kind, 8 if on_card else 1, 2048 if on_card else 16, 16, 128).transpose(1, 2) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v), 4.0 * q.shape[0] * 16 * q.shape[2] ** 2 * 128

    def additions(kind):
        x, y = draw.rand("fp32", 2**27 if on_card else 64), draw.rand("fp32", 2**27 if on_card else 64)
        return lambda: torch.add(x, y, out=x), 0.0

    cases = [(products, kind, beside) for kind in ("bf16", "fp16", "tf32", "fp32") for beside in (0, 0.5)]
    cases += [(convolutions, kind, 0) for kind in ("bf16", "fp16", "tf32", "fp32")] + [(attends, "bf16", 0), (attends, "fp16", 0), (additions, "fp32", 0)]
    with open(out, "w") as file, torch.no_grad():
        for make, kind, beside in cases:
            if time.time() - begin > seconds: break
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
            call, flops = make("fp32" if kind == "tf32" else kind)
            other, _ = additions("fp32")

            def once(times):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for _ in range(times): call()
                end.record()
                return begin, end
            call()
            other()
            if not on_card: continue
            torch.cuda.synchronize()
            time.sleep(0.4)
            first = once(2)
            torch.cuda.synchronize()
            us = 500 * first[0].elapsed_time(first[1])
            times = max(1, round(4000 / us))  # 4 ms of it at a time, so that 200 are 0.8 s
            others = round(4000 * beside / (1 - beside) / 410) if beside else 0  # additions of 2^27 take 410 us
            started, parts = time.time(), []
            for _ in range(int(200 * (1 - beside))):
                parts.append(once(times))
                for _ in range(others): other()
            torch.cuda.synchronize()
            ended = time.time()
            slices = [[round(1e-3 * parts[0][0].elapsed_time(a), 4), round(flops * times / a.elapsed_time(b) / 1e9, 1) if flops else 0] for a, b in parts]
            file.write(json.dumps(dict(kind="sustained", what=make.__name__, type=kind, beside=beside, slices=slices[::4], card=[[round(at - started, 3), *rest] for at, *rest in samples if started <= at <= ended]), separators=(",", ":")) + "\n")
            file.flush()
            call = other = None
    stop.append(True)


def main(out, seconds, seed, *kinds):
    import torch
    if seed == "sustained": return sustained(torch, out, float(seconds))
    begin, seconds = time.time(), float(seconds)
    draw, rows, number = Draw(torch, int(seed)), [], 0
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    kinds = kinds or ("attention", "elementwise", "rows", "product", "depthwise")
    with open(out, "w") as file, torch.no_grad():
        while time.time() - begin < seconds * (1 - PROFILED) if draw.on_card else number < 40:
            of = kinds[number % len(kinds)]
            number += 1
            name, sizes, kind, each, make = getattr(draw, of)()
            row = dict(kind=of, name=name, **sizes, type=kind)
            if each > MOST_BYTES: continue
            try:
                copies = [make() for _ in range(int(min(max(COLD / each, 1), 8)) if draw.on_card else 1)]
                row["us"] = {}
                for operator in copies[0]: row["us"][operator] = timed(torch, copies, operator)
            except (RuntimeError, AttributeError) as error: row["error"] = str(error)[:200]
            copies = None
            rows.append((row, make))
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
        for row, make in sorted(rows, key=lambda each: each[0]["kind"] != "attention") if draw.on_card else ():
            if time.time() - begin > seconds: break
            if row["kind"] in ("elementwise", "rows") or "error" in row: continue
            made = make()
            for call in made.values(): call()
            row = dict(row, kernels=kernels_of(torch, made, None))
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
            made = None
    print(number, "drawn", round(time.time() - begin, 1), "s")


if __name__ == "__main__": main(*sys.argv[1:])
