"""Ten layouts of one model that ran on two cards, of nine models: memcalc orders them as they ran (tests/measured/rows_layouts_*)."""
import sys
import unittest
from importlib.machinery import SourceFileLoader
from itertools import combinations

import memcalc_cli
from memcalc_cli import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from memcalc_pages import Memcalc  # noqa: E402

time_tables = SourceFileLoader("time_tables", str(ROOT / "scripts/time_tables")).load_module()

APART = 0.1  # medians of a run's halves differed by up to so much: closer ones have no order
WRONG = 0    # pairs further apart than that which are predicted in the other order: lower it, never raise it


class LayoutOrder(unittest.TestCase):
    def test_layouts_are_ordered_as_they_ran(self):
        memcalc = Memcalc(memcalc_cli.EXECUTABLE)
        self.addCleanup(memcalc.folder.cleanup)
        for name in time_tables.ORDERED:
            with self.subTest(name):
                rows = time_tables.checked(memcalc, name)["rows"]
                self.assertEqual(len(rows), 10)
                # How fast that machine's host was is not known: two runs that it binds have no order.
                pairs = [(a, b) for a, b in combinations(rows, 2) if not (a["host_bound"] and b["host_bound"])
                         and abs(a["step_seconds"] / b["step_seconds"] - 1) > APART and time_tables.decided(a, b)]
                other = [f"{a['case']} and {b['case']}" for a, b in pairs if time_tables.swapped(a, b)]
                self.assertGreater(len(pairs), 15)
                self.assertLessEqual(len(other), WRONG, other)


if __name__ == "__main__": memcalc_cli.main()
