#!/usr/bin/env python3
"""Puts the page together: pack.py ROOT WASM_BUILD OUTPUT [zopfli]. Large files are compressed here, so that any server of
static files will do; they end in .bin, so that none unpacks them by itself. zopfli takes half a minute and writes a gzip file
that is a twentieth smaller than Python's."""
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# What the library reads of specs/; programs are fetched where their model is asked for.
FOLDERS = ("models", "gpus", "profiles")
FILES = ("hosts.json", "networks.json", "not_modelled.json", "option_names.json", "prediction_errors.json", "prices.json")
MEASURED = "measured/**/*.json"
STATIC = ("index.html", "style.css", "icon.svg", "js/*.js")


def packed(data, compressor):
    if not compressor: return gzip.compress(data, 9, mtime=0)
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return subprocess.run([compressor, "-c", "--i5", file.name], stdout=subprocess.PIPE, check=True).stdout


def compact(path):
    """The same JSON without its layout."""
    return json.dumps(json.loads(path.read_text(encoding="utf-8")), ensure_ascii=False, separators=(",", ":"))


def main(root, wasm, output, compressor=None):
    shutil.rmtree(output, ignore_errors=True)
    for pattern in STATIC:
        for path in (root / "web").glob(pattern):
            place = output / path.relative_to(root / "web")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    module = next(wasm.glob("**/memcalc.mjs"))
    shutil.copy(module, output / "js/memcalc.mjs")
    (output / "memcalc.wasm.bin").write_bytes(packed(module.with_suffix(".wasm").read_bytes(), compressor))

    specs = root / "specs"
    paths = [path for folder in FOLDERS for path in sorted((specs / folder).glob("*.json"))]
    paths += [specs / name for name in FILES] + sorted(specs.glob(MEASURED))
    texts = {path.relative_to(specs).as_posix(): compact(path) for path in paths}
    texts["names.tsv"] = (specs / "names.tsv").read_text(encoding="utf-8")
    (output / "specs.bin").write_bytes(packed(json.dumps(texts, ensure_ascii=False).encode(), compressor))
    (output / "programs").mkdir()
    for path in sorted((specs / "programs").glob("*.json.gz")):
        shutil.copy(path, output / "programs" / (path.name.removesuffix(".gz") + ".bin"))

    first = sum(path.stat().st_size for path in output.rglob("*") if path.is_file() and path.parent.name != "programs")
    print(f"{output}: {first / 1e6:.2f} MB to open it", file=sys.stderr)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]), *sys.argv[4:])
