#!/usr/bin/env python3
"""Each public header compiles by itself.

    headers_alone.py COMPILER ROOT          prints what the compiler says; exit status 1 where it says anything
    headers_alone.py COMPILER --self-test   plants headers that need another in a temporary tree and demands that they are found

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


def problems_of(compiler, root):
    lib = Path(root) / "lib"
    headers = PUBLIC.search((lib / "CMakeLists.txt").read_text()).group(1).split()
    found = chains(closures(lib, headers))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = list(filter(None, pool.map(lambda chain: problem_of(compiler, lib, chain), found)))
    print(f"{len(headers)} headers in {len(found)} compilations")
    return problems


# {header: its text}, and a word of what the compiler says of them; none: they are right. A chain begins with what its last
# header includes, so that one that is wrong is not hidden by those before it.
PLANTED = (
    ({"a.h": "using A = int;\n", "b.h": '#include "a.h"\nusing B = A;\n'}, None),
    ({"a.h": "using A = int;\n", "b.h": "using B = A;\n"}, "b.h"),
    ({"a.h": "using A = int;\n", "b.h": '#include "a.h"\nusing B = C;\n', "c.h": '#include "b.h"\nusing C = A;\n'}, "b.h"),
)


def self_test(compiler):
    failures = []
    for headers, expected in PLANTED:
        with tempfile.TemporaryDirectory() as root:
            lib = Path(root, "lib")
            lib.mkdir()
            for name, text in headers.items(): (lib / name).write_text("#pragma once\n" + text)
            (lib / "CMakeLists.txt").write_text("set(public_headers\n  " + "\n  ".join(headers) + "\n)\n")
            found = "".join(problems_of(compiler, root))
        if (expected or "") not in found or bool(found) != bool(expected):
            failures.append(f"{headers}: expected {expected}, found {found or 'nothing'}")
    print("\n".join(failures) or f"{len(PLANTED)} sets of headers judged as they should be")
    return bool(failures)


def main(compiler, of):
    if of == "--self-test": return self_test(compiler)
    problems = problems_of(compiler, of)
    for problem in problems: print(problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
