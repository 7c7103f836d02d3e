#!/usr/bin/env python3
"""Checks that the sources keep the rules of the house (lib/README.md).

    check_structure.py [ROOT]      prints one line per violation; exit status 1 where there is any
    check_structure.py --self-test plants violations in a temporary tree and demands that each one is found
"""
import re
import sys
import tempfile
from pathlib import Path

# A family is one folder: its sizes and config.json belong to spec/, its forward pass to models/.
FAMILY_OF_SPEC = re.compile(r"memcalc/families/(?:list\.cc|\w+/(?:spec\.h|config\.cc))")
RANKS = {"base": 0, "spec": 1, "symbolic": 2, "models": 3, "train": 4, "alloc": 5, "cost": 5, "report": 6,
         "memcalc.h": 7, "memcalc.cc": 7, "facade": 8, "plan": 8, "planning.h": 9}
# What two folders see of a lower rank, where it is less than all of it: a trace, a list of kernels and the names of their
# operators, never a model.
NARROW = {
    "alloc": ("base/", "spec/", "symbolic/trace.h", "symbolic/cuda_graph_streams.h"),
    "cost": ("base/", "spec/", "symbolic/trace.h", "symbolic/kernel_list.h", "symbolic/host_memory.h", "symbolic/host_work.h", "symbolic/compiled_code.h",
             "symbolic/within_call.h", "symbolic/first_calls.h", "symbolic/aten.h", "symbolic/aten_programs.h",
             "symbolic/vector_quantize.h", "symbolic/shard_copies.h", "symbolic/topk_blocks.h"),
}
# The probe puts the allocator itself on the driver: no façade shows its blocks.
INNER = {"probe/replay.cc": ("memcalc/alloc/caching_allocator.h",)}
FACES = ("cli", "python", "probe", "web")
FACADES = ("memcalc/memcalc.h", "memcalc/planning.h")  # what the faces see of the library
THIRD_PARTY = {  # the first part of an include: where it may stand
    "yaml-cpp": lambda path: path == "lib/memcalc/spec/config_files/yaml_text.cc",
    "toml++": lambda path: path == "lib/memcalc/spec/config_files/config_text.cc",
    "nlohmann": lambda path: re.fullmatch(r"lib/memcalc/(spec/[^/]+\.cc|report/render_json\w*\.cc)|web/src/\w+\.cc", path),
    "emscripten.h": lambda path: path == "web/src/module.cc",
    "fmt": lambda path: re.fullmatch(r"(lib/memcalc|cli|python/src)/.*\.cc", path),
    "CLI": lambda path: path.startswith("cli/"),
    "Eigen": lambda path: re.fullmatch(r"lib/memcalc/(cost|plan)/.+\.cc", path),
    "pybind11": lambda path: path.startswith("python/"),
    "gtest": lambda path: path.startswith("tests/"),
    "gmock": lambda path: path.startswith("tests/"),
    "benchmark": lambda path: path.startswith("tests/bench/"),
}
# The library neither prints nor ends the process, and reads neither the clock nor the environment.
FORBIDDEN_IN_LIB = {
    r"std::(cout|cerr|clog)\b|(?<![\w])(std::)?(printf|puts|fprintf)\s*\(": "the library never prints",
    r"(?<![\w])(std::)?(exit|_Exit|abort|terminate|assert)\s*\(": "the library never ends the process: throw Error",
    r"\bgetenv\b": "the library never reads the environment",
    r"_clock::now\b|(?<![\w.>])std::time\s*\(": "the library never reads the clock",
    r"\bfloat\b": "no float: bytes are 64-bit integers, FLOPs and seconds are double",
    r"\busing\s+namespace\b": "no using namespace",
    r"\bfile\s*\(\s*GLOB": "sources are listed, never globbed",
    r"\bstd::(ranges|views)::": "no std::ranges: Debian's emscripten, which builds the page, has none of its algorithms",
    r"\bstd::bit_cast\b": "no std::bit_cast, which emscripten's C++ library lacks: bits_of (base/bytes.h)",
}
# A rule forks on a behaviour, never on a version: what a version does is data (specs/profiles). Names and notes of
# versions are shown here:
FORKS = re.compile(r"\bversion\s*\([^()]*\)\s*(?:[<>]=?|==|!=)|(?:[<>]=?|==|!=)\s*(?:[\w.]+\.)?(?:version\s*\(|Version\s*\{)")
FORKLESS = re.compile(r"lib/memcalc/(spec/rules_|models/|families/|symbolic/|train/|alloc/|cost/)")
MAY_COMPARE_VERSIONS = ("lib/memcalc/train/version_notes.cc",)
# A forward pass calls operators (symbolic/ops): what these ask for, launch and record stands with them, not with it.
FORWARDS = re.compile(r"lib/memcalc/(models/|families/|train/(trl/|generate|beam_search|sentence_transformers))")
RAW_EVENTS = re.compile(
    r"\btape_?(?:\(\))?\.(?:empty|empty_strided|empty_resizable|alias|become_view|placeholder)\s*\(|"
    r"\bkernels\.(?:add|product|grouped_product|contraction|collective|synchronize|describe)\s*\(|"
    r"\bmemory\.(?:allocate|free|scratch|use_cublas\w*|mark_saved)\s*\(|"
    r"\bautograd\.(?:record|save|keep|set_history|set_edge|abandon_pending_node)\s*\(")
MAY_WRITE_EVENTS = (
    "lib/memcalc/models/module.cc",  # makes parameters and buffers
    "lib/memcalc/models/program_parameters.cc",  # the same of a program
    "lib/memcalc/models/program_custom.cc",  # is what torch.autograd.Function is: a node around recorded calls
    "lib/memcalc/models/megatron_gpt.cc",  # Megatron's buffers of positions
    "lib/memcalc/train/trl/vllm.cc",  # the weights' way to the server
)
# An operator of ATen is a row of this file, and named nowhere else.
ATEN, ATEN_LABEL = "lib/memcalc/symbolic/aten.h", re.compile(r'\{"(aten::\w+)"\}')
ATEN_OF_PROGRAMS = "lib/memcalc/symbolic/aten_programs.h"  # the same table: operators that families do not call
MAX_LINES, MANY_LINES = 800, 700  # one noun, one file; a warning from MANY_LINES on
# Paths of this repository, wherever a text names one: in comments, strings, pages, scripts. `*`, {…}, … and a name in
# capitals (specs/gpus/NAME.json) stand for any text. `facts` and `truth` were never part of the repository.
REFERENCE = re.compile(r"(?<![\w/.*}-])(?:\.\./)*((?:docs|tests|scripts|specs|lib|facts|truth)/[\w./*{}…-]*)")
STANDS_FOR_ANY = re.compile(r"\{[^{}/]*\}|…|(?<![\w.-])[A-Z]{2,}(?![\w-])")
# Folders of other repositories, which sources of figures name in the same way.
ELSEWHERE = ("docs/b200/", "docs/source/en/", "scripts/asplos/", "scripts/train/", "tests/assets/",
             "tests/functional_tests/")
TEXTS = ("*.md", "lib/**/*", "cli/**/*", "python/**/*", "probe/**/*", "web/**/*", "cmake/**/*", "tests/**/*", "docs/**/*", "scripts/*",
         "specs/**/*", "CMakeLists.txt", "CMakePresets.json", "pyproject.toml")
TEXT_SUFFIXES = (".h", ".cc", ".py", ".cu", ".pyi", ".md", ".in", ".txt", ".cmake", ".json", ".toml", ".ipynb", ".sh", "")
ITSELF = "tests/structure/check_structure.py"  # plants paths that do not exist
INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")', re.MULTILINE)


def without_comments_and_strings(text):
    token = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(token, lambda match: " " + "\n" * match.group().count("\n"), text, flags=re.DOTALL)


def sources_of(root):
    for top in ("lib", "cli", "python", "probe", "web", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".py", ".cu"):
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def includes_of(text):
    """(line number, included path, whether in quotes)"""
    for match in INCLUDE.finditer(text):
        name = match.group(1)
        yield text.count("\n", 0, match.start(1)) + 1, name[1:-1], name[0] == '"'


def folder_of(name):
    """The folder whose rank a file of the library has."""
    if name.startswith("memcalc/families/"): return "spec" if FAMILY_OF_SPEC.fullmatch(name) else "models"
    return name.split("/")[1]


def check_include(path, name, quoted, root):
    """The rule that an include breaks, or None."""
    first = name.split("/")[0]
    if not quoted and first in THIRD_PARTY:
        if path.startswith("lib/") and path.endswith(".h"): return f"a header of lib/ includes <{name}>"
        if not THIRD_PARTY[first](path): return f"<{name}> may not be included here"
    if not quoted: return None
    if first in THIRD_PARTY: return f'third-party headers are included with <>: "{name}"'
    if path.startswith(FACES) and first == "memcalc" and name not in FACADES + INNER.get(path, ()):
        return f'{path.split("/")[0]}/ sees only {" and ".join(FACADES)}, not "{name}"'
    if not path.startswith("lib/"): return None

    if first != "memcalc": return f'write the whole path: "{name}"'
    if name.endswith(".inc"): return None  # made of a table under specs/ when the library is built
    if not (root / "lib" / name).is_file(): return f'"{name}" does not exist'
    source, target = folder_of(path[len("lib/"):]), folder_of(name)
    if source not in RANKS or target not in RANKS: return f"no rank for {source} or {target}: see RANKS"
    if source == target or {source, target} == {"memcalc.h", "memcalc.cc"}: return None
    if RANKS[target] >= RANKS[source]:
        return f'{source} (rank {RANKS[source]}) includes "{name}" (rank {RANKS[target]})'
    if source in NARROW and not name.startswith(tuple(f"memcalc/{part}" for part in NARROW[source])):
        return f'{source}/ may not see "{name}"'
    return None


def check_file(path, text, root):
    lines = text.count("\n")
    if lines > MAX_LINES: yield f"{path}:{lines}: {lines} lines; at most {MAX_LINES}"
    if path.endswith(".py"): return
    if path.endswith(".h") and "#pragma once" not in text: yield f"{path}:1: no #pragma once"
    for line, name, quoted in includes_of(text):
        broken = check_include(path, name, quoted, root)
        if broken: yield f"{path}:{line}: {broken}"
    if path.startswith("lib/") and path not in (ATEN, ATEN_OF_PROGRAMS):
        for match in ATEN_LABEL.finditer(text):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[1]} has its row in {ATEN}"
    if path.startswith("lib/"):
        code = without_comments_and_strings(text)
        for pattern, rule in FORBIDDEN_IN_LIB.items():
            for match in re.finditer(pattern, code):
                yield f"{path}:{code.count(chr(10), 0, match.start()) + 1}: {rule} ({match.group().strip()})"
        if FORWARDS.match(path) and path not in MAY_WRITE_EVENTS:
            for match in RAW_EVENTS.finditer(code):
                yield f"{path}:{code.count(chr(10), 0, match.start()) + 1}: a forward pass calls operators, which write its events ({match.group().strip()})"
        if FORKLESS.match(path) and path not in MAY_COMPARE_VERSIONS:
            for match in FORKS.finditer(code):
                yield f"{path}:{code.count(chr(10), 0, match.start()) + 1}: a rule forks on a behaviour, never on a version ({match.group().strip()})"


def public_headers(files):
    """What the facades reach."""
    found, left = set(), [f"lib/{name}" for name in FACADES]
    while left:
        path = left.pop()
        if path in found or path not in files: continue
        found.add(path)
        left += ["lib/" + name for _, name, quoted in includes_of(files[path]) if quoted]
    return found


def check_lists(root, files):
    """lib/CMakeLists.txt names every source, and as public headers exactly those that the facades reach."""
    cmake = root / "lib/CMakeLists.txt"
    listed = {"lib/" + name for name in re.findall(r"^\s*(memcalc/\S+\.(?:cc|h))\s*$", cmake.read_text(), re.MULTILINE)}
    wanted = {path for path in files if re.fullmatch(r"lib/.*\.cc", path)} | public_headers(files)
    for path in sorted(wanted - listed): yield f"lib/CMakeLists.txt:1: {path} is not listed"
    for path in sorted(listed - wanted):
        yield f"lib/CMakeLists.txt:1: {path} is listed, but " + (
            "no facade reaches it" if path in files else "does not exist")


# What a source declares within its unnamed namespace, at the first column as clang-format leaves it.
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
OF_UNNAMED = re.compile(r"^(?:(?:class|struct|enum class|enum)\s+(\w+)\b(?!\s*;)|"
                        r"(?!using\b|class\b|struct\b|enum\b|template\b|namespace\b)\w[^\n;{}=()]*?[\s&*](\w+)(?:\(|\[|\s*[={;]))", re.MULTILINE)


def check_units(root, files):
    """units.txt of lib and of tests: each source once; what is compiled together has no name twice in its unnamed namespaces."""
    for folder, source in (("lib", r"memcalc/\S+\.cc"), ("tests", r"unit/\S+\.cc")):
        path = root / folder / "units.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        said = f"{folder}/units.txt"
        lines = ["" if line.startswith("#") else line for line in lines]
        names = re.findall(source, "\n".join(lines))
        for name in sorted(set(names)):
            if names.count(name) > 1: yield f"{said}:1: {name} stands in it {names.count(name)} times"
            if f"{folder}/{name}" not in files: yield f"{said}:1: {name} does not exist"
        for number, line in enumerate(lines, 1):
            seen = {}
            for name in dict.fromkeys(re.findall(source, line)):
                for block in UNNAMED.findall(files.get(f"{folder}/{name}", "")):
                    for own in {one or other for one, other in OF_UNNAMED.findall(block)} - {"PrintTo"}:
                        if seen.setdefault(own, name) != name:
                            yield f"{said}:{number}: {own} stands in the unnamed namespaces of {seen[own]} and {name}"


def check_package(root):
    """python/CMakeLists.txt names every module of the package: the others would be in no build and no wheel."""
    folder = root / "python/memcalc"
    cmake = root / "python/CMakeLists.txt"
    listed = cmake.read_text().split() if cmake.exists() else []
    for path in sorted(folder.rglob("*.py")) if folder.is_dir() else []:
        if str(path.relative_to(folder)) not in listed:
            yield f"python/CMakeLists.txt:1: {path.relative_to(root)} is not listed"


def check_cmake(root):
    for path in sorted([root / "CMakeLists.txt", *root.glob("cmake/*"), *root.glob("[lctp]*/**/CMakeLists.txt")]):
        if re.search(r"\bfile\s*\(\s*GLOB", path.read_text()):
            yield f"{path.relative_to(root)}:1: sources are listed, never globbed"


LIBRARIES = ("nlohmann-json3-dev", "libcli11-dev", "libeigen3-dev", "libfmt-dev", "libyaml-cpp-dev", "libtomlplusplus-dev", "zlib1g-dev")


def check_packages(root):
    """Whoever says what to install for the command says all of it: a machine that has built memcalc does not see what is missing."""
    for name in ("scripts/memcalc", "scripts/test", "packaging/Containerfile", "action.yml", "docs/python.md"):
        text = (root / name).read_text() if (root / name).exists() else LIBRARIES
        for library in LIBRARIES:
            if library not in text: yield f"{name}:1: {library} is not installed"


def exists(root, reference):
    """Whether a path, or any path that a pattern stands for, is in the tree."""
    reference = re.sub(r"\.+$", "", reference).rstrip("/")
    pattern = re.sub(r"\*+", "*", STANDS_FOR_ANY.sub("*", reference))
    if "*" in pattern: return next(root.glob(pattern), None) is not None
    place = root / pattern
    # git keeps no empty folder: one that is left over here is missing in a clone.
    return any(place.iterdir()) if place.is_dir() else place.exists()


def texts_of(root):
    """(path, text) of every file that people read or write; measured rows and traces are data."""
    for path in sorted({path for pattern in TEXTS for path in root.glob(pattern)}):
        name = path.relative_to(root).as_posix()
        if path.suffix not in TEXT_SUFFIXES or not path.is_file() or name == ITSELF or "__pycache__" in name or "/corpus/" in name: continue
        yield name, path.read_text(encoding="utf-8")


def check_references(path, text, root):
    """Every path of this repository that a text names exists."""
    for match in REFERENCE.finditer(text):
        reference = match.group(1)
        if not reference.startswith(ELSEWHERE) and not exists(root, reference):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: there is no {reference}"


def anchors_of(page):
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(path, text, root):
    """Every link of a page to another page, or to a heading, has something to arrive at."""
    for match in re.finditer(r"\]\(([^)#:\s{}]*)(?:#([^)\s]*))?\)", text):
        line, target = text.count("\n", 0, match.start()) + 1, match.group(1)
        page = root / path if not target else (root / path).parent / target
        if not page.exists(): yield f"{path}:{line}: the link leads nowhere: {target}"
        elif match.group(2) and match.group(2) not in anchors_of(page.read_text(encoding="utf-8")):
            yield f"{path}:{line}: {target or 'this page'} has no heading #{match.group(2)}"


def check_covered_by(path, text, root):
    """"Covered by" names tests by their whole paths; that these exist is checked with all other paths."""
    for match in re.finditer(r"Covered by\b(?:\s*\n\s*(?://|#))?((?:[^.]|\.(?=\w))*)\.", text):
        line = text.count("\n", 0, match.start()) + 1
        names = re.findall(r"[\w./-]*\w", match.group(1))
        short = [name for name in names if re.fullmatch(r"\w+\.(cc|py)", name)]
        if short: yield f'{path}:{line}: write the whole path: "{short[0]}"'
        elif not any(name.startswith("tests/") for name in names): yield f"{path}:{line}: covered by no test"


MIRROR = re.compile(r'// MIRRORS\([a-z_]+, "[\w./+-]+\.(?:py|cpp|cu|cuh|h)", "(?:\d+\.\d+\.\d+|[0-9a-f]{8})"\)')  # or a commit


def check_mirrors(path, text):
    """What scripts/reread reads; a family of transformers has at least one."""
    for number, line in enumerate(text.splitlines(), 1):
        if "MIRRORS(" in line and not MIRROR.fullmatch(line):
            yield f'{path}:{number}: expected // MIRRORS(framework, "file", "1.2.3") on a line of its own'
    if path.startswith("lib/memcalc/models/") and re.search(r"^//.*transformers models/", text, re.MULTILINE) and "MIRRORS(" not in text:
        yield f"{path}: a family names the source that it mirrors: MIRRORS(transformers, …)"


def check_tree(root):
    files = dict(sources_of(root))
    violations = [line for path, text in files.items() for line in check_file(path, text, root)]
    for path, text in texts_of(root):
        violations += check_references(path, text, root)
        if path.endswith((".md", ".md.in")): violations += check_links(path, text, root)
        if path in files: violations += check_covered_by(path, text, root)
    for path, text in files.items():
        if path.startswith("lib/"): violations += check_mirrors(path, text)
    return violations + list(check_lists(root, files)) + list(check_units(root, files)) + list(check_package(root)) + list(check_cmake(root)) + list(check_packages(root))


def long_files(root):
    return [(path, text.count("\n")) for path, text in sources_of(root) if MANY_LINES < text.count("\n") <= MAX_LINES]


# --- self-test ---------------------------------------------------------------------------------------------------

CLEAN = {
    "CMakeLists.txt": "add_subdirectory(lib)\n",
    "lib/CMakeLists.txt": "add_library(memcalc\n  memcalc/memcalc.cc\n  memcalc/spec/read.cc\n)\nset(public_headers\n"
                          "  memcalc/memcalc.h\n  memcalc/base/bytes.h\n  memcalc/report/report.h\n)\n",
    "lib/memcalc/base/bytes.h": "#pragma once\n#include <cstdint>\n",
    "lib/memcalc/spec/read.cc": "#include <nlohmann/json.hpp>\n// printf() and exit() in a comment; float too\n"
                                "namespace {\nint length_of(int a) {\n  return a;\n}\n}  // namespace\n",
    "lib/units.txt": "memcalc/memcalc.cc memcalc/spec/read.cc\n",
    "lib/memcalc/symbolic/trace.h": '#pragma once\n#include "memcalc/base/bytes.h"\n',
    "lib/memcalc/symbolic/tape.h": '#pragma once\n#include "memcalc/symbolic/trace.h"\n',
    "lib/memcalc/alloc/replay.h": '#pragma once\n#include "memcalc/symbolic/trace.h"\n',
    "lib/memcalc/cost/gemm.h": '#pragma once\n#include "memcalc/base/bytes.h"\n',
    "lib/memcalc/report/report.h": '#pragma once\n#include "memcalc/base/bytes.h"\n',
    "lib/memcalc/memcalc.h": '#pragma once\n#include "memcalc/report/report.h"\n',
    "lib/memcalc/memcalc.cc": '#include "memcalc/memcalc.h"\n#include "memcalc/alloc/replay.h"\n'
                              'const char* s = "std::cout << 1; abort()";\n',
    "cli/main.cc": '#include <CLI/CLI.hpp>\n#include "memcalc/memcalc.h"\n#include "options.h"\n',
    "tests/unit/a_test.cc": '// Covered by\n// tests/unit/a_test.cc and all of tests/unit.\n#include <gtest/gtest.h>\n'
                            '#include "memcalc/symbolic/tape.h"\n',
    "docs/a.md": "See `../tests/unit/a_test.cc`, tests/unit/*_test.cc, docs/NAME.md, docs/{name}.md; tests/unit/.\n"
                 "A page of others: docs/source/en/b.md; build/docs/c.md is none of ours.\n",
    "docs/c.md": "# One heading: of `two` words\n[itself](#one-heading-of-two-words), [a](a.md), [far](https://a.b/c#d)\n",
    "scripts/a": "# docs/a.md\n",
}
PLANTED = [  # file, text appended (or the whole of a new file), what must be said
    ("lib/memcalc/spec/read.cc", '#include "memcalc/symbolic/trace.h"\n', "spec (rank 1) includes"),
    ("lib/memcalc/symbolic/trace.h", '#include "memcalc/memcalc.h"\n', "symbolic (rank 2) includes"),
    ("lib/memcalc/alloc/replay.h", '#include "memcalc/cost/gemm.h"\n', "alloc (rank 5) includes"),
    ("lib/memcalc/cost/gemm.h", '#include "memcalc/alloc/replay.h"\n', "cost (rank 5) includes"),
    ("lib/memcalc/spec/read.cc", 'constexpr Operator kMm{"aten::mm"};\n', "aten::mm has its row in"),
    ("lib/memcalc/alloc/replay.h", '#include "memcalc/symbolic/tape.h"\n', 'alloc/ may not see "memcalc/symbolic/tape.h"'),
    ("lib/memcalc/memcalc.cc", '#include "replay.h"\n', "write the whole path"),
    ("lib/memcalc/memcalc.cc", '#include "memcalc/spec/nothing.h"\n', "does not exist"),
    ("lib/memcalc/extra/a.h", "#pragma once\n#include \"memcalc/base/bytes.h\"\n", "no rank for extra"),
    ("cli/main.cc", '#include "memcalc/base/bytes.h"\n', "cli/ sees only memcalc/memcalc.h and"),
    ("python/module.cc", '#include "memcalc/spec/model_spec.h"\n', "python/ sees only memcalc/memcalc.h"),
    ("cli/main.cc", "#include <nlohmann/json.hpp>\n", "<nlohmann/json.hpp> may not be included here"),
    ("lib/memcalc/memcalc.cc", "#include <nlohmann/json.hpp>\n", "<nlohmann/json.hpp> may not be included here"),
    ("lib/memcalc/memcalc.cc", "#include <CLI/CLI.hpp>\n", "<CLI/CLI.hpp> may not be included here"),
    ("lib/memcalc/memcalc.cc", "#include <Eigen/Dense>\n", "<Eigen/Dense> may not be included here"),
    ("lib/memcalc/cost/gemm.h", "#include <Eigen/Dense>\n", "a header of lib/ includes <Eigen/Dense>"),
    ("lib/memcalc/memcalc.cc", '#include "nlohmann/json.hpp"\n', "third-party headers are included with <>"),
    ("lib/memcalc/memcalc.cc", "void f() { std::cout << 1; }\n", "the library never prints"),
    ("lib/memcalc/memcalc.cc", "void f() { exit(1); }\n", "the library never ends the process"),
    ("lib/memcalc/memcalc.cc", 'auto x = std::getenv("A");\n', "never reads the environment"),
    ("lib/memcalc/memcalc.cc", "auto x = std::chrono::steady_clock::now();\n", "never reads the clock"),
    ("lib/memcalc/memcalc.cc", "float x = 1;\n", "no float"),
    ("lib/memcalc/memcalc.cc", "using namespace std;\n", "no using namespace"),
    ("lib/memcalc/memcalc.cc", "auto x = std::ranges::count(list, 1);\n", "no std::ranges"),
    ("lib/memcalc/memcalc.cc", "auto x = std::bit_cast<std::uint64_t>(1.0);\n", "no std::bit_cast"),
    ("lib/memcalc/memcalc.cc", "\n" * MAX_LINES, f"at most {MAX_LINES}"),
    ("lib/memcalc/models/a.h", "#include <vector>\n", "no #pragma once"),
    ("lib/memcalc/models/a.cc", "#include <vector>\n", "lib/memcalc/models/a.cc is not listed"),
    ("lib/memcalc/report/report.h", '#include "memcalc/symbolic/trace.h"\n', "lib/memcalc/symbolic/trace.h is not listed"),
    ("lib/CMakeLists.txt", "  memcalc/alloc/replay.h\n", "no facade reaches it"),
    ("lib/units.txt", "memcalc/memcalc.cc memcalc/memcalc.cc\n", "lib/units.txt:1: memcalc/memcalc.cc stands in it 3 times"),
    ("lib/units.txt", "memcalc/gone.cc\n", "lib/units.txt:1: memcalc/gone.cc does not exist"),
    ("tests/units.txt", "unit/gone_test.cc\n", "tests/units.txt:1: unit/gone_test.cc does not exist"),
    ("lib/memcalc/memcalc.cc", "namespace {\nint length_of(double a) {\n  return 1;\n}\n}  // namespace\n",
     "lib/units.txt:1: length_of stands in the unnamed namespaces of memcalc/memcalc.cc and memcalc/spec/read.cc"),
    ("python/memcalc/_new.py", "x = 1\n", "python/CMakeLists.txt:1: python/memcalc/_new.py is not listed"),
    ("lib/CMakeLists.txt", "  memcalc/alloc/gone.cc\n", "lib/memcalc/alloc/gone.cc is listed, but does not exist"),
    ("CMakeLists.txt", "file(GLOB sources *.cc)\n", "never globbed"),
    ("lib/memcalc/memcalc.cc", "// Covered by tests/unit/gone_test.cc.\n", "there is no tests/unit/gone_test.cc"),
    ("lib/memcalc/memcalc.cc", "// Covered by tests/unit/a_test.cc and\n// b_test.cc.\n", 'the whole path: "b_test.cc"'),
    ("lib/memcalc/memcalc.cc", "// Covered by hand.\n", "covered by no test"),
    ("lib/memcalc/memcalc.cc", "// Measured: truth/profiles.\n", "there is no truth/profiles"),
    ("tests/unit/a_test.cc", "// facts/memory.md, section 2\n", "there is no facts/memory.md"),
    ("docs/a.md", "`specs/gpus/*.json`\n", "there is no specs/gpus/*.json"),
    ("docs/b.md.in", "see docs/gone.md\n", "there is no docs/gone.md"),
    ("docs/c.md", "[b](b.md)\n", "the link leads nowhere: b.md"),
    ("docs/c.md", "[c](c.md#another)\n", "c.md has no heading #another"),
    ("docs/c.md", "```sh\n# comment\n```\n[c](#comment)\n", "this page has no heading #comment"),
    ("README.md", "scripts/gone --check\n", "there is no scripts/gone"),
    ("scripts/a", 'ROOT / "tests/gone.jsonl"\n', "there is no tests/gone.jsonl"),
    ("lib/memcalc/memcalc.cc", '// MIRRORS(torch, "a.py")\n', "expected // MIRRORS(framework"),
    ("lib/memcalc/memcalc.cc", 'int x;  // MIRRORS(torch, "a.py", "2.11.0")\n', "expected // MIRRORS(framework"),
    ("specs/a.json", '{"source": "docs/gone/b.md"}\n', "there is no docs/gone/b.md"),
    ("lib/memcalc/cost/gemm.h", "bool x = p.version(Software::kTrl) < Version{1, 6, 0};\n", "never on a version"),
    ("lib/memcalc/models/a.h", "#pragma once\nTensor f(Tape& tape) { return tape.empty({1}, DType::kBool, aten::kEq); }\n", "a forward pass calls operators"),
    ("lib/memcalc/models/a.h", "#pragma once\nvoid f(const Tensor& x) { x.tape().kernels.synchronize(aten::kItem); }\n", "a forward pass calls operators"),
    ("lib/memcalc/models/a.h", "#pragma once\nNode* f(Tape& tape) { return tape.autograd.record(kName, f, inputs, 1); }\n", "a forward pass calls operators"),
    ("lib/memcalc/alloc/replay.h", "bool x = old != run.profile.version(of);\n", "never on a version"),
    ("scripts/memcalc", "require_packages g++ " + " ".join(LIBRARIES[:-1]) + "\n", "zlib1g-dev is not installed"),
]


def self_test():
    def tree(extra_path=None, extra=""):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            for path, text in {**CLEAN, **({extra_path: CLEAN.get(extra_path, "") + extra} if extra_path else {})}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return check_tree(root)

    failures = [f"the clean tree is refused: {line}" for line in tree()]
    for path, text, expected in PLANTED:
        found = tree(path, text)
        if len(found) != 1 or expected not in found[0]:
            failures.append(f"{path} + {text[:60]!r}: expected one violation with {expected!r}, found {found}")
    print("\n".join(failures) or f"{len(PLANTED)} planted violations found, the clean tree accepted")
    return bool(failures)


def main(arguments):
    if arguments == ["--self-test"]: return self_test()
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2]
    violations = check_tree(root)
    for path, lines in long_files(root): print(f"{path}:{lines}: warning: {lines} lines; {MAX_LINES} is the limit")
    print("\n".join(violations) or "the structure holds")
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
