"""pytest: a training run of this repository that no longer fits its card fails the tests. Installed with the package;
each line of the option is a run, as it stands behind `memcalc` on the command line (`memcalc.runs`):

    [tool.pytest.ini_options]
    memcalc_runs = ["--config train/axolotl.yml --gpu rtx-4090", "--model gpt2-xl --bs 4 --bf16 --gpu a100-sxm4-40gb"]

Files are looked for from pytest's root directory. `-k memcalc` chooses these tests.
"""
from __future__ import annotations

import os
from typing import Any

import pytest


class _DoesNotFit(Exception):
    pass


class MemcalcRun(pytest.Item):
    """One line as a test."""

    def runtest(self) -> None:
        from .runs import check

        here = os.getcwd()
        os.chdir(self.config.rootpath)
        try:
            outcome = check(self.name.removeprefix("memcalc "))
        finally:
            os.chdir(here)
        if not outcome.fits: raise _DoesNotFit(_said(outcome))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, _DoesNotFit): return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.config.inipath or self.config.rootpath, None, self.name


def _said(outcome: Any) -> str:
    from ._report import _size

    if outcome.verdict == "wrong": return str(outcome.message)
    said = {"too-close": "is too close to call on", "does-not-fit": "does not fit on"}[outcome.verdict]
    needs = "" if outcome.needed_bytes is None else f": it needs {_size(outcome.needed_bytes)}"
    card = "" if outcome.card_bytes is None else f" of {_size(outcome.card_bytes)}"
    return f"{outcome.line}\n{said} {outcome.card}{needs}{card}" + (f"\n{outcome.message}" if outcome.message else "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("memcalc_runs", "training runs that have to fit, as they stand behind `memcalc`", type="linelist",
                  default=[])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    for line in config.getini("memcalc_runs"):
        items.append(MemcalcRun.from_parent(session, name=f"memcalc {line}"))
