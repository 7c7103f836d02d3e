"""The 40 questions of real people that the trial of 2026-11 asked, as they would type them (D: what was wrong then).

Each is answered on the first try, or refused in one line that says what memcalc can do instead."""
import json
import math
import tempfile
import time
import unittest
from pathlib import Path

import memcalc_cli
from memcalc_cli import run

# A question, what is typed, the exit status, and what the answer says.
ANSWERED = [
    ("QLoRA of a 13B on a 3090", "--model llama-2-13b --lora 16 --quantize 4bit --bf16 --seq 512 --gpu rtx-3090", 0, ["Fits on rtx-3090"]),
    ("DistilBERT on a T4", "--model distilbert-base-uncased --bs 16 --seq 256 --gpu t4", 0, ["Fits on t4"]),
    ("QLoRA of a 70B on an A100-80", "--model llama-3.1-70b --lora 16 --quantize nf4 --bf16 --seq 512 --checkpointing full --gpu a100-80gb", 0,
     ["Fits on a100-sxm4-80gb"]),
    ("Whisper large", "--model openai/whisper-large-v3 --bs 4 --fp16 --gpu rtx-4090", 0, ["Does NOT fit on rtx-4090", "memcalc --model openai/whisper-large-v3"]),
    ("flan-t5-xl", "--model google/flan-t5-xl --bf16 --gpu a100-40gb", 0, ["Does NOT fit", "memcalc --model google/flan-t5-xl"]),
    ("which optimizer saves most", "sweep --model gpt2-xl --bf16 --optimizer adamw,adamw-8bit,sgd,adafactor --gpu a100-40gb", 0, ["adafactor", "adamw-8bit"]),
    ("my own config.json", "--model {config} --bs 2 --gpu h100", 0, ["Fits on h100-sxm"]),
    ("what checkpointing costs", "sweep --model gpt2 --bs 8 --bf16 --checkpointing none,full --gpu h100", 0, ["full", "step"]),
    ("nvidia-smi against torch", "--model bert-large --bs 4 --fp16 --gpu h100", 0, ["torch.cuda.max_memory_reserved()", "nvidia-smi"]),
    ("a classifier head on an 8B", "--model llama-3.1-8b --task seqcls --lora 16 --bf16 --checkpointing full --gpu rtx-4090", 0, ["Fits on rtx-4090"]),
    ("a gate in CI", "--model llama-3.1-8b --bf16 --gpu t4 --require-fit", 1, ["Does NOT fit on t4"]),
    ("LoRA of an 8B on a 4090", "--model llama-3.1-8b --lora 16 --bf16 --seq 2048 --gpu rtx-4090", 0, ["Does NOT fit", "--checkpointing full"]),
    ("a 7B in full on two 4090 with offload",
     "--model mistral-7b --gpus 2 --parallel zero3 --offload-states host --offload-parameters host --bf16 --checkpointing full --seq 512 --gpu rtx-4090",
     0, ["rtx-4090", "host"]),
    ("FSDP of an 8B on eight A100", "--model llama-3.1-8b --gpus 8 --parallel fsdp --bf16 --seq 2048 --gpu a100-80gb", 0, ["Fits on a100-sxm4-80gb"]),
    ("ResNet-50 on an RTX 3060", "--model resnet50 --bs 64 --fp16 --gpu rtx-3060", 0, ["Fits on rtx-3060-12gb"]),
    ("a 7B on 1T tokens on 64 H100: days and dollars",
     "plan --model llama-2-7b --gpus 64 --nodes 8 --global-batch 512 --seq 4096 --bf16 --gpu h100 --tokens 1e12 --price 2.5", 0, ["days", "$"]),
    ("FP8 on an H100", "--model llama-3.1-8b --float8 tensorwise --compile --compile-parts layers --precision bf16 --loop bare --seq 2048 --gpu h100", 0,
     ["float8"]),
    ("LoRA of Mixtral on eight A100-40", "--model mixtral-8x7b --lora 16 --gpus 8 --parallel fsdp --loop bare --precision bf16 --seq 1024 --gpu a100-40gb", 0,
     ["a100-sxm4-40gb"]),
    ("why did I run out of memory", "--model gpt2-xl --bs 16 --fp16 --gpu a100-40gb --explain", 0, ["Does NOT fit", "activations"]),
    ("the largest model on 24 GB", "max-model --family llama --bs 1 --lora 16 --bf16 --seq 512 --gpu rtx-4090", 0, ["Largest model on rtx-4090"]),
    ("a MIG slice", "--model qwen2.5-1.5b --lora 8 --bf16 --seq 512 --gpu a100-mig-1g.10gb", 0, ["Fits on a100-80gb-mig-1g.10gb"]),
    ("a laptop of 8 GB", ["--model", "qwen2.5-1.5b", "--lora", "8", "--bf16", "--seq", "256", "--gpu", "RTX 4060 Laptop"], 0, ["rtx-4060-laptop"]),
    ("LoRA in bf16 on a T4", "--model llama-3.2-1b --lora 8 --bf16 --seq 512 --gpu t4 --details", 0, ["bfloat16 on t4: emulated"]),
    ("packing, real lengths",
     "--model llama-3.1-8b --loop trl-sft --lora 16 --lengths lognormal:300,0.7,2048,2000 --packing bfd --seq 2048 --bs 2 --steps 20 --gpu h100", 0,
     ["Fits on h100-sxm"]),
    ("ViT-L on four A100-40", "--model vit-large-patch16-224 --gpus 4 --bs 64 --fp16 --gpu a100-40gb", 0, ["Fits on a100-sxm4-40gb"]),
    ("a 13B on an MI300X", "--model llama-2-13b --bf16 --seq 4096 --gpu mi300x --details", 0, ["mi300x-192gb", "sdpa takes the flash kernel"]),
    ("an 8B at 128k on eight H100", "plan --model llama-3.1-8b --gpus 8 --global-batch 8 --seq 131072 --bf16 --gpu h100", 0, ["h100-sxm"]),
    ("a 405B on 128 GPUs", "plan --model llama-3.1-405b --gpus 128 --nodes 16 --global-batch 512 --seq 8192 --bf16 --gpu h100", 0, ["llama-3.1-405b"]),
    ("a LoRA of SDXL", "--model sdxl --lora 16 --image 1024 --checkpointing full --gpu rtx-3060", 0, ["Fits on rtx-3060"]),
    ("a LoRA of Flux on 16 GB", "--model flux.1-dev --lora 16 --image 1024 --checkpointing full --quantize nf4 --memory 16", 0, ["16.0 GiB"]),
    ("QLoRA of a 70B under FSDP on two cards of 24 GB",
     "--model llama-3.1-70b --lora 16 --quantize nf4 --gpus 2 --parallel fsdp --bf16 --checkpointing full --seq 512 --gpu rtx-3090", 0,
     ["rtx-3090", "4-bit shards on the host (FSDP2): needs 20.", "--quant-storage bf16", "--offload-parameters host"]),
]

# A question, what is typed, and what its one line says of what can be done instead.
REFUSED = [
    ("sentence-transformers' contrastive loss", "--model all-MiniLM-L6-v2 --task contrastive --bs 128 --seq 128", ["--loop sentence-transformer"]),
    ("my own nn.Module", "--model mymodule.py", ["from_module"]),
    ("a V100 with torch 2.4", "--model gpt2 --gpu v100 --torch 2.4", ["releases before 2.8.0", "accepted"]),
    ("DPO with a reference model", "--model llama-3.1-8b --task dpo --bf16", ["--task dpo: memcalc calls it --loop trl-dpo"]),
    ("DPO as a loop", "--model llama-3.1-8b --loop dpo --bf16", ["--loop dpo: memcalc calls it --loop trl-dpo"]),
    ("KTO's loss without its loop", "--model llama-3.1-8b --kto-loss kto", ["it belongs to TRL's KTOTrainer (--loop trl-kto)"]),
    ("GRPO with vLLM", "--model llama-3.1-8b --grpo --bf16", ["memcalc calls it --loop trl-grpo"]),
    ("PPO", "--model llama-3.1-8b --loop ppo --bf16", ["--loop trl-grpo and trl-rloo", "--new-tokens"]),
    ("some InternLM", "--model internlm2-8b", ["did you mean 'internlm2-7b'"]),
    ("some LLaMA", "--model llama", ["'memcalc models --search llama' lists"]),
    ("Qwen-VL", "--model Qwen/Qwen-VL-Plus", ["qwen2.5-vl-7b"]),
    ("pictures from SDXL", "--model sdxl --infer", ["sampling is not modelled"]),
    ("a 70B at 128k served on four H100", "--model llama-3.1-70b --infer --gpus 4 --tp 4 --seq 131072 --gpu h100", ["--gpus 1"]),
    ("on a Mac", "--model llama-3.1-8b --infer --gpu m3-max", ["--memory"]),
    ("a GGUF in Q4_K_M", "--model llama-3.1-8b --infer --quantize Q4_K_M", ["--quantize nf4"]),
    ("DeepSeek-V3 on eight H200", "--model deepseek-v3 --infer --gpus 8 --gpu h200", ["--gpus 1"]),
    ("four answers to each prompt", "--model llama-3.1-8b --infer --num-return-sequences 4", ["accepted: --sampling LIST, or --beams K"]),
    ("tensor parallelism by another name", "--model llama-3.1-8b --tp-size 4", ["memcalc calls it --tp"]),
    ("a card's memory with its unit", "--model gpt2 --memory 24GB", ["--memory: expected a number", "in GiB, found '24GB'"]),
    ("all but a layer frozen, by half its name", "--model gpt2 --freeze except:h.0", ["begins as except:h.0 says", "transformer.wte.weight"]),
    ("vLLM's KV tokens", "--model llama-3.1-8b --infer --gpu-memory-utilization 0.9", ["--infer --new-tokens"]),
]

CONFIG = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
          "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
          "time_step_limit": [0.0, math.inf]}  # which Python's json writes as Infinity


class Questions(unittest.TestCase):
    def test_there_are_40(self):
        self.assertGreaterEqual(len(ANSWERED) + len(REFUSED), 40)

    def test_those_of_a_modelled_step_are_answered(self):
        config = Path(self.enterContext(tempfile.TemporaryDirectory())) / "config.json"
        config.write_text(json.dumps(CONFIG))
        for question, typed, status, words in ANSWERED:
            with self.subTest(question):
                arguments = typed if isinstance(typed, list) else typed.format(config=config).split()
                begin = time.monotonic()
                process = run(*arguments)
                self.assertLess(time.monotonic() - begin, 60)
                self.assertEqual((process.returncode, process.stderr), (status, ""), process.stderr)
                answer = " ".join(process.stdout.split())
                for each in words: self.assertIn(each, answer)

    def test_the_others_are_refused_with_what_to_do_instead(self):
        for question, typed, words in REFUSED:
            with self.subTest(question):
                process = run(*typed.split())
                self.assertEqual((process.returncode, process.stdout), (2, ""), process.stderr)
                self.assertEqual(process.stderr.count("\n"), 1)
                for each in words: self.assertIn(each, process.stderr)


if __name__ == "__main__":
    memcalc_cli.main()
