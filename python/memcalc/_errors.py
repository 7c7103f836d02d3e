"""Errors of the Python side, as the library's own: they say which argument is meant."""
from __future__ import annotations

from . import _core


def error(kind: type[_core.Error], part: str, message: str) -> _core.Error:
    """To be raised: "PART: MESSAGE", with `Error.part`."""
    made = kind(f"{part}: {message}")
    made.part = part
    return made
