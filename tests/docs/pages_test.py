"""scripts/memcalc_pages.py: how a page is made of its template."""
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import memcalc_pages as pages


class Pages(unittest.TestCase):
    def filled(self, template, values):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.md.in").write_text(template)
            with mock.patch.object(pages, "DOCS", Path(folder)): return pages.fill("a.md", values)

    def test_a_figure_stands_where_its_name_was(self):
        self.assertEqual(self.filled("{{count}} of {{all}} rows,\nof {{count}}\n", {"count": 3, "all": 7}), "3 of 7 rows, of 3\n")

    def test_a_name_without_a_figure_and_a_figure_without_a_name_are_refused(self):
        with self.assertRaisesRegex(SystemExit, "'gone'"): self.filled("{{gone}}\n", {})
        with self.assertRaisesRegex(SystemExit, "'unused'"): self.filled("text\n", {"unused": 1})

    def test_a_figure_is_not_read_as_a_template(self):
        self.assertEqual(self.filled("{{a}}\n", {"a": "{{b}}"}), "{{b}}\n")

    def test_paragraphs_and_items_are_broken_anew(self):
        self.assertEqual(pages.wrapped("one two\nthree\n\n- four five\n  six\n- seven\n", 9),
                         "one two\nthree\n\n- four\n  five\n  six\n- seven\n")

    def test_a_word_longer_than_a_line_stands_alone(self):
        self.assertEqual(pages.wrapped("a bbbbbbbbbbbb c\n", 5), "a\nbbbbbbbbbbbb\nc\n")

    def test_tables_headings_comments_and_code_stay_as_they_are(self):
        text = "# A long heading\n| a | b c d e f |\n<!-- a long comment -->\n```sh\na long command\n  indented\n```\n"
        self.assertEqual(pages.wrapped(text, 8), text)

    def test_a_heading_with_an_arrow_aligns_its_column_to_the_right(self):
        self.assertEqual(pages.table(("run", ">GiB", ""), [("a", 1.5, "")]), "| run | GiB |  |\n| --- | ---: | --- |\n| a | 1.5 |  |")

    def test_check_writes_nothing_and_names_a_stale_page(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(pages, "ROOT", Path(folder)):
            page = Path(folder) / "a.md"
            page.write_text("old\n")
            with mock.patch("sys.stderr") as stderr: self.assertEqual(pages.finish({page: "new\n"}, check=True), 1)
            self.assertIn("a.md is not current", "".join(call.args[0] for call in stderr.write.call_args_list))
            self.assertEqual(page.read_text(), "old\n")
            with mock.patch("sys.stdout"): self.assertEqual(pages.finish({page: "new\n"}, check=False), 0)
            self.assertEqual(page.read_text(), "new\n")
            self.assertEqual(pages.finish({page: "new\n"}, check=True), 0)

    def test_a_broken_bound_fails_though_the_page_is_current(self):
        with mock.patch("sys.stderr"): self.assertEqual(pages.finish({}, check=False, problems=["median 9 %"]), 1)

    def test_text_between_two_lines_is_replaced(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(pages, "ROOT", Path(folder)):
            page = Path(folder) / "a.md"
            page.write_text("before\n<begin>\nold\n<end>\nafter\n")
            self.assertEqual(pages.with_section(page, "<begin>\n", "<end>\n", "new\n"), "before\n<begin>\nnew\n<end>\nafter\n")
            with self.assertRaisesRegex(SystemExit, "a.md: no <gone>"): pages.with_section(page, "<gone>", "<end>", "")

    def test_a_refusal_stands_in_the_place_of_its_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "memcalc"
            program.write_text("#!/bin/sh\nif [ $1 = no ]; then echo chatter >&2; echo memcalc: no >&2; exit 2; fi\n"
                               "echo \"[\\\"$1\\\"]\"\n[ $1 != big ]\n")
            program.chmod(0o755)
            memcalc = pages.Memcalc(program)
            first, refused, big = memcalc.all([["a"], ["no"], ["big"]])
            self.assertEqual((first, str(refused), big), (["a"], "memcalc: no", ["big"]))
            self.assertIsInstance(memcalc.all([["big"]], pages.FITS)[0], pages.Refused)
            with self.assertRaisesRegex(SystemExit, "row 7: memcalc: no"): pages.answered("row 7", refused)


if __name__ == "__main__":
    unittest.main()
