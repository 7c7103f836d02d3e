"""The keywords of Python are the options of the command line: every one, under one name, with the same words."""
import inspect
import re
import runpy
from pathlib import Path

import memcalc
from memcalc import _core

OF_THE_CALL = {"--model", "--gpu", "--arch", "--specs",  # arguments of estimate(), Model.of_family, MEMCALC_SPEC_PATH
               "--config", "--config-format", "--config-without"}  # read_config()
NEGATIONS = {"--no-tie", "--no-prepare-kbit", "--no-expandable", "--no-reentrant"}             # keyword=False


def options_of_the_command_line(cli):
    """Every option of `estimate --help` that describes a run, rather than the answer."""
    text = cli("estimate", "--help")
    answer = text.index("\nAnswer")
    return set(re.findall(r"^  (--[a-z0-9-]+)", text[:answer] + text[text.index("\n\n", answer):], re.MULTILINE))


def test_every_option_has_a_keyword_and_no_keyword_is_alone(cli):
    options = options_of_the_command_line(cli)
    known = {flag for _, flag, _, _ in _core.option_table()}
    assert options - OF_THE_CALL - NEGATIONS - known == set(), "add a line to python/src/options.cc"
    assert known - options == set()


def test_names_are_unique_and_typed():
    names = [name for name, *_ in _core.option_table()]
    assert len(names) == len(set(names))
    assert list(memcalc.RunOptions.__annotations__) == names, "run scripts/python_options"


def test_sizes_are_keywords():
    assert set(_core.size_keywords()) < {name for name, *_ in _core.option_table()}


def test_the_generated_file_is_current():
    script = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts/python_options"))
    assert script["PAGE"].read_text() == script["text_of"](_core.option_table()), "run scripts/python_options"


def test_everything_public_is_documented():
    for name in memcalc.__all__:
        thing = getattr(memcalc, name)
        if name == "__version__": continue
        assert inspect.getdoc(thing), name
        if not inspect.isclass(thing): continue
        for member, value in vars(thing).items():
            if not member.startswith("_") and callable(value): assert inspect.getdoc(value), f"{name}.{member}"
