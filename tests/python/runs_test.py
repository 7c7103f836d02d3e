"""Runs that have to fit: as a table, and as tests of pytest."""
import os
import subprocess
import sys

import pytest
from memcalc import runs

FITS = "--model gpt2 --layers 2 --bs 1 --seq 64 --gpu rtx-4090"
TOO_LARGE = "--model gpt2-xl --bs 64 --gpu rtx-4090"


def test_lines_of_skips_comments():
    assert runs.lines_of("# cards\n\n --model gpt2 --gpu t4 \n") == ["--model gpt2 --gpu t4"]


def test_check_says_what_fits():
    outcome = runs.check("memcalc " + FITS)
    assert outcome.fits and outcome.card == "rtx-4090" and 0 < outcome.needed_bytes < outcome.card_bytes


def test_check_says_what_would_fit():
    outcome = runs.check(TOO_LARGE)
    assert not outcome.fits and outcome.verdict == "does-not-fit" and outcome.message.startswith("this does: ")


def test_check_promises_nothing_where_nothing_fits():
    outcome = runs.check("--model llama-3.1-405b --gpu rtx-4090")
    assert outcome.verdict == "does-not-fit" and outcome.message == ""


@pytest.mark.parametrize("line, part", [("--model gpt3 --gpu rtx-4090", "gpt3"), ("--model gpt2", "--gpu"),
                                        ("--model 'gpt2 --gpu t4", "quotation")])
def test_wrong_lines_are_outcomes(line, part):
    outcome = runs.check(line)
    assert outcome.verdict == "wrong" and part in outcome.message


@pytest.mark.parametrize("lines, status", [([FITS], 0), ([FITS, TOO_LARGE], 1), ([FITS, "--model gpt3 --gpu t4"], 2), ([], 2)])
def test_main_tells_by_its_status(tmp_path, monkeypatch, capsys, lines, status):
    file, summary = tmp_path / "runs.txt", tmp_path / "summary.md"
    file.write_text("\n".join(lines))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert runs.main([str(file)]) == status
    printed = capsys.readouterr().out
    assert printed.count("\n") == (2 + len(lines) if lines else 0)
    assert not lines or summary.read_text() == printed


def test_main_refuses_what_is_no_file(capsys):
    assert runs.main(["nowhere.txt"]) == 2 and "nowhere.txt" in capsys.readouterr().err
    assert runs.main([]) == 2


def test_pytest_plugin_makes_a_test_of_each_line(tmp_path):
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmemcalc_runs =\n  {FITS}\n  {TOO_LARGE}\n")
    process = subprocess.run([sys.executable, "-m", "pytest", "-p", "memcalc.pytest_plugin", "-p", "no:cacheprovider"],
                             cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert process.returncode == 1 and "1 failed, 1 passed" in process.stdout, process.stdout
    assert "does not fit on rtx-4090: it needs" in process.stdout
