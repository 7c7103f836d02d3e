#!/usr/bin/env python3
"""Copies what the site shows into one folder and turns the links of the repository into links of the site:
stage_site.py ROOT FOLDER [REPOSITORY_URL]. README.md becomes index.md, docs/README.md questions.md. Links to other files
of the repository lead to REPOSITORY_URL, or become plain text where there is none."""
import posixpath
import re
import shutil
import sys
from pathlib import Path

MOVED = {"README.md": "index.md", "docs/README.md": "questions.md", "CHANGELOG.md": "changelog.md"}
KEPT = (".md", ".ipynb", ".svg", ".png")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def place_of(path):
    """Where a file of the repository stands in the site; None: it does not."""
    if path in MOVED: return MOVED[path]
    if path.startswith("docs/") and path.endswith(KEPT): return path.removeprefix("docs/")
    return None


def staged(text, path, url):
    """The text of `path` with its links turned."""
    place = place_of(path)

    def turn(match):
        picture, words, target = match.groups()
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not name: return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        to = place_of(found)
        if to is None: return f"[{words}]({url}/blob/main/{found})" if url else words
        to = posixpath.relpath(to, posixpath.dirname(place) or ".")
        return f"{picture}[{words}]({to}{'#' + anchor if anchor else ''})"

    parts, end = [], 0
    for fence in FENCE.finditer(text):  # code stays as it is
        parts += [LINK.sub(turn, text[end:fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(turn, text[end:])])


def main(root, folder, url=""):
    root, folder = Path(root), Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    paths = ["README.md", "CHANGELOG.md"]
    paths += [path.relative_to(root).as_posix() for path in sorted((root / "docs").rglob("*")) if path.suffix in KEPT]
    for path in paths:
        to = folder / place_of(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            to.write_text(staged((root / path).read_text(encoding="utf-8"), path, url.rstrip("/")), encoding="utf-8")
        else:
            shutil.copy(root / path, to)


if __name__ == "__main__":
    main(*sys.argv[1:])
