#!/usr/bin/env python3
"""Random questions as people read their answers: the texts of estimate and of the planner's commands.

    random_texts.py MEMCALC [--runs 1500] [--seed 7] [--processes 2]

Demanded of each: status 0, 1 or 2; at most 12 s of the processor; at status 2 one line on stderr; else no table or sentence wider
than 80 columns, no "nan" or "inf", no "1 layers", no "-0.0 %", no sentence with a gap, and of twice the batch at least as much
memory. A finding is printed as a command line; exit status 1 where there is any.
"""
import argparse
import json
import random
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from process import message_problem, run
from random_runs import SECONDS, draw, table_of

COMMANDS = ("estimate",) * 8 + ("max-batch", "max-seq", "sweep", "compare", "ladder", "upgrade")
ONE = re.compile(r"(?<![\d.,x*^-])1 (assumptions|limits|layers|sequences|micro-batches|images|tokens|GPUs|cards|rows|points|samples|steps|stages|"
                 r"ranks|parameters|columns|candidates|targets|hosts|options|beams|completions|prompts|kernels|rules)\b")
ODD = re.compile(r"(?<![\w-])-?(nan|inf)(?![\w-])|[-+]0(\.0+)? (B|KiB|MiB|GiB|%)|(?<!\w)\(\)|\( |,,|\{\}| ,| \.(?![\w/.])")


def value_of(argv, name):
    return argv[argv.index(name) + 1] if name in argv else None


def without(argv, *names):
    for name in names:
        if name in argv: argv = argv[:argv.index(name)] + argv[argv.index(name) + 2:]
    return argv


def question(generator, table):
    """A command line without the executable."""
    argv = [word for word in draw(generator, table) if word not in ("--require-fit", "--per-rank")]
    command = generator.choice(COMMANDS)
    if command == "estimate": return argv + generator.choice(([], [], ["--details"], ["--explain"]))
    if command == "max-batch": argv = without(argv, "--bs")
    if command == "max-seq": argv = without(argv, "--seq")
    if command in ("max-batch", "max-seq", "ladder") and "--gpu" not in argv: argv += ["--gpu", generator.choice(("rtx-4090", "t4", "h100-sxm"))]
    if command == "sweep": argv = [*without(argv, "--bs"), "--bs", generator.choice(("1..8*2", "1,2,3", "2..6+2"))]
    if command == "compare": argv = [*without(argv, "--gpu"), "--gpu", generator.choice(("rtx-4090,t4", "a100,h100", "all"))]
    if command == "upgrade": argv += ["--from", generator.choice(("p3", "p2", "p1")), "--to", generator.choice(("p1", "p4", "transformers=5.23.0"))]
    return [command, *argv]


def text_problem(text):
    for line in text.splitlines():  # a command, a path and an operator's name have no place to break
        if len(line) > 80 and not re.search(r"/|memcalc |>|^ +--", line): return "a wide line: " + line
    found = ONE.search(text) or ODD.search(text)
    return found and f"'{found[0]}' in: {text[max(0, found.start() - 60):found.end() + 30]!r}"


def problem_of(memcalc, argv):
    outcome = run([memcalc, *argv])
    if outcome.blocked or outcome.status not in (0, 1, 2): return f"status {outcome.status}: {outcome.err.decode(errors='replace').strip()}"
    if outcome.seconds > SECONDS: return f"{outcome.seconds:.1f} s"
    if outcome.status == 2: return message_problem(outcome)
    if found := text_problem(outcome.out.decode()): return found
    if argv[0].startswith("--"):  # an estimate
        peaks = [json.loads(run([memcalc, *without(argv, "--bs"), "--bs", str(bs), "--no-remedies", "--format", "json"]).out or "null")
                 for bs in (int(value_of(argv, "--bs")), 2 * int(value_of(argv, "--bs")))]
        if all(peaks) and peaks[1]["memory"]["peak_allocated_bytes"] < 0.999 * peaks[0]["memory"]["peak_allocated_bytes"]: return "less memory of twice the batch"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memcalc")
    parser.add_argument("--runs", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    generator, table, found = random.Random(options.seed), table_of(), 0
    asked = [question(generator, table) for _ in range(options.runs)]
    with ThreadPoolExecutor(options.processes) as pool:
        for argv, problem in zip(asked, pool.map(lambda argv: problem_of(options.memcalc, argv), asked)):
            if not problem: continue
            found += 1
            print(f"{problem}\n    memcalc {shlex.join(argv)}", flush=True)
    print(f"{options.runs} questions, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
