"""Weights on disk: what `memcalc weights` counts, what a report says of them, and every wrong file in one line."""
import json
import os
import tempfile
import unittest
from pathlib import Path

import checkpoint
import memcalc_cli
from memcalc_cli import ROOT, report, run
from schema import schema_of, violations

SCHEMA = schema_of("report")
LLAMA = {"model_type": "llama", "vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 64, "tie_word_embeddings": True}


def llama(dtype="BF16"):
    tensors = {"model.embed_tokens.weight": (128, 32), "model.norm.weight": (32,)}
    for i in range(2):
        layer = f"model.layers.{i}."
        for name, shape in (("self_attn.q_proj", (32, 32)), ("self_attn.k_proj", (16, 32)),
                            ("self_attn.v_proj", (16, 32)), ("self_attn.o_proj", (32, 32)), ("mlp.gate_proj", (64, 32)),
                            ("mlp.up_proj", (64, 32)), ("mlp.down_proj", (32, 64)), ("input_layernorm", (32,)),
                            ("post_attention_layernorm", (32,))):
            tensors[f"{layer}{name}.weight"] = shape
    return {name: (dtype, shape) for name, shape in tensors.items()}


class Weights(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def config(self, **config):
        (self.folder / "config.json").write_text(json.dumps(config))

    def weights(self, tensors, name="model.safetensors"):
        return checkpoint.write(self.folder / name, tensors)


class Reports(Weights):
    def compared(self, *arguments, model=None):
        answer = report("--model", model or self.folder, *arguments)
        self.assertEqual(list(violations(answer, SCHEMA)), [])
        found = answer["weights_on_disk"]
        if found["reshaped"]["tensors"] == 0:
            self.assertEqual(found["parameters"] - sum(found[key]["parameters"] for key in
                                                       ("unexpected", "copies", "buffers"))
                             + found["missing"]["parameters"], answer["params"]["total"])
        return answer, found

    def test_bert_base_as_it_is_published(self):
        self.config(**checkpoint.BERT_CONFIG)
        self.weights(checkpoint.bert_base())
        answer, found = self.compared()
        self.assertEqual(found["parameters"], 110_106_428)  # BertForPreTraining, as the hub counts it
        self.assertEqual(found["dtypes"], [{"dtype": "F32", "tensors": 206, "parameters": 110_106_428, "bytes": 440_425_712}])
        self.assertEqual(found["missing"]["names"], ["classifier.weight", "classifier.bias"])
        self.assertEqual(found["unexpected"]["tensors"], 7)
        self.assertEqual(answer["model"]["checkpoint_dtype"], "float32")
        _, found = self.compared("--task", "mlm")
        self.assertEqual(found["missing"]["tensors"], 0)
        self.assertEqual(found["unexpected"]["names"], ["bert.pooler.dense.bias", "bert.pooler.dense.weight",
                                                        "cls.seq_relationship.bias", "cls.seq_relationship.weight"])

    def test_a_base_model_without_prefix_in_another_type(self):
        self.config(**checkpoint.BERT_CONFIG)
        self.weights(checkpoint.bert_base(prefix="", norm=("weight", "bias"), heads=False, dtype="BF16"))
        answer, found = self.compared()
        self.assertEqual(found["parameters"], 109_482_240)  # BertModel
        self.assertEqual(found["unexpected"]["tensors"], 0)
        self.assertEqual(answer["model"]["checkpoint_dtype"], "bfloat16")
        self.assertTrue(any(line.startswith("dtype = bfloat16 (absent from config.json") for line in answer["assumptions"]))

    def test_shards_with_and_without_the_tied_head(self):
        self.config(**LLAMA, torch_dtype="bfloat16")
        tensors = list(llama().items())
        shards = {"model-00001-of-00002.safetensors": dict(tensors[:9]), "model-00002-of-00002.safetensors": dict(tensors[9:])}
        index = checkpoint.write_shards(self.folder, shards)
        for model in (self.folder, index):
            _, found = self.compared(model=model)
            self.assertEqual((found["agree"], found["files"], found["copies"]["tensors"]), (True, 2, 0))
        shards["model-00002-of-00002.safetensors"]["lm_head.weight"] = ("BF16", (128, 32))
        checkpoint.write_shards(self.folder, shards)
        _, found = self.compared()
        self.assertEqual((found["agree"], found["copies"]["names"]), (True, ["lm_head.weight"]))

    def test_another_config_than_the_weights_have(self):
        self.config(**(LLAMA | {"vocab_size": 130}))
        self.weights(llama())
        _, found = self.compared()
        self.assertEqual(found["reshaped"]["names"], ["model.embed_tokens.weight [128, 32], in the model [130, 32]"])
        text = run("--model", self.folder).stdout
        self.assertIn("Weights on disk", text)
        self.assertIn("has another shape", " ".join(text.split()))
        self.assertIn("has another shape", run("--model", self.folder, "--format", "md").stdout)
        self.assertIn("weights_on_disk,agree,false,", run("--model", self.folder, "--format", "csv").stdout)

    def test_data_is_never_read(self):
        self.config(**LLAMA)
        path = self.weights({"huge": ("BF16", (1 << 40,))})  # 2 TiB, all of it a hole
        self.assertEqual(json.loads(run("weights", path, "--format", "json").stdout)["bytes"], 1 << 41)
        self.assertEqual(report("--model", self.folder)["weights_on_disk"]["unexpected"]["tensors"], 1)

    def test_the_config_alone_asks_for_no_weights(self):
        self.config(**LLAMA)
        (self.folder / "model.safetensors").write_bytes(b"broken")
        self.assertNotIn("weights_on_disk", report("--model", self.folder / "config.json"))


class Counts(Weights):
    def test_formats(self):
        path = self.weights({"a": ("BF16", (1000, 1000)), "b": ("F8_E4M3", (7,))})
        self.assertEqual(run("weights", path).stdout, "dtype    tensors  parameters     bytes\n"
                                                      "BF16           1   1,000,000  1.91 MiB\n"
                                                      "F8_E4M3        1           7       7 B\n"
                                                      "total          2   1,000,007  1.91 MiB\n")
        answer = json.loads(run("weights", self.folder, "--format", "json").stdout)
        self.assertEqual((answer["parameters"], answer["files"]), (1_000_007, [str(path)]))
        self.assertEqual(run("weights", path, "--format", "csv").stdout.splitlines()[0], "dtype,tensors,parameters,bytes")

    def test_a_file_with_a_name_of_its_own(self):
        self.weights({"a": ("BF16", (2,))}, "adapter_model.safetensors")
        self.assertEqual(run("weights", self.folder).returncode, 0)


class WrongFiles(Weights):
    def check(self, path, message):
        for arguments in (("weights", path), ("--model", path)):
            process = run(*arguments)
            self.assertEqual((process.returncode, process.stdout), (2, ""), process.stderr)
            self.assertTrue(process.stderr.startswith("memcalc: error: "), process.stderr)
            self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
            self.assertIn(message, process.stderr)
            self.assertIn(str(path), process.stderr)

    def test_headers(self):
        tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        self.config(**LLAMA)
        path = self.folder / "model.safetensors"
        cases = [
            ({"a": tensor}, 7, "found 7 bytes behind the header; accepted: 8"),
            ({"a": tensor, "b": tensor}, 8, "overlaps the tensor before"),
            ({"a": tensor | {"shape": [3]}}, 8, "accepted: 12, which [3] of F32 takes"),
            ({"a": tensor | {"dtype": "F33"}}, 8, "did you mean"),
            ({"a": tensor | {"shape": [-2]}}, 8, "/a/shape/0: found -2"),
            ({"a": tensor | {"shape": [2.0]}}, 8, "/a/shape/0: found 2.0"),
            ({"a": tensor | {"shape": [1 << 61]}}, 8, "of F32; accepted: a tensor of less than 2^63 bits"),
            ({"a": tensor | {"data_offsets": [0, 1 << 63]}}, 8, "/a/data_offsets/1"),
            (b"[" * 100_000, 0, "header"),
            (b'{"a": {}, "a": {}}', 0, 'key "a" occurs more than once'),
            (bytes(range(256)), 0, "header: line 1"),
        ]
        for header, data_bytes, message in cases:
            with self.subTest(message):
                checkpoint.write_raw(path, header, data_bytes)
                self.check(path, message)

    def test_what_is_no_file(self):
        path = self.folder / "model.safetensors"
        path.symlink_to("model.safetensors")
        self.check(self.folder, "Too many levels of symbolic links")
        path.unlink()
        path.mkdir()
        self.check(self.folder, "model.safetensors: found a directory; accepted: a safetensors file")
        path.rmdir()
        os.mkfifo(path)
        self.check(self.folder, "found a pipe")

    def test_indexes(self):
        index = self.folder / "model.safetensors.index.json"
        for weight_map, message in (({"a": "gone.safetensors"}, "which is not there"),
                                    ({"a": "../x.safetensors"}, "accepted: a safetensors file in the directory of the index"),
                                    ({"a": "/etc/passwd"}, "accepted: a safetensors file in the directory"),
                                    ({}, "at least one tensor")):
            index.write_text(json.dumps({"weight_map": weight_map}))
            self.check(index, message)

    def test_an_unknown_architecture(self):
        path = self.weights(llama())
        for model in (path, self.folder):
            process = run("--model", model)
            self.assertEqual(process.returncode, 2)
            self.assertIn("(22688 parameters, BF16) and no config.json beside them, so the architecture is unknown",
                          process.stderr)


if __name__ == "__main__":
    memcalc_cli.main()
