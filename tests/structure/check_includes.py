#!/usr/bin/env python3
"""Checks that every source of the library includes what it uses, by itself.

    check_includes.py [ROOT]      prints one line per violation; exit status 1 where there is any
    check_includes.py --self-test plants violations in a temporary tree and demands that each one is found

CI compiles sources in groups (lib/units.txt), where one source gives the next its headers; daily builds compile each
alone. Compiling all of them alone as well would take 20 minutes, so this reads the text: a type or a function that one of the
library's headers declares in its namespace has to come from a header that the source reaches. It does not see constants,
members, whether a forward declaration is enough, or the standard library.
"""
import functools
import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# Declared at the first column: clang-format indents what stands within a class or a function.
TYPE = re.compile(r"^(?:template\s*<[^\n]*>\s*)?(?:class|struct|enum class|enum|using)\s+([A-Z]\w+)\b", re.MULTILINE)
FUNCTION = re.compile(
    r"^(?!#|using\b|class\b|struct\b|enum\b|return\b|namespace\b|template\b)[\w\[][^\n;{}=()]*?[\s&*](\w+)\(", re.MULTILINE)
NESTED_TYPE = re.compile(r"\b(?:class|struct|enum class|enum|using)\s+(?:\w+::)?([A-Z]\w+)\b")
OF_THE_LIBRARY = r"(?<![\w.:])(?<!->)(?:(?:memcalc|custom|family|compile|config|no_grad)::)*"
TYPE_USED = re.compile(OF_THE_LIBRARY + r"([A-Z]\w+)\b")
FUNCTION_USED = re.compile(OF_THE_LIBRARY + r"([a-z]\w+)\(")
# What a source declares itself, within a class or a function: a member, a parameter, an enumerator, a variable.
OWN_TYPE = r"\b(?:class|struct|enum|using|typename)\s+{name}\b|\b{name}[,;=]|[,{{]\s*{name}\s*[}},]"
OWN = r"(?:[\w>&*\]]\s+|[&*\[,]\s*){name}\s*[({{=;,:)\]]"
CALLS = r"\b(?:return|else|co_return|case|throw|and|or|not|new|delete)\s+{name}\("


class Tree:
    """The sources under ROOT/lib, read once."""

    def __init__(self, root):
        self.lib = Path(root) / "lib"

    @functools.lru_cache(maxsize=None)
    def text(self, name):
        path = self.lib / name
        return path.read_text() if path.exists() else ""

    @functools.lru_cache(maxsize=None)
    def code(self, name):
        return NOT_CODE.sub('""', self.text(name))

    @functools.lru_cache(maxsize=None)
    def declared(self, name):
        code = self.code(name)
        return frozenset(TYPE.findall(code)), frozenset(FUNCTION.findall(code))

    @functools.lru_cache(maxsize=None)
    def given(self, name):
        """What a header gives a source that includes it, members and nested types, too: by kind as declared()."""
        return frozenset(NESTED_TYPE.findall(self.code(name))), frozenset(re.findall(r"\w+", self.code(name)))

    @functools.lru_cache(maxsize=None)
    def reached(self, name):
        """The headers that NAME includes, and those that they include."""
        seen, rest = set(), INCLUDE.findall(self.text(name))
        while rest:
            header = rest.pop()
            if header not in seen:
                seen.add(header)
                rest += INCLUDE.findall(self.text(header))
        return frozenset(seen)

    def files(self, ending):
        return sorted(str(path.relative_to(self.lib)) for path in self.lib.rglob("*" + ending))


def violations(root):
    tree = Tree(root)
    headers = tree.files(".h")
    for kind, used in enumerate((TYPE_USED, FUNCTION_USED)):
        where = {}
        for header in headers:
            for name in tree.declared(header)[kind]:
                where.setdefault(name, []).append(header)
        for source in headers + tree.files(".cc"):
            code = tree.code(source)
            known = set(tree.declared(source)[kind]).union(*(tree.given(header)[kind] for header in tree.reached(source)))
            for name in sorted(set(used.findall(code)) & where.keys() - known):
                if not is_own(name, code):
                    yield f"lib/{source}: uses {name}, which stands in {' and '.join(where[name])}, and includes none of them"


def is_own(name, code):
    """Whether the source declares the name, too: as a member, a parameter, an enumerator or a local of its own."""
    if name[0].isupper():
        return re.search(OWN_TYPE.format(name=name), code) is not None
    return re.search(OWN.format(name=name), re.sub(CALLS.format(name=name), "", code)) is not None


HEADERS = {
    "lib/" "memcalc/a.h": "namespace memcalc {\nstruct Apple {\n  int seeds;\n};\nint peel(const Apple& apple);\n}\n",
    "lib/" "memcalc/b.h": '#include "memcalc/a.h"\nstruct Basket {\n  struct Handle {};\n  int weigh();\n};\n',
}
# A source, and what is found in it: the name that it uses without a header of its own.
PLANTED = [
    ("int f() { return peel(0); }\n", "peel"),
    ("int f() { Apple apple; return 0; }\n", "Apple"),
    ("int f() { return memcalc::peel(0); }\n", "peel"),
    ('#include "memcalc/a.h"\nint f() { Basket b; return peel(0); }\n', "Basket"),
    ('#include "memcalc/b.h"\nint f() { Apple a; return peel(a); }\n', None),
    ('int f() { const auto peel = [](int x) { return x; }; return peel(0); }\n', None),
    ("int f(Fruit x) { return x.peel(0) + x->peel(0) + other::peel(0); }  // peel(0)\n", None),
    ('const char* f() { return "peel(0) Apple "; }\n', None),
    ("struct Mine {\n  struct Apple {};\n  int peel(int);\n};\nint f(Mine::Apple a) { Apple b; return peel(0); }\n", None),
]


def self_test():
    failures = []
    for source, expected in PLANTED:
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**HEADERS, "lib/" "memcalc/c.cc": source}.items():
                (Path(root) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(root) / path).write_text(text)
            found = list(violations(root))
        if len(found) != (expected is not None) or any(f"uses {expected}," not in line for line in found):
            failures.append(f"{source!r}: expected {expected}, found {found}")
    print("\n".join(failures) or f"{len(PLANTED)} sources judged as they should be")
    return bool(failures)


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    found = list(violations(arguments[0] if arguments else Path(__file__).resolve().parents[2]))
    print("\n".join(found) or "every source includes what it uses")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
