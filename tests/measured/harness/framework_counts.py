#!/usr/bin/env python3
"""Asks the frameworks themselves about every model of specs/models: parameters and FLOPs, on tensors without data.

    framework_counts.py > tests/measured/framework_counts.tsv      torch 2.11, transformers 5.17, torchvision 0.26; no GPU
    framework_counts.py MODEL ...                                  rows of these models
    framework_counts.py --parameters MODEL TASK                    the names and shapes behind one row

A row: model, task, tensors, parameters, hash of their names and shapes in the order of module.parameters() (FNV-1a of
"name shape\\n" lines), then FLOPs of torch.utils.flop_counter for the forward and the backward pass of a batch of 2
(sequences of 64 tokens and 48 labels, or images of the trained size) with eager attention. torch's counter leaves out the
groups of a convolution in its backward pass (a comment of its conv_backward_flop says so) and grouped_mm; they are put
right here.
"""
import json
import math
import sys
from pathlib import Path

import torch
import torch.fx.experimental._config
import torchvision
import transformers
from torch.utils.flop_counter import FlopCounterMode

SPECS = Path(__file__).resolve().parents[3] / "specs/models"
AUTO = {"seqcls": "SequenceClassification", "mlm": "MaskedLM", "tokcls": "TokenClassification", "causal": "CausalLM",
        "seq2seq": "Seq2SeqLM", "speech": "SpeechSeq2Seq", "image": "ImageClassification", "contrastive": ""}
ENCODERS = ("bert", "roberta", "electra", "distilbert", "albert", "camembert", "deberta-v2", "modernbert", "mpnet", "nomic_bert", "xlm-roberta")
EXPERTS = ("deepseek_v2", "deepseek_v3", "gpt_oss", "mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "glm4_moe", "ernie4_5_moe", "minimax_m2", "kimi_k2",
           "qwen3_next", "qwen3_5_moe_text", "lfm2_moe", "granitemoe", "granitemoehybrid",
           "glm4_moe_lite", "qwen3_vl_moe", "gemma4_text", "dots1", "deepseek_v32", "deepseek_v4", "minimax_m3_vl_text", "kimi_linear", "glm_moe_dsa", "hy_v3", "deepseek_ocr2_text",
           "mimo_v2_flash", "minimax", "hunyuan_v1_moe", "jamba", "mistral4")  # grouped_mm takes no other type than bfloat16
IMAGES_AND_TEXT = ("llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "paligemma", "internvl", "mistral3")  # counted without images, which tensors without data do not have
TASKS = {"t5": "seq2seq", "mt5": "seq2seq", "bart": "seq2seq", "mbart": "seq2seq", "pegasus": "seq2seq", "m2m_100": "seq2seq", "marian": "seq2seq", "whisper": "speech", "vit": "image", "deit": "image",
         "clip": "contrastive"}
BUILT_AS = {"kimi_k2": "deepseek_v3"}  # classes of the checkpoint's own, which are those
# Of these no program was compared as a classifier, or transformers has none.
CAUSAL_ALONE = ("granite", "smollm3", "seed_oss", "olmo", "olmo3", "ministral3", "mistral3", "glm", "glm4", "exaone4", "hunyuan_v1_dense", "ernie4_5",
                "starcoder2", "stablelm", "cohere", "cohere2", "qwen2_moe", "olmoe", "glm4_moe", "minimax_m2", "kimi_k2", "gptj", "ernie4_5_moe",
                "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "lfm2", "lfm2_moe", "nemotron_h", "granitemoe", "granitemoehybrid",
                "apertus", "falcon", "bloom", "mpt", "glm4_moe_lite", "gemma4_text", "gemma4_unified_text", "arcee", "youtu", "dots1",
                "falcon_h1", "llama4_text", "mllama_text_model", "deepseek_v32", "deepseek_v4", "minimax_m3_vl_text", "kimi_linear", "glm_moe_dsa", "hy_v3", "deepseek_ocr2_text", "mamba",
                "mimo_v2_flash", "minimax", "muse_glimmer_text", "minicpm3", "nemotron", "hunyuan_v1_moe", "jamba", "bamba", "gemma3n_text", "mistral4")
REWARDS = {"qwen2_reward": "qwen2", "internlm2_reward": "llama"}  # classes of the checkpoints' own on these decoders
BATCH, SEQUENCE, LABELS = 2, 64, 48


def tasks_of(model_type):
    if model_type in REWARDS: return ("seqcls",)
    if model_type in ENCODERS: return "seqcls", "mlm", "tokcls"
    if model_type in CAUSAL_ALONE + IMAGES_AND_TEXT: return ("causal",)
    return (TASKS[model_type],) if model_type in TASKS else ("causal", "seqcls")


# The next class is none of transformers': whether experts may be chosen it finds by the word @use_experts_implementation here.
def text_of_deepseek_ocr2(settings):
    """DeepseekOcr2TextModel with the head of DeepSeek-V2; transformers has it inside its model of images alone."""
    from transformers.models.deepseek_ocr2.modeling_deepseek_ocr2 import DeepseekOcr2TextModel, DeepseekOcr2TextPreTrainedModel

    class DeepseekOcr2TextForCausalLM(DeepseekOcr2TextPreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.model, self.vocab_size = DeepseekOcr2TextModel(config), config.vocab_size
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.post_init()

        forward = transformers.DeepseekV2ForCausalLM.forward

    return DeepseekOcr2TextForCausalLM._from_config(settings, attn_implementation="eager", dtype=torch.bfloat16)


def text_of_muse_glimmer(settings):
    """MuseGlimmerTextModel where MuseGlimmerForConditionalGeneration has it, below that class's head."""
    from transformers.models.muse_glimmer.modeling_muse_glimmer import MuseGlimmerPreTrainedModel, MuseGlimmerTextModel

    class Around(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.language_model = MuseGlimmerTextModel(config)

    class MuseGlimmerTextForCausalLM(MuseGlimmerPreTrainedModel):
        _can_set_experts_implementation_cached_value = False  # it has none; else the word above is found

        def __init__(self, config):
            super().__init__(config)
            self.model = Around(config)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

        def forward(self, input_ids, labels):
            logits = self.lm_head(self.model.language_model(input_ids=input_ids).last_hidden_state)
            return transformers.modeling_outputs.CausalLMOutput(loss=self.loss_function(logits, labels, self.config.vocab_size))

    return MuseGlimmerTextForCausalLM._from_config(settings, attn_implementation="eager", dtype=torch.float32)


def reward_model(model_type, config):
    """transformers' classifier on the decoder; Qwen's has two layers for its score (vLLM, model_executor/models/qwen2_rm.py)."""
    settings = transformers.AutoConfig.for_model(REWARDS[model_type], **config)
    settings.pad_token_id, settings.problem_type = 0, "single_label_classification"
    model = transformers.AutoModelForSequenceClassification.from_config(settings, attn_implementation="eager", dtype=torch.float32)
    width, labels = settings.hidden_size, settings.num_labels
    if model_type == "qwen2_reward":
        model.score = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, labels))
    return model


def build(config, task):
    config = dict(config)
    model_type = config.pop("model_type")
    for key in ("encoder_layerdrop", "decoder_layerdrop"):  # drawn at random: here a step that skips no layer
        if key in config: config[key] = 0
    model_type = BUILT_AS.get(model_type, model_type)
    with torch.device("meta"):
        if config.get("architecture") == "swin_l":  # torchvision has the class alone
            return torchvision.models.SwinTransformer([4, 4], 192, [2, 2, 18, 2], [6, 12, 24, 48], [7, 7],
                                                      stochastic_depth_prob=0.2)
        if model_type == "torchvision": return torchvision.models.get_model(config["architecture"])
        if "torch_dtype" in config: config["dtype"] = config.pop("torch_dtype")
        if model_type == "deepseek_ocr2_text":  # its config.json says how many dense layers come first
            dense = config.pop("first_k_dense_replace", 0)
            config["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (config["num_hidden_layers"] - dense)
        if model_type in REWARDS: return reward_model(model_type, config)
        settings = transformers.AutoConfig.for_model(model_type, **config)
        if task == "seqcls" and settings.pad_token_id is None: settings.pad_token_id = 0  # a decoder's classifier needs it
        if model_type in ("t5", "mt5"): settings.decoder_start_token_id = 0  # as in the published configs
        auto = getattr(transformers, "AutoModelFor" + AUTO[task]) if AUTO[task] else transformers.AutoModel
        if model_type == "mllama_text_model":  # no Auto class knows this configuration
            return transformers.MllamaForCausalLM._from_config(settings, attn_implementation="eager", dtype=torch.float32)
        if model_type == "mistral4":
            return transformers.models.mistral4.Mistral4ForCausalLM._from_config(settings, attn_implementation="eager", dtype=torch.bfloat16)
        if model_type == "deepseek_ocr2_text": return text_of_deepseek_ocr2(settings)
        if model_type == "muse_glimmer_text": return text_of_muse_glimmer(settings)
        if model_type in IMAGES_AND_TEXT: auto = transformers.AutoModelForImageTextToText
        has_experts = model_type in EXPERTS or (model_type == "nemotron_h" and "n_routed_experts" in config)
        dtype = torch.bfloat16 if has_experts else torch.float32
        model = auto.from_config(settings, attn_implementation="eager", dtype=dtype)
        if model_type in ("t5", "mt5") and not config["tie_word_embeddings"]:
            # from_pretrained() leaves the head apart where the checkpoint holds one, as those of this kind do.
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
        return model


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode(): value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def lines_of(model):
    return [f"{name} {','.join(map(str, p.shape))}\n" for name, p in model.named_parameters()]


def loss_of(config, model, task):
    ids = lambda length: torch.zeros(BATCH, length, dtype=torch.long, device="meta")
    if isinstance(model, transformers.PreTrainedModel):
        if task == "image":
            size = model.config.image_size
            return model(pixel_values=torch.empty(BATCH, 3, size, size, device="meta"), labels=ids(1)[:, 0]).loss
        if task == "contrastive":
            size = model.config.vision_config.image_size
            pixels = torch.empty(BATCH, 3, size, size, device="meta")
            return model(input_ids=ids(SEQUENCE), pixel_values=pixels, return_loss=True).loss
        if task == "speech":
            frames = 2 * model.config.max_source_positions
            features = torch.empty(BATCH, model.config.num_mel_bins, frames, device="meta")
            return model(input_features=features, labels=ids(LABELS)).loss
        if task == "seq2seq": return model(input_ids=ids(SEQUENCE), labels=ids(LABELS)).loss
        labels = ids(1)[:, 0] if task == "seqcls" else ids(SEQUENCE)
        return model(input_ids=ids(SEQUENCE), labels=labels).loss
    size = config.get("image_size", 224)
    logits = model(torch.empty(BATCH, 3, size, size, device="meta"))
    return torch.nn.functional.cross_entropy(logits, ids(1)[:, 0])


def convolution_backward(grad_out, x, weight, _bias, _stride, _padding, _dilation, transposed, _output_padding, _groups,
                         output_mask, out_shape):
    """For each gradient as many as the forward pass takes: weight is [out, in / groups, ...]."""
    assert not transposed
    forward = 2 * grad_out[0] * math.prod(weight) * math.prod(grad_out[2:])
    return forward * (output_mask[0] + output_mask[1])


# It reads numbers, which tensors on the meta device do not have.
transformers.PreTrainedModel.warn_if_padding_and_no_attention_mask = lambda *_: None
torch.fx.experimental._config.meta_nonzero_assume_all_nonzero = True  # DeBERTa v2 leaves out labels below 0

def grouped_product(a, b, *_, out_shape=None, **__):
    """torch's counter has none: whatever rows each group takes, [m, k] x [g, k, n], or for the weights' gradient
    [k, m] x [m, n]."""
    assert len(a) == 2
    return 2 * a[0] * a[1] * b[-1]


COUNTER = {"display": False, "custom_mapping": {torch.ops.aten.convolution_backward: convolution_backward,
                                                torch.ops.aten._grouped_mm: grouped_product}}


def flops_of(config, model, task):
    model.train()
    with FlopCounterMode(**COUNTER) as forward: loss = loss_of(config, model, task)
    with FlopCounterMode(**COUNTER) as backward: loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def main():
    if sys.argv[1:2] == ["--parameters"]:
        name, task = sys.argv[2:4]
        spec = json.loads((SPECS / f"{name}.json").read_text())
        return print("".join(lines_of(build(spec["config"], task))), end="")
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}, torchvision {torchvision.__version__}; "
          "written by tests/measured/harness/framework_counts.py")
    print("model\ttask\ttensors\tparameters\tnames\tflops_forward\tflops_backward")
    for path in sorted(SPECS.glob("*.json")):
        spec = json.loads(path.read_text())
        if len(sys.argv) > 1 and spec["name"] not in sys.argv[1:]: continue
        config = spec["config"]
        if "program" in config: continue
        for task in ("image",) if config["model_type"] == "torchvision" else tasks_of(config["model_type"]):
            model = build(config, task)
            lines = lines_of(model)
            parameters = sum(p.numel() for p in model.parameters())
            flops = flops_of(config, model, task)
            print(spec["name"], task, len(lines), parameters, f"{fnv(''.join(lines)):016x}", *flops, sep="\t", flush=True)


if __name__ == "__main__":
    main()
