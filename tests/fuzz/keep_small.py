#!/usr/bin/env python3
"""keep_small.py MERGED CORPUS: adds the smallest files of MERGED to CORPUS until it holds 8 KiB; named files stay.

libFuzzer names what it keeps by a hash (40 hexadecimal digits): those files of CORPUS are replaced.
"""
import re
import shutil
import sys
from pathlib import Path

MOST = 8 * 1024

merged, corpus = (Path(word) for word in sys.argv[1:])
for path in corpus.iterdir():
    if re.fullmatch("[0-9a-f]{40}", path.name): path.unlink()
size = sum(path.stat().st_size for path in corpus.iterdir())
named = {path.read_bytes() for path in corpus.iterdir()}
for path in sorted(merged.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
    size += path.stat().st_size
    if size > MOST: break
    if path.read_bytes() not in named: shutil.copy(path, corpus / path.name)
