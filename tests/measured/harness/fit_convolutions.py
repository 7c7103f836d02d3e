"""Fits the table "convolutions" of specs/measured/h100-sxm/rates.json to convolutions alone: those of profiled networks
(network_operators_h100.jsonl.gz) and single ones (convolution_times_h200.jsonl.gz). No step's time enters.

usage: fit_convolutions.py OUT.json        (needs torch; half a minute)

The model is cost/convolution.cc's: launch + sqrt((FLOPs / (share * ramps * datasheet))^2 + (bytes / (bandwidth * datasheet))^2).
"""
import collections
import gzip
import json
import math
import sys
from pathlib import Path

import torch

torch.set_default_dtype(torch.float64)
MEASURED = Path(__file__).resolve().parents[1]
PEAK = {"half": 989.4e12, "tf32": 494.7e12, "float32": 67e12}
ITEM = {"half": 2, "tf32": 4, "float32": 4}
PASSES, WINDOWS = ("forward", "input_gradient", "weight_gradient"), ("1x1", "3x3", "5x5", "other")
KEYS = ("launch_us", "share", "narrow", "depth", "waves", "bandwidth", "few")
START = (6.0, 0.5, 32.0, 128.0, 0.2, 0.4, 0.5)
ISSUED_US = dict(zip(PASSES, (15.0, 20.5, 20.5)))  # of a single one between two events on an idle card
H200_BYTES, H100_BYTES = 4.8e12 / 1.08, 3.35e12  # a copy reaches 1.08 times the share of the datasheet on an H100


def window_of(c):
    window, strided = c["kh"] * c["kw"], c["h"] * c["w"] > 1.5 * c["oh"] * c["ow"]
    if window == 1: return 0
    if window == 9 and not strided: return 1
    return 2 if window in (25, 49) and not strided else 3


def product_of(c):
    """m, n, k of each group."""
    out, entering, window = c["n"] * c["oh"] * c["ow"], c["n"] * c["h"] * c["w"], c["kh"] * c["kw"]
    inside, filters = c["c"] / c["g"], c["k"] / c["g"]
    if c["pass"] == "forward": return out, filters, inside * window
    return (entering, inside, filters * window) if c["pass"] == "input_gradient" else (filters, inside * window, out)


def of_networks():
    """(type, convolutions, microseconds, weight): a call of backward computes one or two gradients."""
    for line in gzip.open(MEASURED / "network_operators_h100.jsonl.gz", "rt"):
        row = json.loads(line)
        for name, shapes, types, scalars, calls, us, first in row["ops"]:
            backward = name == "aten::convolution_backward"
            if not backward and name != "aten::cudnn_convolution": continue
            x, w, of = (shapes[1], shapes[2], types[1]) if backward else (shapes[0], shapes[1], types[0])
            padding, stride, dilation = (scalars[5], scalars[4], scalars[6]) if backward else (scalars[2], scalars[3], scalars[4])
            if len(x) != 4 or not isinstance(stride, list) or not isinstance(dilation, list) or (w[1] == 1 and x[1] > 1): continue
            out = [(x[i] + 2 * padding[i - 2] - dilation[i - 2] * (w[i] - 1) - 1) // stride[i - 2] + 1 for i in (2, 3)]
            kind = "half" if of != "float" else "float32" if row["precision"] == "fp32" else "tf32"
            base = dict(n=x[0], c=x[1], h=x[2], w=x[3], k=w[0], g=x[1] // w[1], kh=w[2], kw=w[3], oh=out[0], ow=out[1], bandwidth=H100_BYTES)
            each, passes = us / calls, ["forward"]
            if backward:
                mask = scalars[-1]
                passes = (["input_gradient"] if mask[0] else []) + ["weight_gradient"]
                if mask[2]: each -= sum(t for number, t in first if "reduce_kernel" in row["names"][number])
            yield kind, [dict(base, **{"pass": which}) for which in passes], each, (min(1.0, each / 20) + 0.1) * calls**0.3


def single():
    for line in gzip.open(MEASURED / "convolution_times_h200.jsonl.gz", "rt"):
        layout, kind, n, c, h, w, k, g, kh, kw, s, ph, pw, d, _, _, _, _, *times = json.loads(line)
        if layout != "nchw" or g != 1 or max(c, k) > 2048 or (c % 8 and c > 8): continue
        out = [(size + 2 * p - d * (window - 1) - 1) // s + 1 for size, p, window in ((h, ph, kh), (w, pw, kw))]
        for which, us in zip(PASSES, times):
            each = max(us - ISSUED_US[which], 2.5)
            yield ({"fp32": "float32", "bf16": "half"}.get(kind, kind),
                   [dict(n=n, c=c, h=h, w=w, k=k, g=g, kh=kh, kw=kw, oh=out[0], ow=out[1], bandwidth=H200_BYTES, **{"pass": which})],
                   each, 0.25 * (min(1.0, each / 30) + 0.1))


class Fit:
    def __init__(self, rows, kind):
        parts = [(i, part) for i, row in enumerate(rows) for part in row[1]]
        def of(function): return torch.tensor([float(function(part)) for _, part in parts])
        self.owner = torch.tensor([i for i, _ in parts])
        self.measured, self.weights = (torch.tensor([row[i] for row in rows]) for i in (2, 3))
        self.places = torch.tensor([PASSES.index(part["pass"]) * 4 + window_of(part) for _, part in parts])
        m, n, self.k = (of(lambda part, at=at: product_of(part)[at]) for at in range(3))
        self.flops = of(lambda c: 2 * c["n"] * c["oh"] * c["ow"] * c["k"] * c["c"] * c["kh"] * c["kw"] / c["g"])
        self.bytes_us = of(lambda c: 1e6 * ITEM[kind] / c["bandwidth"] * (c["n"] * c["c"] * c["h"] * c["w"] + c["n"] * c["k"] * c["oh"] * c["ow"]
                                                                        + c["k"] * c["c"] * c["kh"] * c["kw"] / c["g"]))
        self.tiles = torch.ceil(m / 128) * torch.ceil(n / 128) * of(lambda c: c["g"])
        self.few = of(lambda c: min(c["c"], c["k"]) / c["g"] < 4)
        self.narrow = torch.where(self.places >= 8, torch.minimum(m, n), n)
        self.peak = PEAK[kind]

    def predicted(self, logarithms):
        launch, share, narrow, depth, waves, bandwidth, few = torch.exp(logarithms)[self.places].unbind(1)
        ramp = self.narrow / (self.narrow + narrow) * self.k / (self.k + depth) * self.tiles / (self.tiles + waves * 132)
        computed = 1e6 * self.flops / (self.peak * share * ramp) * (1 + self.few * few)
        return torch.zeros_like(self.measured).index_add(0, self.owner, launch + torch.hypot(computed, self.bytes_us / bandwidth))

    def run(self):
        start = torch.log(torch.tensor([START] * 12))
        found = start.clone().requires_grad_(True)
        search = torch.optim.LBFGS([found], lr=0.5, max_iter=150, line_search_fn="strong_wolfe")

        def closure():
            search.zero_grad()
            error = torch.log(self.predicted(found) / self.measured)
            size = torch.where(error.abs() < 0.3, error**2, 0.6 * error.abs() - 0.09)
            loss = (self.weights * size).sum() / self.weights.sum() + 0.03 * ((found - start) ** 2).mean()
            loss.backward()
            return loss
        search.step(closure)
        return found.detach()


def main():
    rows = collections.defaultdict(list)
    for row in (*of_networks(), *single()): rows[row[0]].append(row)
    table = dict(source="tests/measured/harness/fit_convolutions.py: convolutions of 50 networks in profiled steps on an H100 (network_operators_h100.jsonl.gz) "
                        "and 3,117 single ones on an H200 (convolution_times_h200.jsonl.gz), 2026-11-26")
    for kind, of_kind in rows.items():
        fit = Fit(of_kind, kind)
        found = fit.run()
        errors = sorted((fit.predicted(found) / fit.measured - 1).abs().tolist())
        print(f"{kind}: {len(errors)} calls, median {errors[len(errors) // 2]:.0%}, p90 {errors[len(errors) * 9 // 10]:.0%}")
        table[kind] = {which: {window: {key: float(f"{math.exp(value):.4g}") for key, value in zip(KEYS, found[i * 4 + j].tolist())}
                               for j, window in enumerate(WINDOWS)} for i, which in enumerate(PASSES)}
    Path(sys.argv[1]).write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__": main()
