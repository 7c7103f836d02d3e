"""Every entry of a list of models that was written independently of ours (published/models.jsonl: hyperparameters and
parameter counts with Hugging Face's key names) against specs/models: the same sizes, the same published count. What
differs must be named by the spec itself. Takes no executable; the counts themselves are held to the specs by
published_counts_test.cc."""
import collections
import gzip
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/measured/harness"))
import streams  # noqa: E402

# Kinds of programs whose allocation history was never recorded, and why.
WITHOUT_STREAM = {
    "llama4": "109 billion parameters",
}

# Keys of the list that no forward pass of transformers 5.17 reads, or that its class fixes in code.
FIXED_IN_CODE = {
    "BERT": {"norm_type", "attention_bias"},
    "RoBERTa": {"norm_type", "attention_bias"},
    "DistilBERT": {"tie_weights_"},
    "GPT-2": {"n_ctx"},  # n_positions is what counts
    "Llama 3.2": {"pretraining_tp"},
    "TinyLlama": {"pretraining_tp"},
    "Qwen2/2.5": {"attention_bias"},  # on q, k and v, whatever the config says
    "Gemma 1": {"rope_scaling"},
    "Gemma 2": {"hidden_act"},  # hidden_activation is what counts
    "Gemma 3": {"rope_scaling", "vision_config"},  # the text model
    "Phi": {"attention_bias", "lm_head_bias", "mlp_bias", "rope_scaling"},  # no memory depends on the angles
    "BLOOM": {"intermediate_size", "seq_length", "position_embedding", "word_embeddings_layernorm", "attention_bias", "hidden_act"},
    "Falcon": {"head_dim", "ffn_hidden_size", "num_kv_heads", "multi_query"},  # each architecture reads one of the last two
    "MPT": {"norm_type", "learned_pos_emb", "emb_pdrop", "resid_pdrop"},
    "BART": {"normalize_before", "add_final_layer_norm"},
    "Llama 4": {"n_shared_experts"},
    "Mamba": {"rms_norm"},
    "CLIP": {"hidden_act", "attention_dropout", "layer_norm_eps"},  # the towers have their own
}


def load_specs():
    specs, by_name, recorded = {}, {}, set()
    for path in sorted((ROOT / "specs/models").glob("*.json")):
        spec = json.loads(path.read_text())
        if "program" in spec["config"]:  # recorded: it has no sizes of its own
            recorded.update(name.lower() for name in [spec["name"], *spec.get("aliases", []), *spec.get("part_of", []), *spec.get("text_of", [])])
            continue
        specs[spec["name"]] = spec
        for name in [spec["name"], *spec.get("aliases", []), *spec.get("stands_for", []), *spec.get("text_of", [])]:
            by_name[name.lower()] = spec["name"]
    return specs, by_name, recorded


def differences(listed, own, fixed, path=""):
    """(key, listed value, own value) for each that differs or that the spec lacks."""
    for key, value in listed.items():
        if key in fixed:
            continue
        if isinstance(value, dict) and isinstance(own.get(key), dict):
            yield from differences(value, own[key], set(), f"{path}{key}/")
        elif key not in own or own[key] != value:
            yield path + key, value, own.get(key)


class RegistryEntries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lines = (ROOT / "tests/measured/published/models.jsonl").read_text().splitlines()
        cls.entries = [json.loads(line) for line in lines]
        cls.specs, cls.by_name, recorded = load_specs()
        families = json.loads((ROOT / "specs/not_modelled.json").read_text())["families"]
        cls.refused = {model.lower() for family in families for model in family.get("models", [])} | recorded

    def spec_of(self, entry):
        names = [entry["name"], *entry.get("aliases", [])]
        found = [self.by_name[name.lower()] for name in names if name.lower() in self.by_name]
        return self.specs[found[0]] if found else None

    def test_every_entry_is_there_or_refused_by_name(self):
        there = 0
        for entry in self.entries:
            with self.subTest(entry["name"]):
                for name in [entry["name"], *entry.get("aliases", [])]:
                    self.assertTrue(name.lower() in self.by_name or name.lower() in self.refused, name)
                there += self.spec_of(entry) is not None
        self.assertEqual(len(self.entries), 199)
        self.assertEqual(there, 180)

    def test_compared_runs(self):
        """A program's file says how many runs of it are in the measured rows: the report of any other says that there are none."""
        measured = ROOT / "tests/measured"
        counts = collections.Counter()
        for path in (measured / "any_module/shipped.jsonl", *measured.glob("rows_denoisers_*.jsonl")):
            for row in map(json.loads, path.read_text().splitlines()):
                if "error" not in row.get("measured", {}):
                    counts[row.get("name") or row["run"]["model"]] += 1
        self.assertGreater(len(counts), 120)
        for path in (ROOT / "specs/models").glob("*.json"):
            spec = json.loads(path.read_text())
            if "program" in spec["config"]:
                with self.subTest(spec["name"]):
                    self.assertEqual(spec.get("compared_runs", 0), counts[spec["name"]])

    def test_every_kind_of_program_has_a_stream(self):
        """stream_test.cc compares each file that is there."""
        for kind, names in streams.kinds().items():
            with self.subTest(kind):
                path = ROOT / "tests/measured/histories" / streams.file_of(kind)
                self.assertNotEqual(path.exists(), kind in WITHOUT_STREAM)
                if path.exists():
                    with gzip.open(path, "rt") as file: head = json.loads(file.readline().removeprefix("# "))
                    self.assertIn(head["run"]["model"].removesuffix("-pipeline"), names)

    def test_sizes(self):
        """Those of torchvision's models are in code: their counts say whether they are right."""
        compared = 0
        for entry in self.entries:
            spec = self.spec_of(entry)
            if spec is None or spec["config"]["model_type"] == "torchvision":
                continue
            compared += 1
            for key, listed, own in differences(entry["config"], spec["config"], FIXED_IN_CODE.get(entry["family"], set())):
                with self.subTest(f"{spec['name']}: {key}"):
                    self.assertIn(key.rsplit("/", 1)[-1], spec.get("notes", ""),
                                  f"is {own} instead of {listed}, and no note of the spec says why")
        self.assertEqual(compared, 159)

    def test_published_counts(self):
        compared = 0
        for entry in self.entries:
            spec = self.spec_of(entry)
            published = entry["published_params"]
            if spec is None or published is None:
                continue
            compared += 1
            with self.subTest(spec["name"]):
                if spec.get("published_parameters") != published:
                    self.assertIn(str(published), spec["published_parameters_source"],
                                  "another count, and its source does not say why")
        self.assertEqual(compared, 173)


if __name__ == "__main__":
    unittest.main()
