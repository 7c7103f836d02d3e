"""Ten layouts of one model that ran on two cards, of four models: memcalc orders them as they ran (tests/measured/rows_layouts_*)."""
import json
import sys
import unittest
from importlib.machinery import SourceFileLoader
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import memcalc_cli
from memcalc_cli import ROOT, run

sys.path.insert(0, str(ROOT / "scripts"))
import memcalc_rows  # noqa: E402

time_tables = SourceFileLoader("time_tables", str(ROOT / "scripts/time_tables")).load_module()

FILES = [f"rows_layouts_{name}.jsonl" for name in ("h100", "h200", "llama3_h200", "qwen25_h200")]
APART = 0.1  # medians of a run's halves differed by up to so much: closer ones have no order
WRONG = 0    # pairs further apart than that which are predicted in the other order: lower it, never raise it


def checked(name):
    """What memcalc check says of the file's first ranks, with their measured steps."""
    measured = {row["id"]: row for row in memcalc_rows.read(name) if row["rank"] == 0}
    with TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in measured.values()))
        # Its exit status is 1 where a row is farther off than its bounds.
        said = run("check", rows, "--models", ROOT / "tests/measured/models.json", "--specs", ROOT / "specs", "--format", "json")
    return [{**row, "steps": measured[row["case"]]["step_ms"]} for row in json.loads(said.stdout)["rows"]]


class LayoutOrder(unittest.TestCase):
    def test_layouts_are_ordered_as_they_ran(self):
        for name in FILES:
            with self.subTest(name):
                rows = checked(name)
                self.assertEqual(len(rows), 10)
                # How fast that machine's host was is not known: two runs that it binds have no order.
                pairs = [(a, b) for a, b in combinations(rows, 2) if not (a["host_bound"] and b["host_bound"])
                         and abs(a["step_seconds"] / b["step_seconds"] - 1) > APART and time_tables.decided(a, b)]
                other = [f"{a['case']} and {b['case']}" for a, b in pairs if time_tables.swapped(a, b)]
                self.assertGreater(len(pairs), 15)
                self.assertLessEqual(len(other), WRONG, other)


if __name__ == "__main__": memcalc_cli.main()
