"""The Python lines of README.md and docs/python.md run, each page from top to bottom in one namespace."""
import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ("README.md", "docs/python.md"))
def test_examples_run(page):
    for needed in ("numpy", "pandas", "matplotlib"): pytest.importorskip(needed)
    text = (ROOT / page).read_text()
    namespace, ran, said = {}, 0, io.StringIO()
    for match in BLOCK.finditer(text):
        if match[1]: continue
        line = text.count("\n", 0, match.start(2)) + 1
        with contextlib.redirect_stdout(said): exec(compile("\n" * (line - 1) + match[2], page, "exec"), namespace)
        ran += 1
    assert ran >= 1
    for figure in re.findall(r"print\(.*\) +# .*: ([\d_]{4,})$", text, re.MULTILINE): assert figure in said.getvalue()
    for words in re.findall(r"print\(error.*\) +# (.*)$", text, re.MULTILINE): assert words in said.getvalue()
