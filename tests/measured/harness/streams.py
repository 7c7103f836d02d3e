"""One allocation history of each kind of program (programs.kind_of): what stream_test.cc compares event for event with
memcalc's requests. Histories are those that programs.py and diffusion.py leave (--keep all, --histories).

usage: streams.py pack HISTORIES OUT CASES …      the shortest of each kind, as OUT/program-KIND.history.tsv.gz
       streams.py kinds                           each kind, its programs, and its stream or none

Of a packed history addresses and segments are left out, and the third step where it asks for what the second does.
"""
import argparse
import gzip
import json
from pathlib import Path

import programs

PLACES = {"alloc": 0, "free_completed": "-"}  # in the place of an address
HISTORIES = programs.ROOT / "tests/measured/histories"
RUN_KEYS = {"--seq": "sequence_length", "--image": "image_size", "--target-seq": "target_sequence_length", "--optimizer": "optimizer",
            "--checkpointing": "checkpointing", "--lora": "lora"}


def kinds():
    """{kind: names of its programs}"""
    found = {}
    for entry in json.loads((programs.ROOT / "specs/programs/sources.json").read_text())["models"]:
        if "name" in entry and "of" not in entry and not entry.get("part"):
            found.setdefault(programs.kind_of(entry), []).append(entry["name"])
    return found


def file_of(kind): return f"program-{kind}.history.tsv.gz"


def run_of(case):
    """memcalc's record of a case's run."""
    if "run" in case: return case["run"]
    run = dict(model=case["name"], loop="bare", precision=case["prec"], weights_dtype="bf16" if case["prec"] == "bf16" else "fp32",
               batch_size=case["batch"], optimizer=case["optimizer"])
    for flag, value in zip(case["options"][::2], case["options"][1::2]):
        run[RUN_KEYS[flag]] = int(value) if value.isdigit() else value
    return run


def packed(path, case, kind):
    """The file of a history; its third step where it differs from the second."""
    lines = path.read_text().splitlines()
    head = json.loads(lines[0].removeprefix("# "))
    marks = [json.loads(line.removeprefix("# ")) for line in lines if line.startswith("# [")]
    rows = [line.split("\t") for line in lines if not line.startswith("#")][1:]
    ends = [max(mark[0] for mark in marks if mark[1].startswith(f"step {step} ")) for step in range(3)]

    def of_step(step): return [(row[0], row[2]) for row in rows[ends[step - 1]:ends[step]] if not row[0].startswith("segment")]

    last = ends[1] if of_step(1) == of_step(2) else ends[2]
    kept, place = [], [0]
    for action, _, size, stream in (row[:4] for row in rows[:last]):
        if action in PLACES: kept.append((action, PLACES[action], size, stream))
        place.append(len(kept))
    head = {"id": f"program-{kind}", "run": run_of(case), **{key: case[key] for key in ("harness",) if key in case},
            **{key: head[key] for key in ("gpu", "torch", "peak_allocated", "peak_reserved")}}
    text = ["# " + json.dumps(head), "# marks: [rows so far, phase just ended, allocated, reserved, max allocated]"]
    text += ["# " + json.dumps([place[mark[0]], *mark[1:5]]) for mark in marks if mark[0] <= last]
    text.append("action\taddress\tsize\tstream")
    text += ["\t".join(map(str, row)) for row in kept]
    return gzip.compress(("\n".join(text) + "\n").encode(), 9, mtime=0)


def pack(a):
    of_name = {name: kind for kind, names in kinds().items() for name in names}
    best = {}
    for cases in a.cases:
        for case in programs.lines_of(cases):
            path = Path(a.histories, case["id"] + ".history.tsv")
            if not path.exists(): continue
            kind = of_name[run_of(case)["model"].removesuffix("-pipeline")]
            if kind not in best or path.stat().st_size < best[kind][0].stat().st_size: best[kind] = (path, case)
    for kind, (path, case) in sorted(best.items()):
        made = packed(path, case, kind)
        Path(a.out, file_of(kind)).write_bytes(made)
        print(f"{kind:40} {len(made):8} {case['id']}")


def show(_):
    for kind, names in sorted(kinds().items()): print(f"{kind:40} {(HISTORIES / file_of(kind)).exists()!s:5} {', '.join(names)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("pack")
    for name in ("histories", "out"): command.add_argument(name)
    command.add_argument("cases", nargs="+")
    command.set_defaults(call=pack)
    commands.add_parser("kinds").set_defaults(call=show)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
