"""Writes specs/measured/cudnn-9.19/convolution_engines.txt (but for its comment): decision trees that name cuDNN's engine for convolutions
that were never measured, from tests/measured/convolution_samples_h200.jsonl.gz (convolution_samples.py) and those of networks. Needs scikit-learn.

usage: convolution_engines.py [--check], in the repository's root; --check prints how the trees do on shapes left out
"""
import gzip, json, sys
import numpy as np
from sklearn.model_selection import GroupKFold
from sklearn.tree import DecisionTreeClassifier

MODES, LAYOUTS, PASSES = ["fp32", "tf32", "fp16", "bf16"], ["nchw", "nhwc"], ["forward", "input gradient", "weight gradient"]
INPUT, OUTPUT, WEIGHT, WINOGRAD, FFT, WHOLE_FFT, PARTIAL = 1, 2, 4, 8, 16, 24, 32  # an engine's number: copies it makes; 32 for each sum
ENGINES = ([0, WINOGRAD, FFT, WHOLE_FFT, 7, 3, 5, 6, 1, 2, 4] + [7 + PARTIAL * sums for sums in (1, 2, 4, 7, 8, 16, 32)])
DEPTH, LEAF = 10, 6


class Convolution:
    def __init__(self, row):
        self.layout, self.mode, n, c, h, w, k, g, kh, kw, s, ph, pw, d, self.backend, *self.bytes = row
        self.n, self.c, self.h, self.w, self.k, self.g, self.window = n, c, h, w, k, g, kh * kw
        self.oh, self.ow = (h + 2 * ph - d * (kh - 1) - 1) // s + 1, (w + 2 * pw - d * (kw - 1) - 1) // s + 1
        self.padded = max(h + 2 * ph, w + 2 * pw)
        self.e = 4 if self.mode in ("fp32", "tf32") else 2
        self.group = (c, k, kh, kw, s)
        pixels, out = n * h * w, n * self.oh * self.ow
        # In the order of conv_engine.cc, Feature.
        self.features = [n, c, k, h, w, self.window, s, d > 1, pixels, out, out * c * k * self.window // g, pixels * c, out * k,
                         c * k * self.window // g, g, g == c, c % 8 != 0, k % 8 != 0,
                         n * -(-h // 30) * -(-w // 30)]  # tiles of a Fourier transform

    def workspace(self, engine):
        """As conv_workspace.cc, engine_bytes."""
        up = lambda value, to: -(-value // to) * to
        if engine == 0: return 0
        if engine == WINOGRAD: return 144 * (self.k * self.c + self.n * -(-self.oh // 4) * -(-self.ow // 4) * (self.c + self.k))
        if engine == FFT: return 32 * 17 * 8 * (self.k * self.c + self.n * (1 if max(self.h, self.w) <= 30 else 2) * (self.c + self.k))
        if engine == WHOLE_FFT:
            side = 1 << (self.padded - 1).bit_length()
            return 16 * side * (side // 2 + 1) * (self.k * self.c + self.n * (self.c + self.k) // 2)
        to = 1 if self.g > 1 or self.mode == "fp32" else 16 // self.e
        c, k = up(self.c, to), up(self.k, to)
        x, y, weight = self.n * c * self.h * self.w, self.n * k * self.oh * self.ow, k * (c // self.g) * self.window
        copies = (x if engine & INPUT else 0) + (y if engine & OUTPUT else 0) + (weight if engine & WEIGHT else 0)
        return copies * self.e + engine // PARTIAL * 4 * weight + 16

    def engine(self, which):
        """The engine whose formula comes nearest to what was measured."""
        transforms = () if self.g > 1 else (WINOGRAD,) if self.mode != "fp32" else (WINOGRAD, FFT, WHOLE_FFT)
        known = [e for e in ENGINES if e not in (WINOGRAD, FFT, WHOLE_FFT) or e in transforms]
        return min(known, key=lambda e: abs(self.workspace(e) - self.bytes[which]))


def lines(name): return (json.loads(line) for line in gzip.open(f"tests/measured/{name}.jsonl.gz", "rt"))


def of_networks():
    """Those of the table (convolution_table.py), which are measured at more batch sizes than a tree needs."""
    for layout, mode, n, c, h, w, k, g, kh, kw, s, p, backend, *found in lines("convolutions_h100"):
        if layout == "sequence" or n not in (1, 4, 8, 16, 32, 64, 128): continue
        if layout == "nhwc" and kh > 1 and g == 1:  # the weights' copy in that layout is a request of PyTorch's
            copy = k * c * kh * kw * (4 if mode in ("fp32", "tf32") else 2)
            found = [size - copy if size > 0 and i < 2 else size for i, size in enumerate(found)]
        if min(found) >= 0: yield Convolution([layout, mode, n, c, h, w, k, g, kh, kw, s, p, p, 1, backend, *found])


def tree_of(rows, which):
    engines = [row.engine(which) for row in rows]
    return DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAF, random_state=0).fit([r.features for r in rows], engines)


def choice(engines, shares):
    """The most frequent one; one that may take tens of GB only where four in five take it."""
    best = int(np.argmax(shares))
    if engines[best] == WHOLE_FFT and shares[best] < 0.8 * sum(shares): best = int(np.argmax(shares * (engines != WHOLE_FFT)))
    return engines[best]


def check(groups):
    for (mode, layout, which), rows in groups.items():
        found = np.zeros(len(rows))
        for train, test in GroupKFold(5).split(rows, groups=[hash(row.group) for row in rows]):
            tree = tree_of([rows[i] for i in train], which)
            for i, shares in zip(test, tree.predict_proba([rows[i].features for i in test])):
                found[i] = rows[i].workspace(choice(tree.classes_, shares))
        real = np.array([row.bytes[which] for row in rows], float)
        print(f"{MODES[mode]} {LAYOUTS[layout]} {PASSES[which]:16} {len(rows):5} exact {np.mean(abs(found - real) < 512):.0%} "
              f"all bytes {found.sum() / real.sum() - 1:+.0%}")


def main():
    rows = [Convolution(row) for row in lines("convolution_samples_h200")] + list(of_networks())
    rows = [row for row in rows if row.backend == "Cudnn" and row.h > 1]
    groups = {(m, l, p): [r for r in rows if r.mode == mode and r.layout == layout] for m, mode in enumerate(MODES)
              for l, layout in enumerate(LAYOUTS) for p in range(len(PASSES))}
    if "--check" in sys.argv: return check(groups)
    trees, nodes = [], []

    def add(tree, node):
        """Of a branch, the node for `at most` follows at once, and that for `more` where its third number says."""
        if tree.children_left[node] < 0:
            nodes.append("{-1, 0, %d}" % choice(engines, tree.value[node][0]))
            return {int(nodes[-1].split(", ")[2][:-1])}
        here = len(nodes)
        nodes.append(None)
        below = add(tree, tree.children_left[node])
        right = len(nodes)
        both = below | add(tree, tree.children_right[node])
        if len(both) == 1: nodes[here:] = ["{-1, 0, %d}" % both.pop()]; return {int(nodes[-1].split(", ")[2][:-1])}
        nodes[here] = "{%d, %d, %d}" % (tree.feature[node], int(tree.threshold[node]), right)
        return both

    for key, found in groups.items():
        fitted = tree_of(found, key[2])
        engines = fitted.classes_
        trees.append("{%d, %d, %d, %d}" % (*key, len(nodes)))
        add(fitted.tree_, 0)
    table = "specs/measured/cudnn-9.19/convolution_engines.txt"
    comment = [line for line in open(table) if line.startswith("#")]
    with open(table, "w") as f:
        f.write("".join(comment) + "[trees]\n" + "".join(t + ",\n" for t in trees))
        f.write("[nodes]\n" + "".join(n + ",\n" for n in nodes))
    print(len(trees), "trees,", len(nodes), "nodes")


if __name__ == "__main__": main()
