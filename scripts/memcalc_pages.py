"""What the scripts that write pages of docs/ share.

A page is a template, docs/NAME.md.in, which holds the prose, and figures, which a script fills in for each {{name}}.
A script asks memcalc for the figures (Memcalc), lays out tables (table), fills the template (fill) and writes the page,
or with --check says whether it is current (finish).
"""
import argparse
import csv
import io
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS, MODELS = ROOT / "docs", ROOT / "specs/models"
MEASURED, PUBLISHED = ROOT / "tests/measured", ROOT / "tests/measured/published"
MIB, GIB = 2**20, 2**30
WIDTH = 118  # of prose
TIMEOUT_S = 300  # of one question
FITS, ANSWERED = (0,), (0, 1)  # exit statuses; 1: answered, and the run does not fit the card


def start(doc):
    """Reads the options that every one of these scripts has: (whether to check only, Memcalc)."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--memcalc")
    arguments = parser.parse_args()
    if arguments.memcalc is None:
        subprocess.run([ROOT / "scripts/memcalc", "--version"], check=True, stdout=subprocess.DEVNULL)
    return arguments.check, Memcalc(arguments.memcalc or ROOT / "build/release/bin/memcalc")


def finish(pages, check, problems=()):
    """Writes the pages ({path: text}), or with `check` names those that are not current. Returns the exit status."""
    problems = list(problems)
    for path, text in pages.items():
        if path.is_file() and path.read_text() == text: continue
        name, script = path.relative_to(ROOT), Path(sys.argv[0]).name
        if check:
            problems.append(f"{name} is not current: run scripts/{script}")
        else:
            path.write_text(text)
            print(f"{name}: written")
    for problem in problems: print(problem, file=sys.stderr)
    return 1 if problems else 0


class Refused(SystemExit):
    """memcalc gave no answer; its own words. Ends the script where nobody expects it."""


def specs_with(memcalc, changed):
    """A directory like specs/ in which some files of measured/ are others: {path in specs: text}."""
    folder = Path(memcalc.folder.name) / "specs"
    folders = {Path("."), *(parent for path in changed for parent in path.parents)}
    for each in sorted(folders):
        (folder / each).mkdir(parents=True, exist_ok=True)
        for path in (ROOT / "specs" / each).iterdir():
            name = path.relative_to(ROOT / "specs")
            if name not in folders and name not in changed: (folder / name).symlink_to(path)
    for path, text in changed.items(): (folder / path).write_text(text)
    return folder


class Memcalc:
    def __init__(self, executable):
        self.executable = str(Path(executable).resolve())
        self.folder = tempfile.TemporaryDirectory()
        self.files = itertools.count()  # next() is whole, also of several threads

    def file(self, content, name="config.json"):
        """The path of a file of that name with `content` as JSON."""
        path = Path(self.folder.name) / str(next(self.files)) / name
        path.parent.mkdir()
        path.write_text(json.dumps(content))
        return path

    def text(self, *words, statuses=ANSWERED):
        """What memcalc prints. Raises Refused where it exits with another status."""
        process = subprocess.run([self.executable, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S)
        if process.returncode in statuses: return process.stdout
        raise Refused((process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1])

    def json(self, *words, statuses=ANSWERED):
        return json.loads(self.text(*words, "--format", "json", statuses=statuses))

    def rows(self, *words):
        """The rows of a table, as dictionaries."""
        return list(csv.DictReader(io.StringIO(self.text(*words, "--format", "csv"))))

    def all(self, questions, statuses=ANSWERED):
        """The answers to lists of words, in their order; asked in parallel. A refusal stands in the place of its answer.
        Of a run that does not fit, without what would help: that takes many times as long."""
        def ask(words):
            estimates = str(words[0]).startswith("-")  # the others begin with the name of a command
            try: return self.json(*words, *(["--no-remedies"] if estimates else []), statuses=statuses)
            except Refused as refusal: return refusal

        return in_parallel(ask, questions)


def in_parallel(function, items):
    """[function(item)], in the items' order. The work is memcalc's, in processes of its own."""
    with ThreadPoolExecutor(os.cpu_count()) as pool: return list(pool.map(function, items))


def answered(name, answer):
    """The answer; ends the script where memcalc refused what this script has to ask."""
    if isinstance(answer, Refused): raise SystemExit(f"{name}: {answer}")
    return answer


def p90_place(errors):
    """Of sorted errors: the smallest one within which nine in ten are."""
    return math.ceil(0.9 * len(errors)) - 1


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def table(headings, rows):
    """The text of a table. A heading that begins with ">" stands over a column that is aligned to the right."""
    def line(cells): return "| " + " | ".join(map(str, cells)) + " |"

    return "\n".join([line(heading.removeprefix(">") for heading in headings),
                      line("---:" if heading.startswith(">") else "---" for heading in headings), *map(line, rows)])


def fill(name, values):
    """The template docs/NAME.in with {{key}} replaced by values[key], its paragraphs broken anew. Every key of one must be
    one of the other."""
    template = (DOCS / f"{name}.in").read_text()
    used = set(re.findall(r"\{\{(\w+)\}\}", template))
    if used != set(values): raise SystemExit(f"docs/{name}.in: {sorted(used ^ set(values))} in the template or of the script only")
    return wrapped(re.sub(r"\{\{(\w+)\}\}", lambda match: str(values[match.group(1)]), template))


def wrapped(text, width=WIDTH):
    """Paragraphs and list items broken at `width`; headings, tables, comments and code as they are."""
    result, block, indent, code = [], [], "", False

    def close():
        line, begin = " ".join(block), ""
        while len(begin + line) > width:
            room = width - len(begin)
            cut = line.rfind(" ", 0, room)
            if cut < 0: cut = line.find(" ", room)  # after a word that is longer than a line
            if cut < 0: break
            result.append(begin + line[:cut])
            begin, line = indent, line[cut + 1:]
        if block: result.append(begin + line)
        block.clear()

    for line in text.splitlines():
        if code or not line or line.startswith(("|", "#", "<", "```")):
            close()
            result.append(line)
            if line.startswith("```"): code = not code
            continue
        if line.startswith("- "): close()
        if not block: indent = "  " if line.startswith("- ") else ""
        block.append(line.strip())
    close()
    return "\n".join(result) + "\n"


def with_section(path, begin, end, content):
    """The text of a page with `content` between two of its lines."""
    before, begun, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not begun or not closed: raise SystemExit(f"{path.relative_to(ROOT)}: no {begin.strip()} ... {end.strip()}")
    return before + begin + content + end + after
