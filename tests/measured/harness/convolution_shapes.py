"""Convolutions at random, lines for convolution_plans.cc: of images, sequences and volumes as networks have them.

usage: convolution_shapes.py SEED N > SHAPES
"""
import random
import sys

CHANNELS = [16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 144, 160, 168, 176, 184, 192, 200, 224, 232, 240, 256, 272, 288, 304, 320, 336, 352, 384, 400, 416, 432,
            448, 480, 512, 528, 576, 608, 640, 672, 704, 720, 768, 784, 800, 832, 864, 896, 960, 1008, 1024, 1152, 1280, 1344, 1392, 1536, 1632, 1792, 1920, 2048, 2304, 2560, 3072]
EDGES = [1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24, 25, 26, 28, 30, 31, 32, 33, 35, 36, 37, 38, 40, 42, 44, 45, 48, 50, 52, 54, 55, 56, 57, 60, 62, 63, 64, 66, 70, 71, 72, 73, 75, 76, 80, 84,
         88, 90, 95, 96, 97, 100, 104, 109, 112, 114, 120, 127, 128, 136, 144, 147, 150, 160, 176, 192, 200, 208, 224, 240, 256, 288, 299, 320, 336, 384, 416, 448, 512]
BATCHES = [*range(1, 17), 18, 20, 22, 24, 28, 30, 32, 36, 40, 44, 48, 50, 56, 60, 64, 72, 80, 96, 100, 112, 120, 128, 160, 192, 200, 224, 256, 320, 384, 512]
MOST = 6e9  # bytes of its three tensors


def channels(r, first=False):
    if first: return r.choice([1, 2, 3, 3, 3, 4, 6, 9, 12])
    kind = r.random()
    if kind < 0.72: return r.choice(CHANNELS[:r.choice([18, 34, 50, 65])])
    if kind < 0.85: return r.choice([64, 128, 256, 512])
    if kind < 0.93: return 4 * r.randint(1, 200)
    return r.randint(1, 300)


def one(r):
    mode = r.choices(["bf16", "fp32", "fp16", "tf32"], [42, 32, 15, 11])[0]
    layout = "nhwc" if r.random() < 0.13 else "nchw"
    n, rank = r.choice(BATCHES), r.choices([2, 1, 3], [80, 12, 8])[0]
    c, k = channels(r, r.random() < 0.05), channels(r)
    if r.random() < 0.35: k = c
    if r.random() < 0.03: k = r.choice([1, 2, 3, 4, 6, 10, 19, 21, 91, 255])
    g = 1
    if rank == 2:
        kind = r.random()
        h = r.choice(EDGES)
        w = h if r.random() < 0.8 else r.choice(EDGES)
        kh = kw = r.choices([1, 3, 5, 7, 2, 4, 8, 9, 11, 14, 16], [36, 40, 5, 5, 3, 3, 1, 1, 1, 1, 2])[0]
        if kind < 0.06: kh, kw = r.choice([(1, 3), (3, 1), (1, 7), (7, 1), (1, 5), (5, 1), (3, 5), (2, 1), (1, 2)])
        s = r.choices([1, 2, 4], [78, 20, 2])[0]
        p, d = (kh // 2, kw // 2) if r.random() < 0.85 else (0, 0), 1
        if kh == kw and kh in (2, 4, 8, 14, 16) and r.random() < 0.8: s, p = kh, (0, 0)
        if kh == 3 and s == 1 and r.random() < 0.06: d, p = r.choice([(2, (2, 2)), (4, (4, 4)), (6, (6, 6)), (12, (12, 12))])
        if r.random() < 0.09:
            g = r.choice([2, 4, 8, 16, 32])
            c, k = g * max(1, c // g), g * max(1, k // g)
        elif r.random() < 0.1 and (layout == "nhwc" or mode == "fp16"): g = k = c
        sizes, window, strides, padding, dilation = (h, w), (kh, kw), (s, s), p, (d, d)
    elif rank == 1:  # seen as an image of height 1
        length = r.choice([25, 50, 99, 100, 128, 150, 197, 200, 249, 250, 256, 300, 333, 400, 499, 500, 512, 750, 768, 999, 1000, 1024, 1500, 1999, 2000, 2048, 3000, 3200, 4000, 4096, 6399, 8000, 8192, 12799, 16000, 16384, 25599, 32000, 48000, 51199, 65536])
        kw = r.choices([1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 25, 31, 32, 64, 128], [20, 6, 30, 4, 8, 5, 4, 5, 2, 3, 2, 2, 2, 1, 1, 1])[0]
        s = r.choices([1, 2, 4, 5, 8], [78, 12, 4, 3, 3])[0]
        d = r.choice([2, 4, 8, 16, 32]) if s == 1 and r.random() < 0.12 else 1
        p = d * (kw - 1) // 2 if r.random() < 0.7 else 0
        if r.random() < 0.1 and mode != "bf16": g = k = c
        sizes, window, strides, padding, dilation = (1, length), (1, kw), (1, s), (0, p), (1, d)
    else:
        z, h = r.choice([4, 5, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64]), r.choice([5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128])
        w = h if r.random() < 0.85 else r.choice([7, 14, 16, 24, 28, 32, 56])
        q = r.choice([1, 3, 3, 3, 3, 2, 5])
        window = (q, q, q) if r.random() < 0.75 else r.choice([(1, 3, 3), (3, 1, 1), (1, 7, 7), (3, 7, 7)])
        s = r.choice([1, 1, 1, 2])
        if q == 2: s = 2
        padding = tuple(x // 2 if q != 2 else 0 for x in window)
        n, c, k = r.choice([1, 1, 2, 2, 3, 4, 6, 8, 12, 16]), min(c, 512), min(k, 512)
        sizes, strides, dilation = (z, h, w), (s, s, s), (1, 1, 1)
    out = [(x + 2 * p - d * (q - 1) - 1) // s + 1 for x, q, s, p, d in zip(sizes, window, strides, padding, dilation)]
    if min(out) < 1: return None
    inside = outside = 1
    for x, y in zip(sizes, out): inside, outside = inside * x, outside * y
    taps = 1
    for q in window: taps *= q
    if 4 * (n * c * inside + n * k * outside + k * c * taps // g) > MOST: return None
    if c * k * taps // g > 4e7: return None
    return " ".join(map(str, (layout, mode, len(sizes), n, c, *sizes, k, g, *window, *strides, *padding, *dilation)))


def main():
    r, left = random.Random(int(sys.argv[1])), int(sys.argv[2])
    while left > 0:
        line = one(r)
        if line is None: continue
        print(line)
        left -= 1


if __name__ == "__main__": main()
