"""memcalc.record: sounds in texts, and images in texts that their class finds by a token before them. Needs PyTorch."""
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
from record_test import Variant, record, transformers  # noqa: E402, also where the extension is not built

TEXT = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=500)


def source_of(kind, task, sequence, **values):
    import transformers as library
    from memcalc.record import _sources

    return _sources.transformers(library.AutoConfig.for_model(kind, **values), task, batch=2, sequence=sequence)


@transformers
def test_a_sound_takes_as_many_places_as_its_encoder_leaves_of_30_seconds():
    source = source_of("voxtral", "audio-text", 400, audio_token_id=24, text_config=dict(TEXT, head_dim=16),
                       audio_config=dict(hidden_size=32, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_mel_bins=16))
    made = source.example(**source.symbols)
    assert made["input_features"].shape == (2, 16, 3000)
    assert ((made["input_ids"] == 24).sum(1) == 375).all()
    source.variants = source.variants[:1]
    content = source.record().to_dict()
    assert "image" not in content["symbols"] and content["symbols"]["sequence"]["minimum"] == 377
    assert "fixed" not in content["symbols"]["batch"] and content["task"] == "causal"


@transformers
def test_places_are_the_number_that_the_class_counts():
    """Qwen3-ASR: thirty chunks of a second pass three convolutions each by itself. Its class compares features and places."""
    source = source_of("qwen3_asr", "audio-text", 420, text_config=dict(TEXT, model_type="qwen3", vocab_size=152000, head_dim=16),
                       audio_config=dict(d_model=32, encoder_ffn_dim=64, encoder_layers=1, encoder_attention_heads=2, output_dim=64,
                                         num_mel_bins=16, downsample_hidden_size=8))
    made = source.example(**source.symbols)
    assert made["input_features_mask"].shape == (2, 3000) and ((made["input_ids"] == 151676).sum(1) == 390).all()
    source.variants = source.variants[:1]
    assert source.record().to_dict()["opaque"] == []


@transformers
def test_of_an_unknown_model_with_sound_it_is_said():
    with pytest.raises(ValueError, match="qwen2_5_omni_thinker: how its processor puts sounds"):
        source_of("qwen2_5_omni_thinker", "audio-text", 900)


@transformers
def test_a_token_stands_before_the_image_where_the_class_looks_for_one():
    source = source_of("qwen2_5_omni_thinker", "image-text", 300, vision_start_token_id=151652,
                       text_config=dict(TEXT, vocab_size=152064),
                       vision_config=dict(depth=1, hidden_size=32, num_heads=2, intermediate_size=64, out_hidden_size=64),
                       audio_config=dict(d_model=32, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=64, output_dim=64))
    ids = source.example(**source.symbols)["input_ids"]
    assert (ids[:, 0] == 151652).all() and (ids[:, 1:257] == 151655).all() and (ids[:, 257:] != 151655).all()


class Expands(torch.nn.Module):
    """Counts with a mask that has been made as wide as values are which nobody knows, and sizes by tensors on the card."""

    def forward(self, x, ids):
        mask = (ids == 3).unsqueeze(-1).expand_as(x)
        side = torch.tensor([2, 4], device=x.device)
        rows = torch.arange(4, device=x.device).view(-1, 1).expand(-1, side[1])
        return x[mask].sum() + rows.sum() + torch.tensor([x.sum().max(), x.mean()], device=x.device).sum()


def test_of_the_other_tensor_expand_as_takes_the_shape_alone():
    ids = torch.tensor([[3, 3, 1, 3]])
    body = record(Expands(), {"x": torch.zeros(1, 4, 8), "ids": ids}, variants=[Variant()]).to_dict()["functions"][0]["body"]
    taken = next(call for call in body if call[0] == "call" and call[1] == "torch.Tensor.__getitem__" and len(call) > 5)
    assert taken[5][0][0] == [{"n": "24*batch"}], "three of four places, eight wide"
    assert any(call[1] == "torch.Tensor.__index__" for call in body if call[0] == "call"), "the host reads the size"
