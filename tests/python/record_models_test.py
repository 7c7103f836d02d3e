"""memcalc.record of models of transformers and torchvision. Needs PyTorch and these."""
import functools
import gzip
import json

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
from record_test import _solve, calls_of, check_lifetimes, check_schema, of_eager_mode, record, recording, transformers  # noqa: E402, also where the extension is not built

TINY = {
    "bert": ("seqcls", dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128)),
    "gpt2": ("causal", dict(n_embd=64, n_layer=4, n_head=4)),
    "llama": ("causal", dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                             intermediate_size=128, vocab_size=1000)),
    "t5": ("seq2seq", dict(d_model=64, num_layers=4, num_heads=4, d_kv=16, d_ff=128)),
    "vit": ("image", dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128)),
}


@functools.lru_cache(maxsize=None)  # several tests look at the same program
def of_transformers(name, variants=None, **changed):
    import transformers as library
    from memcalc.record import _sources

    task, values = TINY[name]
    source = _sources.transformers(library.AutoConfig.for_model(name, **{**values, **changed}), task, batch=8, sequence=128)
    return record(source.make, source.example, symbols=source.symbols, task=source.task, loss=source.loss,
                  variants=source.variants if variants is None else source.variants[:variants], name=source.name)


@transformers
@pytest.mark.parametrize("name", TINY)
def test_a_program_of_transformers_is_sound(name):
    program = of_transformers(name, variants=2 if name == "t5" else None)  # all of T5's take minutes
    content = program.to_dict()
    check_lifetimes(content)
    check_schema(content)
    fixed = [symbol for symbol, found in content["symbols"].items() if "fixed" in found]
    assert not content["opaque"] and fixed == (["image"] if name == "vit" else [])  # ViT refuses other images
    layers = [made for f in content["functions"] for made in f["body"] if made[0] == "layers"]
    assert layers, "equal layers are one instruction"
    assert {item["dtype"] for item in content["inputs"]} <= {"int64", "weights"}


@transformers
def test_the_calls_of_a_bert_are_those_of_its_source():
    """One layer: three projections, views and transpositions, attention, and the two halves with their norms."""
    content = of_transformers("bert").to_dict()
    names = [made[1].rsplit(".", 1)[-1] for made in content["functions"][0]["body"] if made[0] == "call"]
    assert names == ["linear", "view", "transpose"] * 3 + [
        "scaled_dot_product_attention", "transpose", "contiguous", "reshape", "contiguous",
        "linear", "dropout", "add", "layer_norm", "linear", "gelu", "linear", "dropout", "add", "layer_norm"]
    assert calls_of(content, content["forwards"][0]["function"]) == 4 * len(names) + 11 + 3 + 2 + 3  # embeddings, pooler, head, loss


@transformers
def test_construction_is_in_the_order_of_registration():
    """RoBERTa's __init__ makes its position embeddings behind the norm and the buffers; a tied decoder is made too."""
    import transformers as library
    from memcalc.record import _sources

    config = library.AutoConfig.for_model("roberta", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    source = _sources.transformers(config, "mlm", batch=8, sequence=64)
    content = record(source.make, source.example, symbols=source.symbols, variants=source.variants[:1], name="roberta").to_dict()
    check_schema(content)
    names = [item["name"] for item in content["construction"] if "name" in item]
    place = {name.rsplit("roberta.embeddings.", 1)[-1]: i for i, name in enumerate(names)}
    assert place["LayerNorm.bias"] < place["position_ids"] < place["token_type_ids"] < place["position_embeddings.weight"]
    assert "lm_head.decoder.weight" in names and "lm_head.decoder.weight" in content["tied"]


def reached(content, function):
    """The names of the calls of one run of the function, layers and all."""
    for made in content["functions"][function]["body"]:
        if made[0] == "call": yield made[1]
        if made[0] in ("layer", "layers"): yield from reached(content, made[1])


@transformers
def test_a_t5_knows_of_caches_checkpointing_and_the_type_of_its_weights():
    """Its decoder's configuration is a copy; its position bias needs a gradient under checkpointing; its norms look."""
    content = of_transformers("t5", variants=2).to_dict()
    assert content["caches_in_trainer"]
    uncached = [f for f in content["forwards"] if not f["cache"] and "checkpointing" not in f]
    assert all("past_key_values" in f["outputs"] for f in content["forwards"] if f["cache"])
    assert uncached and all("past_key_values" not in f["outputs"] for f in uncached)
    told = [f for f in content["forwards"] if f.get("checkpointing")]
    assert told and all("torch.Tensor.requires_grad_" in reached(content, f["function"]) for f in told)
    assert all("torch.Tensor.requires_grad_" not in reached(content, f["function"]) for f in uncached)
    assert {p for f in content["forwards"] for p in f["precisions"]} == {*_solve.PRECISIONS, "autocast_bfloat16"}
    assert not any("held" in f for f in content["forwards"])


@transformers
def test_clip_returns_its_loss_in_training():
    import transformers as library
    from memcalc.record import _sources

    tower = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    config = library.CLIPConfig(text_config=dict(tower, vocab_size=100), vision_config=dict(tower, image_size=64, patch_size=16))
    config.architectures = ["CLIPModel"]
    source = _sources.transformers(config, batch=4, sequence=20)
    content = record(source.make, source.example, symbols=source.symbols, task=source.task, variants=source.variants,
                     maxima=source.maxima, sizes=source.sizes).to_dict()
    assert content["task"] == "contrastive"
    assert [i["name"] for i in content["inputs"]] == ["input_ids", "pixel_values", "attention_mask"]
    assert [("loss" in f["outputs"]) for f in content["forwards"]] == [f["mode"] == "train" for f in content["forwards"]]
    assert "fixed" in content["symbols"]["image"] and "fixed" not in content["symbols"]["sequence"]


def vision_language(kind, text=None, vision=None, **values):
    import transformers as library
    from memcalc.record import _sources

    tower = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4)
    config = library.AutoConfig.for_model(kind, text_config={**tower, "num_key_value_heads": 2, "vocab_size": 500, **(text or {})},
                                          vision_config={**tower, "image_size": 56, "patch_size": 14, **(vision or {})}, **values)
    return _sources.transformers(config, "image-text", batch=2, sequence=96, images=2, image=56)


@transformers
def test_images_stand_in_the_text_as_their_processor_puts_them():
    source = vision_language("gemma3", dict(model_type="gemma3_text", head_dim=16), dict(model_type="siglip_vision_model"),
                             image_token_index=400, mm_tokens_per_image=16)
    made = source.example(**source.symbols)
    assert made["pixel_values"].shape == (4, 3, 56, 56)
    assert ((made["input_ids"] == 400).sum(1) == 32).all()
    assert torch.equal(made["token_type_ids"], (made["input_ids"] == 400).long())
    source.variants = source.variants[:1]
    symbols = source.record().to_dict()["symbols"]
    assert symbols["sequence"] == {"default": 96, "minimum": 35}  # rotary positions have no greatest length
    assert "fixed" not in symbols["batch"] and symbols["image"]["fixed"]


@transformers
def test_patches_of_all_images_are_one_list():
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 3, 3])
    source = vision_language("qwen2_5_vl", dict(rope_parameters=rope), dict(depth=2, num_heads=4, out_hidden_size=64),
                             image_token_id=400, vision_start_token_id=401)
    made = source.example(**source.symbols)
    assert made["pixel_values"].shape == (4 * 16, 3 * 2 * 14 * 14)
    assert made["image_grid_thw"].tolist() == [[1, 4, 4]] * 4
    assert ((made["input_ids"] == 400).sum(1) == 8).all()  # two by two patches each
    source.variants = source.variants[:1]
    content = source.record().to_dict()
    assert content["symbols"]["batch"]["fixed"] and "fixed" not in content["symbols"]["sequence"]
    assert "torch.Tensor.tolist" in reached(content, content["forwards"][0]["function"])


@transformers
def test_equal_layers_are_stored_once():
    sizes = [len(gzip.compress(of_transformers("llama", variants=1, num_hidden_layers=n).to_json().encode(), mtime=0))
             for n in (6, 12)]
    assert abs(sizes[1] - sizes[0]) < 200 and sizes[1] < 6000


@transformers
def test_a_cache_lives_on_behind_its_layer():
    content = of_transformers("llama").to_dict()
    cached, without = [f for f in of_eager_mode(content) if f["mode"] == "train" and f["inputs"] == ["input_ids", "labels"]]
    assert cached["cache"] and not without["cache"]
    assert "past_key_values" in cached["outputs"] and "past_key_values" not in without["outputs"]
    (kept,) = cached["outputs"]["past_key_values"]
    assert kept["count"] == 4 and len(kept["first"]) == 2


@transformers
def test_data_types_follow_the_precision():
    """LLaMA's norm works in float32 and goes back to its input's type: under autocast that is float32 too."""
    text = of_transformers("llama").to_json()
    assert '["call","torch.Tensor.to",[{"v":0},{"d":"float32"}]' in text
    assert '{"d":"weights"}' in text


@transformers
def test_a_mask_is_answered_and_said():
    """The mask of the example pads its first sequence, as memcalc's --padding means it."""
    content = of_transformers("bert").to_dict()
    assert [(a["policy"], a["where"].split(":")[0]) for a in content["assumptions"]] == [("example_values", "masking_utils.py")]


def test_resnet_of_torchvision():
    pytest.importorskip("torchvision", reason="no torchvision here: recording its models is not tested", exc_type=ImportError)
    from memcalc.record import _sources

    source = _sources.torchvision("resnet50", batch=8)
    content = record(source.make, source.example, loss=source.loss, symbols=source.symbols, variants=source.variants).to_dict()
    check_lifetimes(content)
    check_schema(content)
    names = [made[1] for f in content["functions"] for made in f["body"] if made[0] == "call"]
    assert names.count("torch.nn.functional.cross_entropy") == 2  # training and evaluation
    function = content["forwards"][0]["function"]
    assert calls_of(content, function) == 53 * 3 + 49 + 16 + 5  # convolution, count, norm; relu; add; pool, mean, flatten, linear, loss


@transformers
def test_the_command_writes_a_program(tmp_path):
    from memcalc.record.__main__ import main

    config = tmp_path / "tiny.json"
    config.write_text(json.dumps({"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}))
    assert main(["--hf", str(config), "--task", "mlm", "--sequence", "64", "-o", str(tmp_path / "tiny.json.gz")]) == 0
    content = json.loads(gzip.decompress((tmp_path / "tiny.json.gz").read_bytes()))
    assert content["name"] == "tiny" and content["symbols"]["sequence"]["default"] == 64
