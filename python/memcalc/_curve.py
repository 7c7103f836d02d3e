"""The memory curve of one step in a notebook: drawn by the page's own script (web/js), which is carried in page/."""
from __future__ import annotations

import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

_STYLE = """
#ID { --ink: #16202a; --soft: #586674; --line: #d6dce2; --bad: #b3261e; --sheet: #fff; max-width: 760px; }
@media (prefers-color-scheme: dark) {
  #ID { --ink: #e6ebf0; --soft: #a0adba; --line: #33404d; --bad: #ff9a92; --sheet: #18202a; }
}
"""


@functools.lru_cache(maxsize=1)
def _page() -> tuple[str, str]:
    """The scripts as one module's text, and the page's rules for the curve."""
    folder = Path(__file__).parent / "page"
    scripts = [(folder / name).read_text(encoding="utf-8") for name in ("format.js", "curve.js")]
    text = re.sub(r"^(import .*\n|export )", "", "\n".join(scripts), flags=re.MULTILINE)
    rules = (folder / "style.css").read_text(encoding="utf-8").splitlines()
    return text, "\n".join(f"#ID {rule}" for rule in rules if re.match(r"\.(curve|reading|swatch|share)\b", rule))


def curve_html(curve: str, limit: int | None, card: str, title: str) -> str:
    """An element that draws itself: it needs neither network nor extension. `curve`: JSON of report/step_curve.h."""
    # Of two equal reports on a page each script draws both.
    name = "memcalc-" + hashlib.sha256((curve + card + title).encode()).hexdigest()[:12]
    script, rules = _page()
    options: dict[str, Any] = {"limit": limit, "limit_label": card, "title": title}

    def safe(text: str) -> str:  # nothing in a script element may end it
        return text.replace("</", "<\\/")

    return (f'<div class="{name}"></div><style>{(_STYLE + rules).replace("#ID", "." + name)}</style>'
            f'<script type="module">{script}\nfor (const element of document.querySelectorAll(".{name}")) '
            f"draw_curve(element, {safe(curve)}, {safe(json.dumps(options))});</script>")
