"""memcalc.read_config and read_command_line: keywords of memcalc.estimate."""
from pathlib import Path

import memcalc
import pytest

FILES = Path(__file__).resolve().parents[1] / "config_files"


def test_a_file_is_keywords_of_estimate():
    config = memcalc.read_config(FILES / "axolotl-lora-1b.yml")
    assert (config.format, config.options["batch_size"], config.options["lora"]) == ("axolotl", 2, 16)
    assert config.options["lora_targets"][:2] == ["gate_proj", "down_proj"]
    report = memcalc.estimate(**config.options, gpu="rtx-4090")
    assert report.peak_allocated_bytes > 0


def test_every_key_is_one_of_four():
    config = memcalc.read_config(FILES / "axolotl-lora-1b.yml", without=["val_set_size"])
    told = {*config.used, *config.irrelevant, *config.approximated, *config.left_out}
    lines = (FILES / "axolotl-lora-1b.yml").read_text().splitlines()
    assert {line.split(":")[0] for line in lines if line[:1].isalpha()} == {key.split("/")[0] for key in told}
    assert config.left_out == ["val_set_size"] and "eval_batch_size" not in config.options


def test_keywords_win_over_the_file():
    config = memcalc.read_config(FILES / "accelerate-fsdp2.yaml", model="llama-3.2-1b", sequence_length=256, gpus=2)
    assert (config.options["gpus"], config.options["parallel"], config.options["model"]) == (2, "fsdp2", "llama-3.2-1b")
    assert memcalc.estimate(**config.options).peak_allocated_bytes > 0


def test_lists_and_negatives_are_keywords_too():
    full = memcalc.read_config(FILES / "llama-factory-full-sft-zero3.yaml", gpus=8)
    assert "sub_group_size=1000000000" in full.options["deepspeed"]
    assert memcalc.read_config(FILES / "axolotl-qlora-8b.yml").options["prepare_kbit"] is False
    assert memcalc.estimate(**full.options).peak_allocated_bytes > 0


def test_a_command_line_is_keywords_too():
    config = memcalc.read_command_line("torchrun --nproc_per_node=2 train.py --model_name_or_path gpt2 --bf16")
    assert (config.options["gpus"], config.options["precision"]) == (2, "amp-bf16")
    assert config == memcalc.read_command_line(["torchrun", "--nproc_per_node=2", "train.py", "--model_name_or_path", "gpt2",
                                                "--bf16"])


def test_what_is_wrong_raises(tmp_path):
    reward = tmp_path / "reward.yaml"
    reward.write_text((FILES / "llama-factory-dpo.yaml").read_text().replace("stage: dpo", "stage: rm"))
    with pytest.raises(memcalc.UnsupportedError, match="/stage: LLaMA-Factory's rm puts a value head"):
        memcalc.read_config(reward)
    with pytest.raises(memcalc.UsageError, match="did you mean 'axolotl'"):
        memcalc.read_config(FILES / "axolotl-lora-1b.yml", format="axolotle")
    with pytest.raises(memcalc.InputError, match="no.yml"):
        memcalc.read_config("no.yml")
