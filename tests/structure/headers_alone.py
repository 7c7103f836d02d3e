#!/usr/bin/env python3
"""Each public header compiles by itself: headers_alone.py COMPILER ROOT.

The headers are compiled in chains, in which each includes all that stand before it: what it would see of them it sees
anyway, so that a chain says as much as a compilation of each alone, and takes as long as its last.
"""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
PUBLIC = re.compile(r"^set\(public_headers$(.*?)^\)", re.MULTILINE | re.DOTALL)


def closures(lib, headers):
    """{header: all that it includes}"""
    known = {}

    def closure(name):
        if name not in known:
            own = INCLUDE.findall((lib / name).read_text())
            known[name] = frozenset(own).union(*map(closure, own))
        return known[name]

    return {header: closure(header) for header in headers}


def chains(includes):
    """Lists of headers that hold each once, the longest first; each of a list includes the one before it."""
    left, found = set(includes), []
    while left:
        longest = {}
        for header in sorted(left, key=lambda each: (len(includes[each]), each)):
            before = max((longest[each] for each in includes[header] & left), key=len, default=[])
            longest[header] = [*before, header]
        found.append(max(longest.values(), key=len))
        left -= set(found[-1])
    return found


def problem_of(compiler, lib, chain):
    """What the compiler says, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "chain.cc")
        source.write_text("".join(f'#include "{header}"\n' for header in chain))
        said = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{lib}", str(source)], capture_output=True, text=True)
    return said.stderr if said.returncode else ""


def main():
    compiler, lib = sys.argv[1], Path(sys.argv[2]) / "lib"
    headers = PUBLIC.search((lib / "CMakeLists.txt").read_text()).group(1).split()
    found = chains(closures(lib, headers))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = list(filter(None, pool.map(lambda chain: problem_of(compiler, lib, chain), found)))
    print(f"{len(headers)} headers in {len(found)} compilations")
    for problem in problems: print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
