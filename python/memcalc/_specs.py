"""Where models/ and gpus/ are: MEMCALC_SPEC_PATH, or what the package carries."""
from __future__ import annotations

import functools
import os
from pathlib import Path

from . import _core
from ._errors import error


PACKAGED = str(Path(__file__).parent / "specs")


def spec_directory() -> str:
    named = os.environ.get("MEMCALC_SPEC_PATH")
    if not named: return PACKAGED
    if not os.path.isdir(named):
        raise error(_core.UsageError, "MEMCALC_SPEC_PATH", f"expected a directory with models/ and gpus/, found '{named}'")
    return named


@functools.lru_cache(maxsize=8)
def _registry(directory: str) -> _core.SpecRegistry:
    return _core.SpecRegistry([directory])


def registry() -> _core.SpecRegistry:
    return _registry(spec_directory())


def name_or_path(value: object, part: str) -> str:
    if isinstance(value, (str, os.PathLike)): return os.fspath(value)
    raise error(_core.UsageError, part, f"expected a name or a path, found {type(value).__name__}")


def _is_file(reference: str) -> bool:
    return reference.endswith(".json") or os.sep in reference or os.path.exists(reference)


@functools.lru_cache(maxsize=1024)
def _named_model(directory: str, reference: str, sizes: tuple[tuple[str, object], ...]) -> _core.ModelSpec:
    return _registry(directory).model(reference, dict(sizes))


@functools.lru_cache(maxsize=256)
def _named_device(directory: str, reference: str) -> _core.DeviceSpec:
    return _registry(directory).device(reference)


def model_spec(reference: str, sizes: dict[str, object]) -> _core.ModelSpec:
    """Files are read anew at each call, since they may change; entries of the registry once."""
    if _is_file(reference): return registry().model(reference, sizes)
    return _named_model(spec_directory(), reference, tuple(sorted(sizes.items())))


def device_spec(reference: str) -> _core.DeviceSpec:
    if _is_file(reference): return registry().device(reference)
    return _named_device(spec_directory(), reference)
