"""Writes specs/measured/cudnn-9.19/convolution_workspaces.txt (but for its comment) from tests/measured/convolutions_h100.jsonl.gz
(vision.py, convolution_programs.py) and convolution_plans_h200.jsonl.gz (convolution_plans.cc): further batches of these, and what is
known at eight batches and more. Needs numpy and scikit-learn, which convolution_engines.py imports.

usage: convolution_table.py, in the repository's root
"""
import collections, gzip, json

from convolution_engines import of_image

BATCHES = [1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256]
MODES = ["fp32", "tf32", "fp16", "bf16"]
LAYOUTS = ["nchw", "nhwc", "sequence"]
UNKNOWN, OF_ENGINE, LEAST_BATCHES = -9, -1000, 8


def code(convolution, which):
    """An engine's number where its formula gives these bytes, else the bytes: the same codes as conv_workspace.cc."""
    size = convolution.bytes[which]
    if size < 0: return UNKNOWN
    if size == 0: return 0
    of_images = convolution.kind == "image"
    engine = convolution.engine(which, of_images)
    return OF_ENGINE - engine if convolution.workspace(engine, of_images) == size else size


def code_of_sequence(mode, b, ci, length, co, g, k, s, p, ws):
    if ws <= 0: return UNKNOWN if ws < 0 else 0
    e = 4 if mode in ("fp32", "tf32") else 2
    x, y, wt = b * ci * length * e, b * co * ((length + 2 * p - k) // s + 1) * e, co * ci // g * k * e
    formulas = {x + y + wt + 147: -5, x + y + 16: -2, x + y + wt + 16: -3, x + wt + 16: -4}
    return formulas.get(ws, ws)


def lines(name): return (json.loads(line) for line in gzip.open(f"tests/measured/{name}.jsonl.gz", "rt"))


rows = collections.defaultdict(lambda: [{}, {}, {}])
found = collections.defaultdict(dict)  # of plans: by what a row has, the codes of a batch
for row in lines("convolution_plans_h200"):
    layout, mode, n, c, h, w, k, g, kh, kw, s, ph, pw, d, backend, *sizes = row
    if h != w or n not in BATCHES: continue
    key = (MODES.index(mode), LAYOUTS.index(layout), c, k, g, kw + (1000 * kh if kh != kw else 0) + (1_000_000 * d if d > 1 else 0), s,
           ph + (1000 * pw if pw != ph else 0), h)
    found[key][n] = row
for layout, mode, b, ci, h, w, co, g, kh, kw, s, p, backend, *bytes3 in lines("convolutions_h100"):
    if backend != "Cudnn": continue
    sequence = layout == "sequence"  # images of one row; its length stands where images have their height
    assert sequence or (h == w and kh == kw)
    if layout == "nhwc" and kh > 1 and g == 1:  # the weights' copy in that layout is a request of PyTorch's
        copy = co * ci * kh * kw * (4 if mode in ("fp32", "tf32") else 2)
        bytes3 = [ws - copy if ws > 0 and i < 2 else ws for i, ws in enumerate(bytes3)]
    convolution = None if sequence else of_image([layout, mode, b, ci, h, w, co, g, kh, kw, s, p, p, 1, backend, *bytes3])
    for i, ws in enumerate(bytes3):
        if not sequence and convolution.had_no_room(i): continue
        rows[(MODES.index(mode), LAYOUTS.index(layout), ci, co, g, kw, s, p, w)][i][b] = (
            code_of_sequence(mode, b, ci, w, co, g, kw, s, p, ws) if sequence else code(convolution, i))
for key, of in found.items():
    if key not in rows and len(of) < LEAST_BATCHES: continue
    for n, row in of.items():
        convolution = of_image(row)
        for i in range(3):
            if rows[key][i].get(n, UNKNOWN) == UNKNOWN: rows[key][i][n] = code(convolution, i)
sequences = {(0,) * len(BATCHES): 0}


def index(known):
    s = tuple(known.get(b, UNKNOWN) for b in BATCHES)
    if all(x in (0, UNKNOWN) for x in s): s = (0,) * len(BATCHES)
    return sequences.setdefault(s, len(sequences))


for k in sorted(rows, key=lambda k: (LAYOUTS[k[1]] == "sequence", k)):  # their sequences last
    for f in rows[k]: index(f)
text = ["{%s, %s}" % (", ".join(map(str, k)), ", ".join(str(index(f)) for f in rows[k])) for k in sorted(rows)]
TABLE = "specs/measured/cudnn-9.19/convolution_workspaces.txt"
comment = [line for line in open(TABLE) if line.startswith("#")]
with open(TABLE, "w") as f:
    f.write("".join(comment) + "[batches]\n{%s},\n" % ", ".join(map(str, BATCHES)))
    f.write("[sequences]\n" + "".join("{%s},\n" % ", ".join(map(str, s)) for s in sequences))
    f.write("[rows]\n" + "".join(line + ",\n" for line in text))
print(len(rows), "convolutions,", len(sequences), "sequences")
