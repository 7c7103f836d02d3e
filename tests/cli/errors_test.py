"""Wrong input: one clear line on standard error, nothing on standard output, exit status 2. Never a crash."""
import json
import re
import tempfile
import unittest
from pathlib import Path

import memcalc_cli
from memcalc_cli import ROOT, run

BERT = ("--model", "bert-large")
WHOLE = "expected a whole number of 1 or more"

# (arguments, what the line must say)
CASES = [
    ((), "--model"),
    (("",), "expected a value, found nothing"),
    (("--bs", "4"), "--model: expected a name"),
    (("estmate", *BERT), "unknown command 'estmate'; the commands are estimate, max-batch, max-seq,"),
    (("bert-large", "--bs", "4"), "completion; a model is given as --model NAME"),
    (("estmate", *BERT), "did you mean 'estimate'?"),
    (("--model", "bert-larg"), "did you mean 'bert-large'?"),
    (("--model", "no/such/config.json"), "no/such/config.json"),
    (("--model", "siglip-base-patch16-224", "--seq", "100"), "sequence must be at most 64"),
    ((*BERT, "--gpu", "h100-sx"), "did you mean 'h100-sxm'?"),
    # whole numbers
    *(((*BERT, option, text), f"{option}: {WHOLE}{more}, found '{text}'")
      for option in ("--bs", "--seq")
      for text, more in (("-1", ""), ("0", ""), ("1.5", ""), ("1e3", ""), ("nan", ""), ("inf", ""), ("0x10", ""),
                         ("+4", ""), (" 4", ""), ("4 ", ""), ("4,5", ""), ("４", ""), ("-99999999999999999999", ""),
                         ("99999999999999999999", " and below 2^63"), ("9223372036854775808", " and below 2^63"))),
    *(((*BERT, "--accum", text), f"--accum: expected a whole number from 1 to 65536, found '{text}'")
      for text in ("-1", "0", "1.5", "1e3", "nan", "0x10", "+4", " 4", "99999999999999999999")),
    # lists
    (("programs", "--operators", "--models", "sam3"), "--operators and --models contradict each other"),
    (("programs", "--operators", "--opaque"), "--operators and --opaque contradict each other"),
    (("programs", "--operators", "--specs", "no/such"), "--specs: expected a directory"),
    (("--model", "gemma-4-31b-text", "--gpus", "8", "--tp", "8", "--loop", "bare"), "the 4 key/value heads of gemma-4-31b-text's global layers"),
    # sizes that a recorded program leaves free
    (("--model", "timm-vit-tiny-patch16-224", "--image", "384"), "no other: the module refuses another: AssertionError"),
    (("--model", "timm-vgg16", "--image", "192"), "image must be at least 224"),
    (("--model", "segformer-b0", "--image", "500"), "image must be a multiple of 32"),
    (("--model", "gpt-j-6b", "--image", "224"), "it belongs to models of images"),
    (("sweep", "--model", "gpt2", "--profile", "p1,p9"), "--profile: expected one of p1,"),
    ((*BERT, "--bs", ""), "--bs: expected a value, found nothing"),
    ((*BERT, "--bs="), "--bs: expected a value, found nothing"),
    ((*BERT, "--bs"), "--bs: expected a value, found nothing"),
    ((*BERT, "--bs", "1", "--bs", "2"), "--bs: given more than once"),
    ((*BERT, "--bs", "--seq", "5"), "--bs: expected a value, found the option '--seq'"),
    (("--model", "gpt2", "--loop", "trl-sft", "--packing", "--bs", "2"), "--packing: expected one of bfd, bfd_split, wrapped, found the option '--bs'"),
    ((*BERT, "--bs", "9223372036854775807"), "2^63"),
    ((*BERT, "--bs", "2", "--accum", "9223372036854775807"), "from 1 to 65536"),
    # numbers
    *(((*BERT, "--dropout", text), "--dropout: expected a number")
      for text in ("-0.1", "1", "2", "nan", "inf", "x", "0,1", "1e400")),
    *(((*BERT, "--clip-grad", text), "--clip-grad: expected a number") for text in ("-1", "nan", "inf", "x")),
    ((*BERT, "--gpu", "h100", "--storage-rate", "1e9"), "--storage-rate: expected --sample-bytes beside it, found none"),
    # choices
    (("--model", "resnet50", "--bs", "8", "--loop", "trainer", "--precision", "bf16"), "the Trainer's images are float32"),
    (("--model", "clip-vit-base-patch32", "--loop", "trainer"), "collator for return_loss"),
    ((*BERT, "--task", "image"), "task image: bert-large does not classify images; accepted: --task seqcls, mlm, tokcls"),
    ((*BERT, "--precision", "fp8"), "--precision: expected one of fp32, tf32, amp-fp16, amp-bf16, bf16, fp16"),
    ((*BERT, "--optimizer", "adamq"), "did you mean 'adam' or 'adamw'?"),
    ((*BERT, "--optimizer", "galore_adamw"), "--optimizer: expected one of adamw, adamw-fused,"),
    ((*BERT, "--optimizer", "muon"), "Muon takes matrices alone, and the Trainer gives all weights to one optimizer; "
                                     "accepted: --loop bare"),
    ((*BERT, "--optimizer", "adafactor-hf-relative"), "the Trainer makes Adafactor with relative_step=False"),
    ((*BERT, "--loop", "x"), "--loop: expected one of trainer, bare, trl-sft, trl-dpo, trl-kto, trl-grpo, trl-rloo, trl-reward, "
     "sentence-transformer, cross-encoder, trl-orpo, trl-online-dpo, found 'x'"),
    ((*BERT, "--attn", "x"), "--attn: expected one of sdpa, eager, flash, found 'x'"),
    ((*BERT, "--optimizer", "adamv"), "names (docs/cli.md), found 'adamv'; did you mean 'adam' or 'adamw'?"),
    ((*BERT, "--lora", "8", "--task", "mlm", "--lora-head"), "--lora-head changes nothing in this run: it belongs to adapters of a classifier"),
    ((*BERT, "--checkpointing", "half"), "--checkpointing: expected one of none, full, selective, every-N, found 'half'"),
    ((*BERT, "--card", "mine"), "--card: expected a name, memory and compute capability"),
    ((*BERT, "--torch", "99"), "--torch: expected a version, such as 2.11 or 5.17.0, found '99'"),
    (("--model", "phi3"), "unknown model 'phi3'; 'memcalc models --search phi3' lists the known ones of that name, and --model "
     "takes a config.json"),
    (("--model", "llama3"), "unknown model 'llama3'; 'memcalc models --search llama3' lists"),
    (("--model", "gptj"), "unknown model 'gptj'; did you mean 'gpt-j-6b'"),
    (("--model", "bert-bas"), "unknown model 'bert-bas'; did you mean 'bert-base'?"),
    ((*BERT, "--checkpointing", "x"), "--checkpointing: expected one of none, full, selective, every-N, found 'x'"),
    ((*BERT, "--weights-dtype", "int8"), "--weights-dtype: expected one of fp32, fp16, bf16, found 'int8'"),
    ((*BERT, "--format", "xml"), "--format: expected one of text, json, csv, md, found 'xml'"),
    ((*BERT, "--color", "x"), "--color: expected one of auto, always, never, found 'x'"),
    (("trace", *BERT, "--format", "csv"), "--format: expected one of tsv, json, replay, found 'csv'"),
    (("trace", *BERT, "--events", "3"), "--events: expected one of last, all, found '3'"),
    # sizes
    *((("--model", "gpt2", option, "0"), f"{option}: {WHOLE}, found '0'")
      for option in ("--hidden", "--heads", "--ffn", "--vocab", "--max-positions")),
    (("--model", "gpt2", "--layers", "0"), "--layers: expected a whole number from 1 to 2000, found '0'"),
    (("--arch", "llama", "--model", "gpt2"), "--arch and --model contradict each other"),
    (("--model", "gpt2", "--tie", "--no-tie"), "--tie and --no-tie contradict each other"),
    (("--layers", "4"), "--model: expected a name"),
    (("--arch", "lama"), "did you mean 'llama'?"),
    (("--arch", "torchvision"), "torchvision's models have fixed layers"),
    (("--model", "resnet50", "--layers", "4"), "resnet50: one of torchvision's models, whose layers are fixed"),
    (("--model", "gpt2", "--kv-heads", "4"), "--kv-heads: gpt2 has no such size; it has --layers, --hidden, --heads"),
    (("--model", "vit-base", "--vocab", "4"), "--vocab: vit has no such size; it has --layers, --hidden, --heads, --ffn"),
    (("--model", "llama-3-8b", "--heads", "7"), "with heads=7: /config/hidden_size: found 4096; accepted: a multiple of"),
    (("--arch", "llama", "--layers", "20000"), "--layers: expected a whole number from 1 to 2000, found '20000'"),
    # options of which there are none
    ((*BERT, "--zero", "8"), "unknown option '--zero'; memcalc calls it --parallel ds-zero1"),
    ((*BERT, "--seqlen=4"), "unknown option '--seqlen'; memcalc calls it --seq ("),
    ((*BERT, "--optimzer", "sgd"), "unknown option '--optimzer'; did you mean '--optimizer'? (memcalc"),
    ((*BERT, "--learning_rate", "1"), "unknown option '--learning_rate'; it changes neither memory nor the time"),
    ((*BERT, "--xyzzy"), "unknown option '--xyzzy' (memcalc estimate --help lists all)"),
    ((*BERT, "-x"), "unknown option '-x'"),
    ((*BERT, "word"), "unexpected argument 'word'"),
    (("models", "bert"), "unexpected argument 'bert'"),
    ((*BERT, "--fp16=3"), "--fp16: takes no value"),
    ((*BERT, "--freeze", "a\nb"), "no parameter's name contains 'a\\nb'"),
    # what contradicts itself, the model or the framework
    ((*BERT, "--fp16", "--bf16"), "--fp16 and --bf16 contradict each other"),
    ((*BERT, "--fp16", "--precision", "fp32"), "--fp16 and --precision contradict each other"),
    ((*BERT, "--precision", "bf16", "--weights-dtype", "fp32"), "precision bf16"),
    ((*BERT, "--attn", "flash"), "16-bit"),
    ((*BERT, "--seq", "513"), "sequence length 513 is beyond the 512 positions of bert-large"),
    (("--model", "roberta-large", "--seq", "513"), "beyond the 512 positions"),
    (("--model", "gpt2", "--seq", "1025"), "beyond the 1024 positions of gpt2"),
    (("--model", "llama-3-8b", "--task", "mlm"), "accepted: --task causal, seqcls"),
    ((*BERT, "--task", "causal"), "not modelled for encoders such as bert-large"),
    ((*BERT, "--use-cache"), "no key/value cache"),
    (("--model", "gemma-3n-e2b-text", "--seq", "64", "--checkpointing", "every-2", "--reentrant"),
     "layers that share keys and values with a layer outside of a checkpoint"),
    (("--model", "hubert-large", "--task", "seqcls"), "accepted: no --task, and --loop bare or trainer"),
    (("--model", "gpt2", "--infer", "--new-tokens", "4", "--assistant_model", "x"), "how many are accepted decides bytes and time"),
    (("--model", "gpt2", "--infer", "--new-tokens", "4", "--sampling", "top-k=50"), "by commas, without values, found"),
    (("--model", "qwen3-asr-0.6b-audio", "--bs", "4"), "and no other: at another size the module makes other calls; accepted: 2"),
    # weights (weights_test.py has the files themselves)
    (("weights",), "weights: expected a path, found nothing"),
    (("weights", "a", "b"), "unexpected argument 'b'"),
    (("weights", "/no/such/file.safetensors"), "/no/such/file.safetensors: cannot be read: No such file or directory"),
    (("--model", "no.safetensors"), "no.safetensors: no such file or directory"),
    # files
    ((*BERT, "--specs", "/no/such/place"), "--specs: expected a directory"),
    ((*BERT, "--output", "/no/such/place/x"), "--output: cannot write '/no/such/place/x'"),
    ((*BERT, "--output", "/dev/full"), "cannot write the answer"),
]


class Errors(unittest.TestCase):
    def check(self, process, message):
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertEqual(process.stdout, "")
        self.assertTrue(process.stderr.startswith("memcalc: error: "), process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        self.assertIn(message, process.stderr)

    def test_every_case(self):
        for arguments, message in CASES:
            with self.subTest(arguments): self.check(run(*arguments), message)

    def test_the_environment_is_checked_too(self):
        self.check(run(*BERT, env={"MEMCALC_SPEC_PATH": "/no/such/place"}), "MEMCALC_SPEC_PATH: expected a directory")

    def test_what_holds_of_every_card_is_checked_too(self):
        with tempfile.TemporaryDirectory() as folder:
            for each in (ROOT / "specs").iterdir(): Path(folder, each.name).symlink_to(each)
            errors = Path(folder, "prediction_errors.json")
            errors.unlink()
            errors.write_text("{}")
            self.check(run(*BERT, env={"MEMCALC_SPEC_PATH": folder}), f"{errors}: ")

    def test_files_that_are_not_models(self):
        broken = {"empty": b"", "truncated": b'{"model_type": "bert", ', "list": b"[]", "null": b"null",
                  "nesting": b"[" * 10_000_000, "deep": b'{"a":' * 1_000_000, "binary": bytes(range(256)),
                  "unknown": b'{"model_type": "nothing-known"}', "no type": b"{}",
                  "duplicate": b'{"model_type": "gpt2", "n_embd": 768, "n_embd": 1}',
                  "no number": b'{"model_type": "gpt2", "n_embd": NaN}',
                  "heads": json.dumps({"model_type": "gpt2", "n_embd": 100, "n_head": 7}).encode()}
        with tempfile.TemporaryDirectory() as folder:
            for name, content in broken.items():
                path = Path(folder) / "config.json"
                path.write_bytes(content)
                with self.subTest(name):
                    self.check(run("--model", path), "config.json")

    def test_control_characters_do_not_reach_the_terminal(self):
        process = run(*BERT, "--gpu", "h100\x1b[31m\nsecond line")
        self.check(process, "unknown GPU")
        self.assertNotIn("\x1b", process.stderr)

    def test_a_batch_beyond_all_sense_is_an_answer(self):
        """Bytes moved exceed 63 bits there."""
        for batch in ("1073741824", "2147483648", "4294967296"):
            process = run("--model", "gpt2", "--bs", batch)
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            self.assertIn("Does NOT fit", process.stdout)

    def test_help_is_a_command_as_well(self):
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "plan").stdout, run("plan", "--help").stdout)

    def test_a_failed_run_leaves_no_answer_on_stdout(self):
        process = run(*BERT, "--format", "json", "--seq", "513")
        self.check(process, "513")


class NamesOfOtherPrograms(unittest.TestCase):
    def test_each_leads_to_an_option_that_there_is(self):
        programs = json.loads((ROOT / "specs/option_names.json").read_text())["programs"]
        known = set(re.findall(r"--[a-z0-9-]+", run("plan", "--help").stdout))
        for program in programs:
            for name, ours in program["names"].items():
                with self.subTest(program=program["program"], name=name):
                    options = re.findall(r"--[a-z0-9-]+", ours)
                    self.assertTrue(options)
                    self.assertLessEqual(set(options), known)

    def test_no_name_stands_for_two_things(self):
        seen = {}
        for program in json.loads((ROOT / "specs/option_names.json").read_text())["programs"]:
            for name, ours in [*program["names"].items(), *((each, "") for each in program.get("without_effect", []))]:
                self.assertEqual(seen.setdefault(name.replace("-", "_"), ours), ours, name)


if __name__ == "__main__":
    memcalc_cli.main()
