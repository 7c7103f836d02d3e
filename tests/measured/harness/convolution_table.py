"""Writes specs/measured/cudnn-9.19/convolution_workspaces.txt (but for its comment) from tests/measured/convolutions_h100.jsonl.gz (vision.py).

usage: convolution_table.py, in the repository's root
"""
import collections, gzip, json

BATCHES = [1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256]
MODES = ["fp32", "tf32", "fp16", "bf16"]
LAYOUTS = ["nchw", "nhwc", "sequence"]
UNKNOWN = -9


def code(mode, b, ci, h, w, co, g, kh, kw, s, p, ws, sequence):
    """A formula's number where one gives these bytes, else the bytes: the same codes as conv_workspace.cc."""
    if ws < 0: return UNKNOWN
    if ws == 0: return 0
    e = 4 if mode in ("fp32", "tf32") else 2
    oh, ow = 1 if sequence else (h + 2 * p - kh) // s + 1, (w + 2 * p - kw) // s + 1
    x, y, wt, tiles = b * ci * h * w * e, b * co * oh * ow * e, co * ci // g * kh * kw * e, b * ((oh + 3) // 4) ** 2
    if sequence and ws == x + y + wt + 147: return -5
    formulas = {36 * (co * ci + tiles * ci + tiles * co) * 4: -1, x + y + 16: -2, x + y + wt + 16: -3, x + wt + 16: -4}
    return formulas.get(ws, ws)


rows = collections.defaultdict(lambda: [{}, {}, {}])
for line in gzip.open("tests/measured/convolutions_h100.jsonl.gz", "rt"):
    layout, mode, b, ci, h, w, co, g, kh, kw, s, p, backend, *bytes3 = json.loads(line)
    if backend != "Cudnn": continue
    sequence = layout == "sequence"  # images of one row; its length stands where images have their height
    assert sequence or (h == w and kh == kw)
    if layout == "nhwc" and kh > 1 and g == 1:  # the weights' copy in that layout is a request of PyTorch's
        copy = co * ci * kh * kw * (4 if mode in ("fp32", "tf32") else 2)
        bytes3 = [ws - copy if ws > 0 and i < 2 else ws for i, ws in enumerate(bytes3)]
    for i, ws in enumerate(bytes3): rows[(MODES.index(mode), LAYOUTS.index(layout), ci, co, g, kw, s, p, w)][i][b] = code(mode, b, ci, h, w, co, g, kh, kw, s, p, ws, sequence)
sequences = {(0,) * len(BATCHES): 0}
def index(found):
    s = tuple(found.get(b, UNKNOWN) for b in BATCHES)
    if all(x in (0, UNKNOWN) for x in s): s = (0,) * len(BATCHES)
    return sequences.setdefault(s, len(sequences))
for k in sorted(rows, key=lambda k: (LAYOUTS[k[1]] == "sequence", k)):  # their sequences last
    for f in rows[k]: index(f)
lines = ["{%s, %s}" % (", ".join(map(str, k)), ", ".join(str(index(f)) for f in rows[k])) for k in sorted(rows)]
TABLE = "specs/measured/cudnn-9.19/convolution_workspaces.txt"
comment = [line for line in open(TABLE) if line.startswith("#")]
with open(TABLE, "w") as f:
    f.write("".join(comment) + "[batches]\n{%s},\n" % ", ".join(map(str, BATCHES)))
    f.write("[sequences]\n" + "".join("{%s},\n" % ", ".join(map(str, s)) for s in sequences))
    f.write("[rows]\n" + "".join(l + ",\n" for l in lines))
print(len(rows), "convolutions,", len(sequences), "sequences")
