"""`python -m memcalc …` and the command `memcalc` of a wheel: the command line (docs/cli.md)."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from ._specs import PACKAGED


def main() -> NoReturn:
    """Becomes the executable that the package carries; the specs are the package's unless others are named."""
    executable = Path(__file__).parent / "bin" / "memcalc"
    os.environ.setdefault("MEMCALC_SPEC_PATH", PACKAGED)
    os.execv(executable, [str(executable), *sys.argv[1:]])


if __name__ == "__main__":
    main()
