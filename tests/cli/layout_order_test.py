"""Ten layouts of one model that ran on two cards: memcalc orders them as they ran (tests/measured/rows_layouts_h100.jsonl)."""
import json
import unittest
from itertools import combinations

import memcalc_cli
from memcalc_cli import ROOT, run

ROWS = ROOT / "tests/measured/rows_layouts_h100.jsonl"
APART = 0.1  # medians of a run's halves differed by up to so much: closer ones have no order
WRONG = 0    # pairs further apart than that which are predicted in the other order: lower it, never raise it


class LayoutOrder(unittest.TestCase):
    def test_layouts_are_ordered_as_they_ran(self):
        # Its exit status is 1 where a row is farther off than its bounds.
        said = run("check", ROWS, "--models", ROOT / "tests/measured/models.json", "--specs", ROOT / "specs", "--format", "json")
        rows = [row for row in json.loads(said.stdout)["rows"] if row.get("step_seconds") and row.get("predicted_step_seconds")]
        self.assertEqual(len(rows), 10)
        other = [f"{a['case']} and {b['case']}" for a, b in combinations(rows, 2)
                 if abs(a["step_seconds"] / b["step_seconds"] - 1) > APART
                 and (a["step_seconds"] - b["step_seconds"]) * (a["predicted_step_seconds"] - b["predicted_step_seconds"]) < 0]
        self.assertLessEqual(len(other), WRONG, other)


if __name__ == "__main__": memcalc_cli.main()
