"""`python -m memcalc …` and the command `memcalc` of a wheel: the command line (docs/cli.md)."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._executable import EXECUTABLE
from ._specs import PACKAGED


def main() -> NoReturn:
    """Becomes the executable that the package carries; the specs are the package's unless others are named."""
    os.environ.setdefault("MEMCALC_SPEC_PATH", PACKAGED)
    os.execv(EXECUTABLE, [str(EXECUTABLE), *sys.argv[1:]])


if __name__ == "__main__":
    main()
