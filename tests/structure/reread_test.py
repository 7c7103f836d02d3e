"""scripts/reread: which marks have to be read again between two installed versions."""
import importlib.machinery
import importlib.util
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("reread", str(ROOT / "scripts/reread"))
reread = importlib.util.module_from_spec(importlib.util.spec_from_loader("reread", loader))
loader.exec_module(reread)

SOURCES = {  # file: (in the old release, in the new one); None: not there
    "same.py": ("x = 1\n", "x = 1\n"),
    "words.py": ('"""Old words."""\ndef f():\n    """a"""\n    return 1  # one\n', '"""New."""\ndef f():\n    return 1\n'),
    "other.py": ("x = 1\ny = 2\n", "x = 1\ny = 3\n"),
    "gone.py": ("x = 1\n", None),
    "new.py": (None, "x = 1\n"),
}


class Reread(unittest.TestCase):
    def rows(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            for name, texts in SOURCES.items():
                for release, text in zip(("old", "new"), texts):
                    (folder / release / "frame").mkdir(parents=True, exist_ok=True)
                    if text is not None: (folder / release / "frame" / name).write_text(text)
            lib = folder / "repo/lib"
            lib.mkdir(parents=True)
            marks = [f'// MIRRORS(frame, "{name}", "1.0.0")' for name in (*SOURCES, "never.py")] + ['// MIRRORS(absent, "a.py", "1.0.0")']
            (lib / "a.cc").write_text("// A rule.\n" + "\n".join(marks) + "\n")
            return {source: (ours, what) for ours, source, what in reread.reread(folder / "old", folder / "new", lib)}

    def test_only_what_runs_otherwise_is_named(self):
        rows = self.rows()
        self.assertEqual({source: what for source, (_, what) in rows.items()},
                         {"frame/other.py": "2 lines", "frame/gone.py": "gone", "frame/new.py": "new", "frame/never.py": "in neither"})

    def test_our_line_is_named(self):
        self.assertEqual(self.rows()["frame/other.py"][0].split("/"), ["lib", "a.cc:4"])

    def test_the_marks_of_this_repository_are_found(self):
        found = reread.marks()
        self.assertGreater(len(found), 300)
        self.assertIn("models/gpt2/modeling_gpt2.py", {file for _, _, _, file in found})


if __name__ == "__main__": unittest.main()
