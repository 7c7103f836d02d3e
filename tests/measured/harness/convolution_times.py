"""Writes the table of specs/measured/h100-sxm/convolution_times.txt of tests/measured/convolution_passes_h100.jsonl.gz and
convolution_passes_h200.jsonl.gz: of what was measured more than once on a card the median; without what is dilated or depthwise, and of what lies channels
last without what has groups.

usage: convolution_times.py"""
import collections
import gzip
import json
import math
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "specs/measured/h100-sxm/convolution_times.txt"
PASSES = ("tests/measured/convolution_passes_h100.jsonl.gz", "tests/measured/convolution_passes_h200.jsonl.gz")  # by card
TYPES = {"bf16": 0, "fp16": 0, "tf32": 1, "fp32": 2}
EVENTS_US, LEAST_US = 2.4, 1.2  # what two events add to a kernel


def nanoseconds(us):
    return str(round(1000 * float(f"{us:.3g}")))


def place_of(row):
    """Where the library looks for it: by type and kind, then by channels of a group; what has a size in common with the row before is read quickest."""
    card, of_type, kind, dimensions, inside, outside, groups, entering, leaving, window, images = row
    return of_type, kind, inside // groups, outside // groups, groups, window, leaving, entering, dimensions, images, card


def main():
    rows, images_of = collections.defaultdict(list), {}
    for card, line in ((card, line) for card, path in enumerate(PASSES) for line in gzip.open(ROOT / path, "rt")):
        layout, kind, n, image, weight, stride, padding, dilation, groups, transposed, *us = json.loads(line)
        if max(dilation) > 1 or (layout == "nhwc" and groups > 1) or (groups > 1 and groups == (weight[1] * groups if transposed else image[0])): continue
        sizes = list(zip(image[1:], stride, padding, weight[2:]))
        out = [(i - 1) * s - 2 * p + k if transposed else (i + 2 * p - k) // s + 1 for i, s, p, k in sizes]
        inside, outside, entering, leaving = image[0], weight[0], image[1:], out
        if transposed:  # the convolution that it is the gradient of
            inside, outside, entering, leaving, us = weight[1] * groups, image[0], out, image[1:], [us[1], us[0], us[2]]
        of = 2 if layout == "nhwc" else int(groups > 1)
        key = (card, TYPES[kind], of, len(stride), inside, outside, groups, n * math.prod(entering), n * math.prod(leaving), math.prod(weight[2:]))
        # How large an image is matters in float32; elsewhere whether it is a multiple of 16 bytes in 16 bits.
        same = n if kind == "fp32" else math.gcd(math.prod(leaving), 8)
        images_of[key, same] = min(n, images_of.get((key, same), n))
        rows[key, same].append(us)
    lines = []
    for (key, same), all_us in rows.items():
        times = [nanoseconds(max(statistics.median(each) - EVENTS_US, LEAST_US)) for each in zip(*all_us)]
        key = *key, images_of[key, same]
        lines.append((place_of(key), "{" + ", ".join([*map(str, key), *times]) + "},\n"))
    head = TABLE.read_text().split("[times]\n{")[0]
    TABLE.write_text(head + "[times]\n" + "".join(line for _, line in sorted(lines)))


if __name__ == "__main__": main()
