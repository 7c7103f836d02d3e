"""Training jobs as trainers run them (measured/jobs/rows.jsonl) against memcalc: jobs_test.py MEMCALC. Each is equal in
allocated and reserved memory, but those that are listed here, whose errors may not grow."""
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "harness"))
import jobs  # noqa: E402  (of the harness)

ROWS = Path(__file__).resolve().parent / "jobs/rows.jsonl"
UNSLOTH = Path(__file__).resolve().parent / "jobs/unsloth.jsonl"
MEMCALC = ""
# Largest shares by which (allocated, reserved) are off today, in percent.
OFF = {
    "f212-t5-z3": (0.001, 0),
    "f212-opt-z3": (0.001, 0),
    "f212-t5-z2": (0, 0.027),
    "f212-bart-z2": (0.001, 0),
    "f212-bert-z2": (0.001, 0),
    "r112-qa-falcon": (0.047, 4.258),
    "r112-qa-mixtral": (0.019, 0),
    "j19-08-sft-gpt2": (0.137, 0),
    "j19-09-sft-gpt_neox": (0.121, 0),
    "j27-03-dpo-llama-untied": (0, 1.273),
    "j27-04-sft-qwen2": (0, 0.153),
    "j27-05-sft-lengths-gpt2": (0.036, 0),
    "j27-06-sft-gpt_neox": (0.016, 0),
    "j27-21-glue-distilbert": (0.048, 1.586),
    "j31-06-grpo-opt": (0, 0.231),
    "j31-15-dpo-gpt_neox": (0, 0.47),
    "j31-19-grpo-qwen2": (0, 0.165),
    "j31-20-grpo-gpt2": (0, 0.237),  # as many requests as were seen in others; its own are not kept
    "j31-23-grpo-qwen3": (0.033, 0),
    "j41-00-rloo-opt": (0, 0.281),
    "j41-08-dpo-llama": (0.005, 6.467),
    "j41-10-dpo-opt": (0.009, 4.775),
    "j41r-06-reward-opt": (0.009, 0),
    "j51-00-packed-mistral": (0, 0.044),
    "j51-04-packed-gpt_neox": (0, 0.108),
    "j51-06-packed-llama": (0, 0.012),
    "j51-09-packed-qwen2": (0, 0.08),
    "j71-03-dpo-qwen2": (0.01, 0),
    "j71-05-rloo-mistral": (0, 0.871),
    "j71-10-rloo-qwen2": (0, 0.179),
    "j71-13-rloo-opt": (0.261, 0),
    "j73-03-trainer-gpt2": (0, 0.083),
    "g81-00-sft-qwen2": (0.001, 0),
    "g81-02-glue-bert": (0.013, 0.167),
    "g81-03-dpo-gpt_neox": (0.001, 0),
    "g81-06-grpo-opt": (0.048, 1.493),
    "g81-07-reward-qwen3": (0.001, 0.201),
    "g81-09-packed-qwen2": (0.001, 0),
    "g81-10-sft-mistral": (0.001, 0),
    "g81-11-trainer-mistral": (0.484, 10.54),
    "g81-12-glue-distilbert": (0.081, 0),
    "g81-13-dpo-llama-untied": (0.001, 0),
    "g81-14-sft-lengths-qwen3": (0.001, 0),
    "g81-15-kto-mistral": (0.166, 0),
    "g81-17-reward-qwen3": (0.001, 0),
    "g81-20-sft-qwen2": (0.004, 11.862),
    "g81-24-sft-lengths-gpt2": (0.001, 0.076),
    "g81-25-kto-llama-untied": (0.001, 0),
    "g81-27-reward-opt": (0.001, 0),
    "j81-05-generate-bart": (0.001, 0),
    "j81-11-generate-t5": (0.423, 0.579),
    "j81-13-online-dpo-qwen3": (0, 0.03),
    "j81-14-generate-t5": (0.171, 0.286),
    "j81-16-online-dpo-gpt_neox": (0.039, 0),
    "j81-19-online-dpo-mistral": (0, 5.61),
    "j81-21-orpo-llama": (0, 1.284),
    "j81-22-online-dpo-mistral": (0.077, 0),
    "j81-23-generate-bart": (0.123, 1.098),
    "v24-04-grpo-vllm-qwen2": (0, 10.592),
    "v24-07-grpo-vllm-opt": (0, 0.493),
    "v24-14-rloo-vllm-gpt_neox": (0.024, 0),
    "v24-21-grpo-vllm-llama": (0, 0.03),
    "g81-05-kto-opt": (0.001, 5.388),
    "g81-23-dpo-llama": (0.016, 1.801),
    "g91-00-trainer-llama-untied": (0.163, 10.308),
    "g91-06-trainer-llama-untied": (0.1, 0),
    "g91-09-sft-lengths-llama": (0.001, 0.09),
    "j101-00-sft-qwen3": (0, 0.995),
    "j101-03-orpo-qwen3": (0.039, 0),
    "j101-05-generate-t5": (0.084, 0),
    "j101-09-packed-llama": (0, 0.016),
    "j101-26-grpo-vllm-gpt2": (0.105, 0),
    "j101-27-orpo-qwen3": (0, 0.059),
    "j101-29-generate-t5": (0.2, 0.281),
    "h19a-sft-mixtral-none": (0, 0.144),
    "h19a-grpo-qwen3_moe": (0, 0.127),
    "j119-01-kto-lengths-qwen3": (0.104, 1.045),
    "j119-05-sft-smooth-opt": (0.027, 0),
    "j119-07-grpo-options-qwen2": (0.007, 0),
    "j119-09-grpo-options-llama": (0.014, 0.096),
    "j119-10-orpo-fsdp2-mistral": (0.001, 0),
    "j119-13-kto-lengths-opt": (0, 0.187),
    "j119-16-sft-answers-qwen3": (0, 16.559),
    "j119-21-grpo-options-qwen3": (0, 1.229),
    "j119-22-orpo-fsdp2-mistral": (0.001, 0),
    "j119-24-dpo-lengths-llama": (0, 16.885),
    "j119-33-grpo-options-qwen2": (0, 18.098),
    "j127-02-reward-fsdp2-mistral": (0.001, 0),
    "j127-03-sft-fsdp1-llama": (0.001, 8.483),
    "j127-04-rloo-times-qwen3": (0, 14.842),
    "j127-05-dpo-fsdp1-qwen2": (0.001, 2.047),
    "j127-08-reward-fsdp2-llama": (0.035, 0),
    "j127-09-orpo-fsdp1-llama": (0.001, 2.927),
    "j127-10-grpo-times-mistral": (0, 0.161),
    "j127-11-sft-fsdp1-gpt2": (0.001, 3.01),
    "r19-00-online-dpo-zero3-lora": (0.262, 3.044),
    "r19-01-sft-fsdp1-qwen2": (0.001, 1.061),
    "r19-02-sft-lora-fsdp1-llama": (0.001, 0),
    "r19-03-trainer-fsdp1-qwen2": (0, 0.845),
    "r19-05-dpo-fsdp1-llama-untied": (0.001, 0.198),
    "r19-06-kto-fsdp1-qwen2": (0.001, 1.556),
    "r19-07-reward-lora-fsdp1-llama": (0.001, 0),
    "r19-08-grpo-fsdp1-qwen2": (0, 0.884),
    "r19-09-qlora-sft-fsdp1-llama": (0.001, 0.644),
    "r19-10-reward-fsdp1-qwen2": (0.001, 4.316),
    "r19-12-online-dpo-fsdp1-llama-untied": (0.001, 0.54),
    "r19-13-dpo-lora-fsdp1-qwen2": (0.001, 0),
    "r19-14-sft-pre-fsdp1-llama": (0.001, 4.635),
    "r19-15-trainer-eval-fsdp1-llama-untied": (0, 1.235),
    "r19-16-trainer-lengths-fsdp1-qwen2": (0, 0.992),
    "r19-17-kto-lora-fsdp1-llama-untied": (0.001, 0.74),
    "r19-19-online-dpo-lora-zero3-llama-untied": (0.006, 20.974),
    "r19-24-grpo-head32-ddp-llama-untied": (0.045, 0),
    "r19-25-trainer-qlora-fsdp1-qwen2": (0.02, 0.028),
    "r19-26-sft-fsdp1-llama-1b": (0.001, 1.858),
    "r20-00-online-dpo-lora-zero3-llama-untied": (0.006, 20.974),
    "r20-15-online-dpo-lora-zero3init-llama-untied": (0.006, 15.593),
    "r20-03-rloo-fsdp1-llama-untied": (0.061, 5.313),
    "r20-04-grpo-head32-llama": (0, 0.226),
    "r20-05-kto-lora-fsdp1-llama-untied": (0.001, 0.74),
    "r20-06-sft-qlora-fsdp1-mistral": (0.001, 0),
    "r20-14-reward-qlora-llama": (0.002, 0),
    "j1911-01-generate-speech-whisper": (0.005, 0.131),
    "j1911-03-generate-speech-whisper": (0.15, 0.651),
    "j1911-07-generate-speech-whisper": (0.018, 0),
    # The first step of cut_cross_entropy: inductor times a kernel and empties the L2 cache by 60 MiB of the card.
    "j2941-00-cce-mistral": (0.009, 0.544),
    "j2941-12-cce-mistral": (0, 1.313),
    "j3041-11-cce-llama": (0, 0.402),
    "j3041-23-cce-llama-untied": (0.093, 0.461),
    # Run with sentence-transformers 6.0.1, whose pooling writes a mask as large as the hidden states; 6.2 is modelled.
    "j61-01-st-distilbert": (0.004, 0.549),
    "j61-02-st-distilbert": (0.189, 0),
    "j61-03-st-bert": (0.229, 1.387),
    "j61-04-st-roberta": (0.102, 0),
    "j61-05-st-bert": (0.292, 0),
    "j61-06-st-distilbert": (0.208, 0.127),
    "j61-07-st-distilbert": (0.315, 0),
    "j61-08-st-distilbert": (0.355, 1.734),
    "j61-09-st-bert": (0, 0.062),
    "r19-20-st-mnrl-ddp-bert": (0.237, 0.16),
    "r19-21-st-cached-ddp-distilbert": (0.027, 0.197),
    "r20-12-st-mnrl-ddp-roberta": (0.201, 0.149),
    "r20-13-st-mnrl-ddp-distilbert": (0.238, 0.226),
    # With 6.2.
    "j3041-22-st-distilbert": (0.104, 2.31),
    "j2941-08-cross-lengths-distilbert": (0.09, 1.551),
    "j3041-06-in-backward-mistral": (0, 0.512),
    "j3041-08-generate-t5": (0.128, 0.247),
    "j3041-24-q-experts-mixtral": (0, 3.499),
    "j3041-26-whole-kto-llama": (0, 0.849),
    "j4041-00-glue-roberta": (0.017, 0),
    "j4041-08-dpo-lengths-gpt2": (0.026, 0.014),
    "j5041-04-seq2seq-lengths-bart": (0, 0.148),
    "j5041-05-grpo-llama": (0, 4.982),
    "j5041-08-sft-qwen3": (0, 0.128),
    "j7041-00-sft-qwen2": (0, 2.641),
    "j7041-04-reward-gpt2": (0.12, 0.927),
    "j7041-08-st-bert": (0.275, 0.148),
    "j7041-10-liger-llama": (0.003, 0),
    "j7041-14-sft-lengths-llama": (0, 0.103),
    "j8041-05-sft-qlora-gemma2": (0.001, 0),
    "j8041-09-dpo-gemma3": (0.019, 0.263),
    "j8041-15-reward-gpt2": (0.361, 0),
    "j8041-26-trainer-moe-mixtral": (0, 0.097),
    "j8041-30-st-xlm-roberta": (0.069, 0.077),
    "j8041-33-cross-bert": (0, 1.014),
    # Adapters whose model's construction reserves more than the training: the runs emptied the cache before it.
    "j8041-01-sft-answers-qwen2": (0, 13.886),
    "j8041-11-kto-bloom": (0, 26.454),
    "j9041-01-sft-lengths-gemma2": (0, 9.255),  # --load host is exact
    "j9041-12-dpo-gemma3": (0, 17.308),  # likewise; k9041-12 is the same run with the cache kept
    "j9041-16-kto-eval-qwen3": (0, 14.358),  # likewise
    # The same requests; blocks lie elsewhere.
    "j9041-00-sft-dora-qwen2": (0, 0.037),
    "k9041-00-sft-dora-qwen2": (0, 0.037),
    "j9041-02-packed-gemma2": (0.027, 1.581),
    "j9041-17-kto-lengths-smollm2": (0, 0.329),
    "j9041-20-grpo-eval-gpt_neox": (0, 0.046),
    "j9041-30-trainer-bnb-gpt2": (0.018, 0),
    "j9041-31-trainer-moe-mixtral": (0.067, 0),
    "j9041-36-cross-eval-distilbert": (0.273, 0.552),
    # Seed 10041, the cache kept. A fourth step of Whisper asks for a block in another place.
    "j10041-05-sft-qlora-gemma3": (0, 0.157),
    "j10041-13-dpo-precomputed-olmo2": (0, 0.981),
    "j10041-18-reward-opt": (0.074, 0),
    "j10041-19-reward-eval-gpt2": (0, 1.544),
    "j10041-33-speech-whisper": (0.017, 0),
    "j10041-43-sft-fsdp1-llama": (0.001, 6.229),
    "j10041-44-orpo-fsdp1-mistral": (0.001, 6.285),
    "j10041-45-save-fsdp1-mistral": (0, 1.135),
    # Seed 11041, the cache kept. The same requests, but blocks lie elsewhere: the driver's addresses rise at first there.
    "j11041-00-sft-default-llama-untied": (0.048, 0.364),
    "j11041-08-tf-4.57.6-encoder-roberta": (0.041, 0.229),
    "j11041-14-packed-default-lora-qwen3": (0, 0.156),
    "j11041-32-tf-5.5.4-decoder-gpt2": (0.017, 0),
    "x11041-50-trl-1.7.0-llama-untied": (0.052, 0),
    "x11041-52-trl-1.12.0-llama-untied": (0.052, 0),
    "x11041-54-trl-1.14.2-llama-untied": (0.001, 0),
    # Their reference was made on the host by the script; TRL reads one by its name onto the card, which is told.
    "j11041-03-dpo-default-mistral": (0.075, 0.064),
    "j11041-10-kto-default-gpt_neox": (0.346, 0.977),
    "j11041-28-generate-speech-whisper": (0.076, 0.095),  # as all of Whisper before 12041: the script's generate() began with one token, not four
    # Seed 12041. The requests are as many, blocks lie elsewhere: other placements change them.
    "j12041-06-orpo-default-gpt_neox": (0.117, 0),
    "j12041-12-packed-default-gemma2": (0.01, 14.547),  # a second run reserved what is told
    "j12041-22-trl-1.14.2-sft-gpt2": (0.011, 0),
    "j12041-03-rloo-default-gpt_neox": (0.039, 0.058),
    "j12041-04-kto-default-stablelm": (0.083, 0),  # the same requests; blocks lie elsewhere
    # Of several processes (DDP, ZeRO-1): one block of 512 bytes of an epoch's last step is kept by what was not found.
    "g81-04-sft-lengths-llama-untied": (0.001, 0),
    "g81-19-packed-qwen2": (0.001, 0),
    "g81-29-packed-gpt2": (0.001, 0),
    "j10041-23-rloo-bloom": (0, 0.052),  # every request as measured since position ids are not made; blocks lie elsewhere
    "j12041-27-trl-1.12.0-dpo-llama": (0, 0.222),
    "j13041-20-trl-1.13.0-dpo-gpt2": (0.048, 0),
    "j13041-23-trl-1.9.2-kto-llama": (0.077, 0.152),  # the same requests; of its three samples another one is desirable
    # Seed 13041: all but 13 ask for the same as is told (31 was not looked at); blocks lie elsewhere.
    "j13041-00-sft-default-bloom": (0.136, 0),
    "j13041-01-dpo-default-gemma2": (0.045, 0.506),
    "j13041-04-kto-default-starcoder2": (0.321, 0.529),
    "j13041-05-reward-default-llama-untied": (0.167, 0),
    "j13041-09-grpo-options-opt": (0.064, 0),
    "j13041-13-generate-t5-bart": (0.001, 0.115),
    "j13041-17-trl-1.8.0-sft-gpt2": (0.031, 0),
    "j13041-31-st-cached-xlm-roberta": (0.083, 0.344),
    # the same requests; autocast's copies of weights die in the order of a hash of their addresses
    "j16041-05-reward-default-olmo2": (0.028, 0.097),
    "j16041-09-packed-default-mistral": (0, 0.041),
    "j16041-b01-dpo-default-gpt_neox": (0.438, 0.111),
    "j16041-b04-qa-bert-bert": (0.407, 0.334),
    "j16041-15-generate-t5-t5": (0, 0.017),
    "j16041-b06-online-dpo-mistral": (0.026, 0.047),
    "j41-16-grpo-mistral": (0, 0.262),
    "j71-09-dpo-mistral": (0, 0.24),
    "h19a-sft-qwen3_moe-none": (0, 0.111),
    "h19a-sft-dft-completion": (0, 0.056),
}
# The same of the peaks of evaluations, where they were kept.
OFF_IN_EVALUATION = {
    "r112-ner": 0.017, "r112-sum-t5": 0.005,
    "j2941-06-st-lengths-roberta": 0.005,
    "j3041-08-generate-t5": 0.289,
    "j3041-20-generate-bart": 0.002,
    "j1911-01-generate-speech-whisper": 0.006,
    "j1911-03-generate-speech-whisper": 0.121,
    "j1911-07-generate-speech-whisper": 0.078,
    "j9041-30-trainer-bnb-gpt2": 0.095,
    "j9041-31-trainer-moe-mixtral": 0.011,
    "j9041-36-cross-eval-distilbert": 0.079,
    "j11041-28-generate-speech-whisper": 0.076,  # all of Whisper before 12041: the script began with one token, not four
    "j13041-00-sft-default-bloom": 0.255,
    "j13041-13-generate-t5-bart": 0.001,
}


def predicted(row, folder):
    said = jobs.predict_job(MEMCALC, row, folder)
    if "error" in said: raise AssertionError(f"{row['name']}: {said['error']}")
    return said["allocated"], said["reserved"], said.get("evaluation")


class Jobs(unittest.TestCase):
    def test_each_is_as_it_was_measured(self):
        rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
        rows = [row for row in rows if "allocated" in row]
        self.assertEqual(set(OFF) - {row["name"] for row in rows}, set(), "listed, but not measured")
        with tempfile.TemporaryDirectory() as folder:
            for row in rows:
                with self.subTest(row["name"]):
                    most = {**dict(zip(("allocated", "reserved"), OFF.get(row["name"], (0, 0)))), "evaluation": OFF_IN_EVALUATION.get(row["name"], 0)}
                    for kind, said in zip(("allocated", "reserved", "evaluation"), predicted(row, folder)):
                        if kind not in row: continue
                        self.assertLessEqual(abs(said / row[kind] - 1), most[kind] / 100, f"{kind}: {said}, measured {row[kind]}")

    def test_each_of_unsloths_is_as_it_was_measured(self):
        """Of the process, allocated bytes lack the workspace that the forward thread had before the model; memcalc lacks
        one block: the inverse frequencies."""
        workspace, frequencies = 33_554_432, 512
        rows = [json.loads(line) for line in UNSLOTH.read_text().splitlines()]
        rows = [row for row in rows if "allocated" in row]
        self.assertGreaterEqual(len(rows), 8)
        with tempfile.TemporaryDirectory() as folder:
            for row in rows:
                with self.subTest(row["name"]):
                    allocated, reserved, _ = predicted(row, folder)
                    self.assertEqual(allocated - workspace + frequencies, row["allocated"])
                    self.assertEqual(reserved, row["reserved"])

    def test_an_evaluation_of_more_batches_than_are_executed_one_by_one(self):
        """What is kept goes to the host after two batches, however many come; blocks that are not split differ by 0.5 MiB."""
        job = ["--model", "gpt2", "--loop", "trainer", "--bs", "2", "--seq", "64", "--eval-bs", "4", "--eval-logits", "--eval-accum", "2"]
        few, many = (predicted({"name": n, "arguments": [*job, "--eval-samples", n]}, None) for n in ("16", "400"))
        self.assertLessEqual(abs(many[0] - few[0]), 2**20)


if __name__ == "__main__":
    MEMCALC = sys.argv.pop(1)
    unittest.main()
