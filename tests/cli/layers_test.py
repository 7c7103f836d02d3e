"""Models of layers and sizes as options, as a user meets them."""
import copy
import json
import tempfile
import time
import unittest
from pathlib import Path

import memcalc_cli
from memcalc_cli import ROOT, report, run

try:
    import jsonschema  # Debian: python3-jsonschema
except ImportError:
    jsonschema = None

EXAMPLES = ROOT / "specs/examples"
MODELS = sorted(EXAMPLES.glob("*.json")) + sorted((ROOT / "tests/measured/layers").glob("*.json"))
SCHEMA = json.loads((ROOT / "specs/schema/layers.schema.json").read_text())
MLP = json.loads((EXAMPLES / "mlp.json").read_text())
CNN = json.loads((EXAMPLES / "cnn.json").read_text())
DECODER = json.loads((EXAMPLES / "decoder.json").read_text())


def changed(model, *path_and_value):
    """A copy with another value at a path; None removes the key."""
    *path, last, value = path_and_value
    result = copy.deepcopy(model)
    node = result
    for key in path: node = node[key]
    if value is None: del node[last]
    else: node[last] = value
    return result


class Files(unittest.TestCase):
    def ask(self, content, *arguments):
        """The process for a file of this content (text, or what becomes JSON); it must not take long."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.json"
            path.write_text(content if isinstance(content, str) else json.dumps(content))
            begin = time.monotonic()
            process = run("--model", path, "--gpu", "h100-sxm", *arguments)
            self.assertLess(time.monotonic() - begin, 10)
            return process

    def refusal(self, content, *arguments):
        process = self.ask(content, *arguments)
        self.assertEqual((process.returncode, process.stdout), (2, ""), process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        return process.stderr

    def test_examples_answer_in_every_precision(self):
        for path in MODELS:
            for precision in ("fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"):
                with self.subTest(f"{path.name} {precision}"):
                    answer = report("--model", path, "--bs", "2", "--precision", precision, "--gpu", "h100-sxm")
                    self.assertEqual(answer["model"]["name"], path.stem)
                    self.assertEqual((answer["run"]["task"], answer["run"]["loop"]), ("custom", "bare"))
                    self.assertEqual(sum(answer["memory"]["categories"].values()),
                                     answer["memory"]["peak_allocated_bytes"])

    def test_text_names_the_samples(self):
        text = run("--model", EXAMPLES / "mlp.json", "--bs", "64").stdout
        self.assertIn("batch 64 x 784 numbers", text)
        self.assertNotIn("attention", text)
        self.assertIn("batch 1 x 128 px", run("--model", EXAMPLES / "cnn.json", "--image", "128").stdout)
        self.assertIn("batch 1 x 256 tokens", run("--model", EXAMPLES / "decoder.json", "--seq", "256").stdout)

    def test_checkpointing_of_repeated_blocks_needs_less(self):
        peak = lambda *a: report("--model", EXAMPLES / "decoder.json", "--bs", "8", *a)["memory"]["phases"]["forward"]["peak_bytes"]
        self.assertLess(peak("--checkpointing", "full"), peak())

    def test_hostile_files_are_refused_at_once(self):
        nested = '{"type": "sequential", "layers": [' * 10000 + '{"type": "relu"}' + "]}" * 10000
        text = json.dumps(MLP)
        for content, words in (
                (changed(DECODER, "layers", 1, "times", 2**70), "/layers/1/times: found 1180591620717411303424"),
                (changed(DECODER, "layers", 1, "times", 10000), "more than 10000 layers"),
                (text.replace('"layers": [', '"layers": [' + nested + ", ", 1), "nested deeper than 64 levels"),
                (changed(MLP, "input", "shape", [0]), "/input/shape/0: found 0"),
                (changed(CNN, "layers", 0, "stride", -1), "/layers/0/stride: found -1"),
                (changed(MLP, "input", "shape", [2**40, 2**20]), "more than 2^40 elements"),
                (changed(MLP, "input", "shape", [2**63]), "/input/shape/0: found 9223372036854775808"),
                (changed(MLP, "layers", [{"type": "relu"}] * 100001), "more than 10000 layers"),
                (changed(MLP, "layers", 0, "out_features", 1e3), "written in digits only"),
                (text.replace('"out_features": 10', '"out_features": 10, "out_features": 11', 1), "more than once"),
                (text[:200], "truncated"),
                ("[]", "accepted: an object")):
            with self.subTest(words): self.assertIn(words, self.refusal(content))
        self.assertIn("more than 2^40 elements", self.refusal(MLP, "--bs", str(2**62)))

    def test_shape_errors_name_both_shapes(self):
        message = self.refusal(changed(MLP, "layers", 3, "in_features", 500))
        self.assertIn("/layers/3: linear takes [batch, 500], found [batch, 512]; accepted: in_features 512", message)
        message = self.refusal(changed(DECODER, "layers", 1, "layers", 0, "layers", 1, "heads", 7))
        self.assertIn("/layers/1/layers/0/layers/1: attention has heads 7", message)
        self.assertIn("/loss: cross_entropy takes [batch, 11]", self.refusal(changed(MLP, "loss", "classes", 11)))
        self.assertIn("/layers/7: max_pool has a kernel_size of 2", self.refusal(CNN, "--image", "2"))

    def test_the_trainer_is_refused_with_its_reason(self):
        self.assertIn("accepted: --loop bare", self.refusal(MLP, "--loop", "trainer"))

    @unittest.skipIf(jsonschema is None, "python3-jsonschema is not here")
    def test_the_schema_accepts_what_memcalc_accepts(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        validator = jsonschema.Draft202012Validator(SCHEMA)
        for path in MODELS:
            with self.subTest(path.name): self.assertEqual(list(validator.iter_errors(json.loads(path.read_text()))), [])
        # What concerns single values and keys, so that the schema can know it.
        for content in (changed(MLP, "layers", 0, "out_feature", 3), changed(MLP, "layers", 0, "out_features", None),
                        changed(MLP, "layers", 0, "type", "linera"), changed(MLP, "layers", []),
                        changed(MLP, "layers", 2, "p", 1), changed(MLP, "layers", 2, "p", "0.1"),
                        changed(MLP, "layers", 1, "bias", True), changed(MLP, "input", "shape", [784, 0]),
                        changed(MLP, "input", "shape", [1, 1, 1, 1]), changed(MLP, "input", "size", 3),
                        changed(MLP, "loss", None), changed(MLP, "loss", "type", "mse"), changed(MLP, "layer", []),
                        changed(CNN, "layers", 0, "stride", 0), changed(CNN, "layers", 0, "padding", -1),
                        changed(CNN, "layers", 0, "bias", 1), changed(DECODER, "layers", 1, "times", 0),
                        changed(DECODER, "layers", 1, "times", 10001), changed(DECODER, "layers", 1, "name", "a.b"),
                        changed(DECODER, "layers", 1, "layers", 0, "layers", 1, "causal", "yes"),
                        changed(DECODER, "layers", 1, "layers", 0, "layers", 1, "kv_heads", 2**41)):
            with self.subTest(json.dumps(content)[:80]):
                self.refusal(content)
                self.assertNotEqual(list(validator.iter_errors(content)), [])


class Sizes(unittest.TestCase):
    def test_a_family_alone(self):
        answer = report("--arch", "llama", "--layers", "24", "--hidden", "1024", "--heads", "16", "--kv-heads", "8",
                        "--ffn", "4096", "--vocab", "50304", "--gpu", "h100-sxm")
        layer = 2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 4096 + 2 * 1024
        self.assertEqual(answer["params"]["total"], 2 * 50304 * 1024 + 24 * layer + 1024)
        self.assertEqual(answer["model"]["name"],
                         "llama (layers=24, hidden=1024, heads=16, kv-heads=8, ffn=4096, vocab=50304)")
        self.assertTrue(any("(not given; transformers' default" in line for line in answer["assumptions"]))

    def test_a_named_model_with_other_sizes(self):
        answer = report("--model", "llama-3-8b", "--layers", "8", "--gpu", "h100-sxm")
        layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
        self.assertEqual(answer["params"]["total"], 2 * 128256 * 4096 + 8 * layer + 4096)
        self.assertEqual(answer["model"]["name"], "llama-3-8b (layers=8)")
        self.assertIn("num_hidden_layers = 8 instead of 32 (--layers)", answer["assumptions"])
        self.assertIn("llama-3-8b (layers=8): ", run("--model", "llama-3-8b", "--layers", "8").stdout)

    def test_a_config_with_other_sizes(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text('{"model_type": "gpt2", "n_layer": 48}')
            answer = report("--model", folder, "--layers", "2", "--no-tie", "--gpu", "h100-sxm")
            self.assertTrue(answer["model"]["name"].endswith(f"{Path(folder).name} (layers=2, tie=false)"))
            block = 12 * 768 * 768 + 13 * 768
            self.assertEqual(answer["params"]["total"], 2 * 50257 * 768 + 1024 * 768 + 2 * block + 2 * 768)

    def test_trace_takes_them_too(self):
        lines = lambda *a: run("trace", "--model", "gpt2", "--bs", "1", "--seq", "8", *a).stdout.count("\n")
        self.assertLess(lines("--layers", "2"), lines())


if __name__ == "__main__":
    memcalc_cli.main()
