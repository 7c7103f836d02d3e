#!/usr/bin/env python3
"""Hostile inputs: each is refused in one line, or answered where it is legal.

    hostile.py MEMCALC [--cases N] [--seed 16] [--processes 2] [--only WORD] [--list]

Demanded of each: status 2 with one line on stderr and nothing on stdout (or 0 or 1 where the input may be legal), at most
2 s of the processor, at most 1 GiB of memory, and that it ends. A finding is printed as a command line; exit status 1
where there is any. --cases N: so many of each kind, drawn; without it all.
"""
import argparse
import math
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hostile_inputs import cases
from process import GIB, message_problem, run

SECONDS, BLOCKED_AFTER = 14.0, 100.0  # max-model of all families, 859 models, takes 9.5 s of the processor (2026-12-01), 5.3 by the clock


def stream(word, mode):
    return open(word, mode) if word else None


def outcome_of(executable, case, folder):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **case.environment}
    stdin, stdout = stream(case.stdin, "rb"), stream(case.stdout, "wb")
    before = ["/bin/sh", "-c", case.shell, executable] if case.shell else [executable]
    try:
        return run([*before, *case.argv], wall_limit=BLOCKED_AFTER, processor_limit=math.ceil(SECONDS), address_space=GIB, env=environment, stdin=stdin,
                   stdout=stdout, cwd=folder)
    finally:
        for each in (stdin, stdout):
            if each: each.close()


def problem_of(case, outcome):
    if outcome.blocked: return "did not end"
    if outcome.status == -signal.SIGXCPU: return f"more than {outcome.seconds:.0f} s"
    if outcome.status < 0: return f"signal {-outcome.status}"
    if outcome.status not in case.accepted:
        return f"status {outcome.status}: {outcome.err.decode(errors='replace').strip()[:300]}"
    if outcome.seconds > SECONDS: return f"{outcome.seconds:.1f} s"
    if outcome.memory > GIB: return f"{outcome.memory / GIB:.2f} GiB"
    if outcome.status == 2: return message_problem(outcome) or (outcome.out and "an answer beside the error") or None
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memcalc", type=Path)
    parser.add_argument("--cases", type=int, help="of each kind, drawn [all]")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", help="a kind")
    parser.add_argument("--list", action="store_true", help="the cases, without running them")
    options = parser.parse_args()
    executable, start = str(options.memcalc.resolve()), time.time()
    folder = Path(tempfile.mkdtemp())
    try:
        asked = [case for case in cases(folder) if not options.only or case.kind == options.only]
        if options.cases:
            random.Random(options.seed).shuffle(asked)
            kinds = Counter()
            asked = [case for case in asked if (kinds.update([case.kind]) or kinds[case.kind]) <= options.cases]
        if options.list:
            for case in asked: print(case.kind, shlex.join(map(repr, case.argv))[:200])
            return 0
        counts, found, slowest, largest = Counter(), 0, (0.0, None), 0
        with ThreadPoolExecutor(options.processes) as pool:
            for case, outcome in zip(asked, pool.map(lambda case: outcome_of(executable, case, folder), asked)):
                counts[case.kind] += 1
                slowest = max(slowest, (outcome.seconds, case), key=lambda each: each[0])
                largest = max(largest, outcome.memory)
                problem = problem_of(case, outcome)
                if not problem: continue
                found += 1
                words = [os.fsdecode(word) if len(word) < 300 else os.fsdecode(word[:60]) + f"…({len(word)} bytes)" for word in case.argv]
                print(f"{case.kind}: {problem}\n    memcalc {shlex.join(words)}"
                      + "".join(f" [{name} {value}]" for name, value in
                                (("stdin", case.stdin), ("stdout", case.stdout), ("shell", case.shell), ("environment", case.environment)) if value)
                      + (f"\n    {case.note}" if case.note else ""), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(asked)} inputs ({', '.join(f'{count} {kind}' for kind, count in counts.items())}): {found} wrong; "
          f"slowest {slowest[0]:.1f} s, at most {largest / 2**20:.0f} MiB; {time.time() - start:.0f} s in all")
    return 1 if found or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
