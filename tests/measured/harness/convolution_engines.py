"""Writes specs/measured/cudnn-9.19/convolution_engines.txt (but for its comment): decision trees that name cuDNN's engine for convolutions
that were never measured, from tests/measured/convolution_samples_h200.jsonl.gz (convolution_samples.py), convolution_networks_h200.jsonl.gz
(convolution_networks.py), convolution_plans_h200.jsonl.gz, convolution_sequences_h200.jsonl.gz, convolution_choices_h200.jsonl.gz, convolution_groups_h200.jsonl.gz (convolution_plans.cc) and those of
networks. Needs scikit-learn.

usage: convolution_engines.py [--check | --others | --sequences], in the repository's root; --check prints how the trees do on shapes
left out, --others leaves the trees of images as the table has them, --sequences all but those of sequences
"""
import collections, gzip, json, math, sys
import numpy as np
from sklearn.model_selection import GroupKFold
from sklearn.tree import DecisionTreeClassifier

MODES, PASSES = ["fp32", "tf32", "fp16", "bf16"], ["forward", "input gradient", "weight gradient"]
# Of images: in one group or a group a channel, in others; that do not overlap. Of sequences: in one group, in others.
KINDS = ["image", "volume", "groups", "patches", "sequence", "sequence in groups"]
LAYOUTS = ["nchw", "nhwc"]
INPUT, OUTPUT, WEIGHT, WINOGRAD, WIDER, FFT, WHOLE_FFT, PARTIAL = 1, 2, 4, 8, 15, 16, 24, 32  # an engine's number: copies it makes; 32 for each partial sum
# of an image; of others, where nobody knows how many there are, 32 for each doubling of 16 KiB
OF_EACH_IMAGE = 9  # a weight's gradient of each image in float32
# A weight's gradient on tensor cores whose last wave of tiles is split along its sum until it fills the card: a partial sum of float32 for each
# block at work; groups of up to 64 channels lie beside each other in a tile. STREAMED and the tile's number, 1,024 times, and clusters of blocks along the outputs, 32 times, and along the inputs: what cuDNN's
# plans say of their engines 65 (16 bits) and 68 (TF32) as TILE_SIZE, TILE_CGA_M and TILE_CGA_N. The most frequent first.
STREAMED = 8192
TILES = {0: (128, 128), 1: (128, 64), 3: (256, 128), 4: (256, 64), 5: (64, 64), 6: (128, 256), 7: (64, 128), 9: (64, 256)}  # outputs, inputs of a tap
CLUSTERS = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 16, 7: 16, 8: 15, 14: 8, 16: 7}  # of so many blocks, that an H200 runs at once
KINDS_OF_STREAMED = [(1, 1, 8), (1, 2, 4), (4, 1, 4), (5, 1, 8), (0, 1, 3), (3, 1, 3), (5, 1, 6), (0, 4, 2), (1, 1, 3), (3, 1, 2), (5, 2, 4), (5, 1, 5), (0, 1, 4),
                     (5, 1, 3), (7, 1, 3), (0, 2, 8), (1, 1, 5), (7, 4, 4), (5, 3, 1), (9, 5, 1), (6, 1, 2), (9, 1, 3), (1, 1, 6), (7, 1, 4), (6, 1, 4), (7, 8, 1),
                     (4, 1, 5), (0, 1, 2), (9, 8, 1), (5, 4, 2), (7, 1, 6), (5, 2, 7)]
KINDS_OF_STREAMED_GROUPS = [(5, 1, 3), (5, 1, 6), (5, 1, 5), (0, 1, 3), (5, 1, 8), (1, 1, 8), (1, 1, 5), (5, 2, 4), (1, 1, 6), (0, 1, 4), (0, 1, 2), (3, 1, 2), (1, 1, 3)]
KINDS_OF_STREAMED_TF32 = [(0, 1, 1), (0, 1, 2), (1, 1, 2), (7, 1, 2), (4, 1, 2), (5, 1, 1)]
ENGINES = [0, WINOGRAD, OF_EACH_IMAGE, FFT, WHOLE_FFT, 7, 3, 5, 6, 1, 2, 4, *(7 + PARTIAL * sums for sums in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20, 22, 23, 24, 26, 29, 32, 38, 43, 44, 52, 56, 60, 61, 65, 72, 88, 120, 127, 131))]
OTHERS = [0, OF_EACH_IMAGE, 7, WIDER, 3, 5, 6, 1, 2, 4, *(7 + PARTIAL * size for size in range(1, 12))]  # 32 KiB to 32 MiB
ROOM = 4.4e9  # bytes that a process had (convolution_networks.py; others had more)
# conv_engine.cc looks its tables up by these: kTiles by a tile, kAtOnce by a cluster's blocks.
assert all(tile in TILES and tall * broad in CLUSTERS and max(tall, broad) < 32 for tile, tall, broad in KINDS_OF_STREAMED + KINDS_OF_STREAMED_TF32)
assert all(engine < STREAMED for engine in ENGINES + OTHERS)
DEPTH, LEAF = 12, 4
DEPTH_OF_OTHERS, LEAF_OF_OTHERS = 9, 12


class Convolution:
    limited = False  # was measured in a process that had not all of the card

    def __init__(self, layout, mode, n, c, extents, k, g, window, strides, padding, dilations, backend, found, sequence=False):
        (self.layout, self.mode, self.n, self.c, self.k, self.g, self.backend, self.bytes) = layout, mode, n, c, k, g, backend, found
        out = [(x + 2 * p - d * (q - 1) - 1) // s + 1 for x, q, s, p, d in zip(extents, window, strides, padding, dilations)]
        of_patches = g == 1 and window[0] > 1 and tuple(window) == tuple(strides) and not any(padding) and max(dilations) == 1
        of_sequences = "sequence" if g == 1 else "sequence in groups"
        self.kind = of_sequences if sequence else "volume" if len(extents) == 3 else "groups" if 1 < g < c else "patches" if of_patches else "image"
        self.h, self.w, self.oh, self.ow, self.window = *extents[-2:], *out[-2:], math.prod(window)
        self.inside, self.outside = math.prod(extents), math.prod(out)
        self.padded = max(self.h + 2 * padding[-2], self.w + 2 * padding[-1])
        self.e = 4 if mode in ("fp32", "tf32") else 2
        self.group = (c, k, *window, strides[-1])
        pixels, out = n * self.inside, n * self.outside
        # In the order of conv_engine.cc, features_of.
        self.features = [n, c, k, self.h, self.w, self.window, strides[0], max(dilations) > 1, pixels, out, out * c * k * self.window // g,
                         pixels * c, out * k, c * k * self.window // g, g, g == c, c % 8 != 0, k % 8 != 0,
                         n * -(-self.h // 30) * -(-self.w // 30),  # tiles of a Fourier transform
                         c // g, k // g, extents[0] if len(extents) == 3 else 1, window[0] if len(extents) == 3 else 1,
                         math.gcd(self.inside, 8), math.gcd(self.outside, 8),
                         -(-k // g // 64) * -(-c // g * self.window // 64)]  # tiles of the weight's gradient

    def transform(self, which):
        """Of a sequence: both operands in a square as wide as its padded length, which the result takes the place of; beside them the filters
        turned round, or the result's gradient once more. The plans have these bytes, of all 95 that are transforms."""
        side = max(16, 1 << (self.padded - 1).bit_length())
        filters, inside, outside = self.k * self.c, self.n * self.c, self.n * self.k
        of = [max(filters + inside, outside), max(filters + outside, inside), max(inside + outside, filters)][which]
        return 16 * side * (side // 2 + 1) * of + 4 * (self.n * self.k * self.outside if which == 2 else filters * self.window)

    def streamed(self, engine):
        """As conv_engine.cc, streamed_workspace."""
        up, of = lambda value, to: -(-value // to), engine - STREAMED
        (high, wide), tall, broad = TILES[of // 1024], of // 32 % 32, of % 32
        multiple, g = 16 // self.e, self.g
        c, k = (up(each // g, multiple) * multiple for each in (self.c, self.k))  # of a group
        if g > 1 and max(c, k) <= 128: c = k = 1 << (max(c, k) - 1).bit_length()
        together = max(1, 64 // max(c, k)) if g > 1 else 1  # groups that one tile holds, side by side
        padded = [g * c != self.c, g * k != self.k, g * c != self.c or g * k != self.k]
        if self.layout == "nchw": padded = [True, True, self.window > 1 or padded[2]]
        copies = sum(size for size, is_copied in zip((self.n * g * c * self.inside, self.n * g * k * self.outside, g * c * k * self.window), padded) if is_copied)
        steps, at_once = up(self.n * self.outside, 64), CLUSTERS[tall * broad]
        left = up(g, together) * up(up(together * k, high), tall) * up(self.window * up(together * c, wide), broad) % at_once
        parts = at_once // left if left else 0
        parts = 0 if steps < 64 else min(parts, 8) if steps < 153 else min(parts, steps // 17)
        return copies * self.e + 16 + (left * parts * tall * broad * high * wide * 4 + 600 if parts > 1 else 0)

    def workspace(self, engine, of_images, which=0):
        """As conv_engine.cc, ConvolutionEngine::workspace."""
        up = lambda value, to: -(-value // to) * to
        if engine == 0: return 0
        if engine >= STREAMED: return self.streamed(engine)
        if engine == WINOGRAD: return 144 * (self.k * self.c + self.n * -(-self.oh // 4) * -(-self.ow // 4) * (self.c + self.k))
        if engine == OF_EACH_IMAGE: return 4 * self.n * self.k * (self.c // self.g) * self.window
        if engine == FFT: return 32 * 17 * 8 * (self.k * self.c + self.n * (1 if max(self.h, self.w) <= 30 else 2) * (self.c + self.k))
        if engine == WHOLE_FFT and self.kind == "sequence": return self.transform(which)
        if engine == WHOLE_FFT:
            side = max(16, 1 << (self.padded - 1).bit_length())
            return 16 * side * (side // 2 + 1) * (self.k * self.c + self.n * self.c) + 4 * self.k * self.c * self.window
        if engine == WIDER and self.g > 1:
            c = k = self.g << (max(self.c, self.k) // self.g - 1).bit_length()
        else:
            to = 1 if self.g > 1 or self.mode == "fp32" and engine != WIDER else 16 // self.e
            c, k = up(self.c, to), up(self.k, to)
        x, y, weight = self.n * c * self.inside, self.n * k * self.outside, k * (c // self.g) * self.window
        copies = (x if engine & INPUT else 0) + (y if engine & OUTPUT else 0) + (weight if engine & WEIGHT else 0)
        parts = engine // PARTIAL
        return copies * self.e + (parts * 4 * weight if of_images else (16384 << parts) * (parts > 0)) + 16

    def had_no_room(self, which):
        """True where another plan may have been refused for want of memory: many processes shared the card as these were measured."""
        if self.mode != "fp32" or self.g > 1 or self.window == 1: return False
        wanted = [self.workspace(engine, True) for engine in ((WHOLE_FFT,), (FFT,), (WINOGRAD,))[which]]
        beside = 4 * (self.n * self.c * self.inside + self.n * self.k * self.outside + self.k * self.c * self.window)
        return any(size > self.bytes[which] and size + beside > ROOM for size in wanted)

    def engine(self, which, of_images):
        """The engine whose formula comes nearest to what was measured."""
        transforms = () if self.g > 1 else (WINOGRAD,) if self.mode != "fp32" else (WINOGRAD, FFT, WHOLE_FFT)
        known = OTHERS if not of_images else [e for e in ENGINES if e not in (WINOGRAD, FFT, WHOLE_FFT) or e in transforms]
        if which == 2 and (self.g == 1 or self.kind == "groups") and self.mode != "fp32":
            kinds = KINDS_OF_STREAMED_TF32 if self.mode == "tf32" else KINDS_OF_STREAMED if self.g == 1 else KINDS_OF_STREAMED_GROUPS
            known = known + [STREAMED + 1024 * tile + 32 * tall + broad for tile, tall, broad in kinds]
        return min(known, key=lambda e: abs(self.workspace(e, of_images, which) - self.bytes[which]))


def lines(name): return (json.loads(line) for line in gzip.open(f"tests/measured/{name}.jsonl.gz", "rt"))


def of_image(row):
    layout, mode, n, c, h, w, k, g, kh, kw, s, ph, pw, d, backend, *found = row
    return Convolution(layout, mode, n, c, (h, w), k, g, (kh, kw), (s, s), (ph, pw), (d, d), backend, found)


def limited(convolution):
    convolution.limited = True
    return convolution


def of_samples(name, rank):
    for layout, mode, n, c, *rest in lines(name):
        parts = [rest[:rank], rest[rank], rest[rank + 1], *(rest[rank * i + 2:rank * (i + 1) + 2] for i in range(1, 5))]
        yield Convolution(layout, mode, n, c, *parts, rest[5 * rank + 2], rest[5 * rank + 3:])


def of_sequences():
    """Plans of sequences, as images of one row (convolution_plans.cc): 31,034 drawn ones from a card; the others, of sizes that networks
    have, without one, where a weight's gradient is not known (-1) and neither are transforms."""
    for mode, n, c, length, k, g, width, stride, padding, dilation, *found in lines("convolution_sequences_h200"):
        yield Convolution("nchw", mode, n, c, (1, length), k, g, (1, width), (stride, stride), (0, padding), (dilation, dilation), "Cudnn", found, True)


def of_choices(name="convolution_choices_h200"):
    """Plans of random images, sequences and volumes (convolution_shapes.py), with the settings of their engines looked at beside."""
    for line in lines(name):
        layout, mode, rank, n, c, *rest = line
        extents, (k, g), rest = rest[:rank], rest[rank:rank + 2], rest[rank + 2:]
        window, strides, padding, dilation = (tuple(rest[i * rank:(i + 1) * rank]) for i in range(4))
        is_sequence = rank == 2 and extents[0] == window[0] == 1 and padding[0] == 0
        if is_sequence and layout == "nhwc": continue
        yield Convolution(layout, mode, n, c, tuple(extents), k, g, window, strides, padding, dilation, "Cudnn", rest[4 * rank:], is_sequence)


def of_networks():
    """Those of the table (convolution_table.py), which are measured at more batch sizes than a tree needs."""
    for layout, mode, n, c, h, w, k, g, kh, kw, s, p, backend, *found in lines("convolutions_h100"):
        if layout == "sequence" or n not in (1, 4, 8, 16, 32, 64, 128): continue
        if layout == "nhwc" and kh > 1 and g == 1:  # the weights' copy in that layout is a request of PyTorch's
            copy = k * c * kh * kw * (4 if mode in ("fp32", "tf32") else 2)
            found = [size - copy if size > 0 and i < 2 else size for i, size in enumerate(found)]
        if min(found) >= 0: yield of_image([layout, mode, n, c, h, w, k, g, kh, kw, s, p, p, 1, backend, *found])


def tree_of(rows, which, of_images):
    """Trees of images saw those in groups and patches, too."""
    engines = [row.engine(which, of_images) for row in rows]
    many = rows[0].kind == "groups" and len(rows) > 2000 and (which < 2 or rows[0].mode == "fp32")
    depth, leaf = (DEPTH, LEAF) if many or of_images and rows[0].kind != "sequence" else (DEPTH_OF_OTHERS, LEAF_OF_OTHERS)
    tree = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=0)
    features = [row.features for row in rows]
    tree.fit(features, engines)
    inside = collections.defaultdict(list)
    for at, leaf in enumerate(tree.apply(features)): inside[leaf].append(at)
    return tree, {leaf: best_of([rows[i] for i in of], [engines[i] for i in of], which, of_images) for leaf, of in inside.items()}


def best_of(rows, engines, which, of_images):
    """The engine that gives the bytes of the most; where none gives those of a quarter, what most have, or the middle one."""
    counts = collections.Counter(engines)
    right = {engine: sum(abs(row.workspace(engine, of_images, which) - row.bytes[which]) < 512 for row in rows) for engine, _ in counts.most_common(12)}
    if rows[0].kind == "groups": return max(right, key=lambda engine: right[engine] - off(rows, engine, which))
    best = max(right, key=lambda engine: (right[engine], counts[engine]))
    if right[best] >= 0.25 * len(rows) and not (best == WHOLE_FFT and counts[best] < 0.8 * len(rows)): return best
    names = np.array(sorted(counts))
    return (choice if of_images else choice_of_others)(names, np.array([counts[name] for name in names]))


def off(rows, engine, which):
    """How far the engine's bytes are off beside all that a convolution holds, a row at most by 1: a few of these are far too large."""
    held = [row.bytes[which] + row.e * (row.n * row.c * row.inside + row.n * row.k * row.outside) for row in rows]
    return sum(min(1, abs(row.workspace(engine, False, which) - row.bytes[which]) / all_of) for row, all_of in zip(rows, held))


def choice(engines, shares):
    """The most frequent one; one that may take tens of GB only where four in five take it."""
    best = int(np.argmax(shares))
    if engines[best] == WHOLE_FFT and shares[best] < 0.8 * sum(shares): best = int(np.argmax(shares * (engines != WHOLE_FFT)))
    return engines[best]


def choice_of_others(engines, shares):
    """As choice(); of copies beside partial sums the middle one."""
    copies = [i for i, engine in enumerate(engines) if engine % PARTIAL == 7]
    if sum(shares[copies]) < 0.5 * sum(shares): return choice(engines, shares)
    return engines[copies[int(np.searchsorted(np.cumsum(shares[copies]), 0.5 * sum(shares[copies])))]]


def counts_sums(layout):
    """Whether the sums of these are counted by what they hold."""
    return KINDS[layout // 2] in ("image", "sequence")


def check(groups):
    for (mode, layout, which), rows in groups.items():
        if len(rows) < 10 * LEAF: continue
        found = np.zeros(len(rows))
        for train, test in GroupKFold(5).split(rows, groups=[hash(row.group) for row in rows]):
            tree, best = tree_of([rows[i] for i in train], which, counts_sums(layout))
            for i, leaf in zip(test, tree.apply([rows[i].features for i in test])): found[i] = rows[i].workspace(best[leaf], counts_sums(layout), which)
        real = np.array([row.bytes[which] for row in rows], float)
        print(f"{KINDS[layout // 2]:6} {MODES[mode]} {LAYOUTS[layout % 2]} {PASSES[which]:16} {len(rows):5} exact {np.mean(abs(found - real) < 512):.0%} "
              f"all bytes {found.sum() / real.sum() - 1:+.0%}")


def kept(table, most):
    """The trees of layouts below `most`."""
    text = open(table).read().split("[trees]\n")[1].split("[nodes]\n")
    trees, nodes = ([[int(number) for number in line.strip("{},").split(", ")] for line in part.splitlines()] for part in text)
    of_those, theirs = [], []
    for (*key, first), (*_, end) in zip(trees, [*trees[1:], [len(nodes)]]):
        if key[1] >= most: continue
        moved = len(theirs) - first
        of_those.append("{%d, %d, %d, %d}" % (*key, len(theirs)))
        theirs += ["{%d, %d, %d}" % (at_most, feature, right + moved if feature >= 0 else right) for at_most, feature, right in nodes[first:end]]
    return of_those, theirs


def main():
    images = [limited(of_image(row)) for name in ("convolution_samples_h200", "convolution_networks_h200") for row in lines(name)] + [limited(row) for row in of_networks()]
    images += [of_image(row) for row in lines("convolution_plans_h200") if min(row[-3:]) >= 0]
    choices = list(of_choices())
    images += [row for row in choices if row.kind == "image" and min(row.bytes) >= 0]
    rows = [row for row in images if row.backend == "Cudnn" and row.h > 1]
    others = [*rows, *of_samples("convolution_groups_h100", 2), *of_samples("convolution_patches_h100", 2), *of_samples("convolution_volumes_h100", 3), *(row for row in choices if "sequence" not in row.kind),
              *of_choices("convolution_groups_h200")]
    others = [row for row in others if row.backend == "Cudnn" and row.kind != "image" and min(row.bytes) >= 0]
    sequences = [row for row in (*of_sequences(), *(row for row in choices if "sequence" in row.kind)) if row.g == 1 or row.mode == "fp32"]  # others are not what runs took
    # Two layouts of each kind.
    groups = {(m, 2 * kind + l, p): [r for r in of if r.mode == mode and r.layout == layout and (kind == 0 or r.kind == KINDS[kind])
                                     and r.bytes[p] >= 0 and not (r.limited and r.had_no_room(p))]
              for m, mode in enumerate(MODES) for kind, of in enumerate((rows, others, others, others, sequences, sequences)) for l, layout in enumerate(LAYOUTS)
              for p in range(len(PASSES))}
    if "--check" in sys.argv: return check(groups)
    table = "specs/measured/cudnn-9.19/convolution_engines.txt"
    comment = [line for line in open(table) if line.startswith("#")]
    most = 2 * KINDS.index("sequence") if "--sequences" in sys.argv else 2 if "--others" in sys.argv else 0  # layouts
    trees, nodes = kept(table, most) if most > 0 else ([], [])

    def add(tree, node):
        """Of a branch, the node for `at most` follows at once, and that for `more` where its third number says."""
        if tree.children_left[node] < 0:
            nodes.append("{0, -1, %d}" % best[node])
            return {best[node]}
        here = len(nodes)
        nodes.append(None)
        below = add(tree, tree.children_left[node])
        right = len(nodes)
        both = below | add(tree, tree.children_right[node])
        if len(both) == 1: nodes[here:] = ["{0, -1, %d}" % next(iter(both))]; return both
        nodes[here] = "{%d, %d, %d}" % (int(tree.threshold[node]), tree.feature[node], right)
        return both

    for key, found in groups.items():
        if len(found) < 10 * LEAF or key[1] < most: continue
        fitted, best = tree_of(found, key[2], counts_sums(key[1]))
        trees.append("{%d, %d, %d, %d}" % (*key, len(nodes)))
        add(fitted.tree_, 0)
    with open(table, "w") as f:
        f.write("".join(comment) + "[trees]\n" + "".join(t + ",\n" for t in trees))
        f.write("[nodes]\n" + "".join(n + ",\n" for n in nodes))
    print(len(trees), "trees,", len(nodes), "nodes")


if __name__ == "__main__": main()
