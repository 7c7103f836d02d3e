#!/usr/bin/env python3
"""Which of the models that four trainers support memcalc answers by their ids on the hub alone: no torch, no file.

    hub_ids.py MEMCALC                            100 ids drawn from all four tables, and what became of each
    hub_ids.py MEMCALC --draw 100 --seed 7        another draw; --unanswered names those without an answer
    hub_ids.py MEMCALC --all                      every id, by table
    hub_ids.py MEMCALC --all --part 2/5           a fifth of them: every fifth id
    hub_ids.py --write FOLDER                     the list anew, from clones named OWNER+NAME/repo in FOLDER

The list (../published/hub_ids.tsv.gz) has a line for each table with its source, commit and date, and a line for each id
with its table. An id is answered where memcalc gives an estimate, refused where it says that the family is not built or
what else is in the way, and unknown where it has no idea. Exit status 1 where fewer than --at-least are answered.
"""
import argparse
import collections
import gzip
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "published/hub_ids.tsv.gz"
SEED = 20261126
QUOTED = re.compile(r"""["']([A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*)["']""")


def git(repository, *command):
    return subprocess.run(["git", "-C", repository, *command], capture_output=True, text=True, check=True).stdout


def texts(repository, matches):
    for path in git(repository, "ls-tree", "-r", "HEAD", "--name-only").splitlines():
        if matches(path): yield git(repository, "show", f"HEAD:{path}")


def of_llama_factory(repository):
    for text in texts(repository, lambda path: path.endswith("extras/constants.py")):
        yield from re.findall(r'DownloadSource\.DEFAULT:\s*"([^"]+)"', text)


def of_swift(repository):
    """The last id of a Model(…) is that on the hub of Hugging Face; the one before it is ModelScope's."""
    for text in texts(repository, lambda path: path.startswith("swift/model/models/") and path.endswith(".py")):
        for model in re.findall(r"Model\(([^()]*)\)", text): yield from QUOTED.findall(model)[-1:]


def of_unsloth(repository):
    for text in texts(repository, lambda path: path == "unsloth/models/mapper.py"): yield from QUOTED.findall(text)


def of_axolotl(repository):
    for text in texts(repository, lambda path: path.startswith("examples/") and path.endswith((".yaml", ".yml"))):
        yield from re.findall(r"""^base_model:\s*["']?([\w.\-]+/[\w.\-]+)""", text, re.M)


TABLES = {"axolotl": ("axolotl-ai-cloud/axolotl", of_axolotl), "llamafactory": ("hiyouga/LLaMA-Factory", of_llama_factory),
          "swift": ("modelscope/ms-swift", of_swift), "unsloth": ("unslothai/unsloth", of_unsloth)}


def write(folder):
    lines = []
    for table, (name, ids_of) in TABLES.items():
        repository = folder / name.replace("/", "+") / "repo"
        commit, date = git(repository, "log", "-1", "--format=%H %cs").split()
        lines.append(f"# {table}\t{name}\t{commit}\t{date}")
        lines += [f"{table}\t{each}" for each in sorted(set(ids_of(repository)))]
    LIST.write_bytes(gzip.compress("\n".join(lines + [""]).encode(), 9, mtime=0))
    print(f"{LIST}: {sum(not line.startswith('#') for line in lines)} ids")


def read():
    """{id: its tables}, in the order of ids without regard to case."""
    tables = collections.defaultdict(list)
    for line in gzip.decompress(LIST.read_bytes()).decode().splitlines():
        if not line.startswith("#"):
            table, each = line.split("\t")
            tables[each].append(table)
    return {each: tables[each] for each in sorted(tables, key=lambda each: (each.lower(), each))}


def ask(memcalc, each):
    """(answered, refused or unknown, what memcalc said). A checkpoint that is packed in fewer bits is trained by adapters
    or runs alone: where the refusal accepts one of these, it is what is asked."""
    asked = [memcalc, "--model", each, "--bs", "1", "--bf16", "--gpu", "h100-sxm", "--format", "json"]
    for options in ([], ["--lora", "16"], ["--infer"]):
        if options and options[0] not in said.partition("accepted:")[2]: continue
        done = subprocess.run(asked + options, capture_output=True, text=True, timeout=300)
        if done.returncode in (0, 1): return "answered", ""  # 1: it does not fit the card
        said = (done.stderr.strip().splitlines() or [""])[-1]
        if done.returncode != 2: raise SystemExit(f"{each}: exit status {done.returncode}: {said}")
    return ("unknown" if "unknown model" in said else "refused"), said


def shares(counts):
    total = counts.total()
    return ", ".join(f"{counts[kind]} {kind} ({100 * counts[kind] / total:.1f} %)" for kind in ("answered", "refused", "unknown"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memcalc", nargs="?")
    parser.add_argument("--draw", type=int, default=100)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--unanswered", action="store_true")
    parser.add_argument("--at-least", type=int, default=0)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    if arguments.write: return write(arguments.write)
    if arguments.memcalc is None: parser.error("MEMCALC is missing")

    tables = read()
    asked = list(tables)
    if not arguments.all: asked = random.Random(arguments.seed).sample(asked, arguments.draw)
    part, parts = map(int, arguments.part.split("/"))
    asked = asked[part - 1::parts]
    with ThreadPoolExecutor(2) as pool: answers = list(pool.map(lambda each: ask(arguments.memcalc, each), asked))
    kinds, of_table = collections.Counter(), collections.defaultdict(collections.Counter)
    for each, (kind, said) in zip(asked, answers):
        kinds[kind] += 1
        for table in tables[each]: of_table[table][kind] += 1
        if arguments.unanswered and kind != "answered": print(f"{kind}\t{each}\t{said}")
    print(f"{len(asked)} of {len(tables)} ids: {shares(kinds)}")
    for table in sorted(of_table): print(f"  {table}: {of_table[table].total()} ids: {shares(of_table[table])}")
    return kinds["answered"] < arguments.at_least


if __name__ == "__main__":
    sys.exit(main())
