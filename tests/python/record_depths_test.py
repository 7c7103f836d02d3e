"""memcalc.record of deep models: what is recorded of few layers and stretched is what a recording of all of them gives."""
import pytest
from record_test import record, torch, transformers  # noqa: F401 (skips where there is no PyTorch)

from memcalc.record import _program, _stretch, _transfer

TEXT = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)
DEEP = {
    "llama": dict(TEXT, num_hidden_layers=11),
    "gemma3_text": dict(TEXT, num_hidden_layers=32, head_dim=16, sliding_window=32),  # five layers that slide, one that does not
    "deepseek_v3": dict(TEXT, num_hidden_layers=17, first_k_dense_replace=2, num_key_value_heads=4, moe_intermediate_size=32,
                        n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1, kv_lora_rank=16, q_lora_rank=16,
                        qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8),
}


class Watched:
    """What `_stretched` returns."""

    def __init__(self, monkeypatch):
        self.made, inner = [], _program._stretched
        monkeypatch.setattr(_program, "_stretched", lambda *args: self.made.append(inner(*args)) or self.made[-1])


@transformers
@pytest.mark.parametrize("kind", DEEP)
def test_a_deep_model_is_recorded_of_few_layers(kind, monkeypatch):
    import transformers as library
    from memcalc.record import _sources

    watched = Watched(monkeypatch)
    source = _sources.transformers(library.AutoConfig.for_model(kind, **DEEP[kind]), "causal", batch=2, sequence=64)
    source.variants, source.precisions, source.symbols = source.variants[:1], ("float32",), {"batch": 2}
    stretched = source.record("deep").to_json()
    assert watched.made[0] is not None, "its layers were not found to repeat"
    source.depths = None
    assert stretched == source.record("deep").to_json()
    assert len(watched.made) == 1


class Layer(torch.nn.Module):
    def __init__(self, twice):
        super().__init__()
        self.linear, self.twice = torch.nn.Linear(8, 8), twice

    def forward(self, x): return self.linear(x).relu() if self.twice else self.linear(x)


class Deep(torch.nn.Module):
    def __init__(self, count, twice=lambda i: False):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(Layer(twice(i))) for i in range(count))

    def forward(self, x):
        for layer in self.layers: x = layer(x)
        return x.sum()


@pytest.mark.parametrize("of_depth, stretches", [
    (lambda count: Deep(count), True),
    (lambda count: Deep(count, lambda i: i % 2 == 1), True),
    (lambda count: Deep(count, lambda i: i in (3, 4, 9)), False),     # no period
    (lambda count: Deep(count, lambda i: count != 16), False),        # few layers are other ones
])
def test_any_module_that_is_made_with_fewer_layers(of_depth, stretches, monkeypatch):
    watched = Watched(monkeypatch)
    depths = _stretch.Depths(16, lambda left_out, first: lambda: of_depth(16 - left_out))
    arguments = dict(symbols={"batch": ["x.0"]}, loss=lambda out: out, precisions=("float32",))
    stretched = record(lambda: of_depth(16), {"x": torch.zeros(4, 8)}, depths=depths, **arguments).to_json()
    assert (watched.made[0] is not None) == stretches
    assert stretched == record(lambda: of_depth(16), {"x": torch.zeros(4, 8)}, **arguments).to_json()


def test_numbers_and_items_go_on_as_they_began():
    assert _stretch.grown([9, 2, 4], [11, 2, 4, 6], 3) == [17, 2, 4, 6, 8, 10, 12]
    assert _stretch.grown({"a": "layers.3.w"}, {"a": "layers.4.w"}, 2) == {"a": "layers.6.w"}
    with pytest.raises(_stretch.Mismatch): _stretch.grown([1.5], [2.5], 1)
    with pytest.raises(_stretch.Mismatch): _stretch.grown(["a", "b"], ["a", "c", "b"], 1)
    assert _stretch.plan_of([0, 0, 1, 1, 1, 1, 1, 1, 2]) == _stretch.Plan(9, 2, 1, 1)
    assert _stretch.plan_of([0, 1, 2, 3, 4, 5, 6, 7]) is None


def test_a_further_period_has_its_place_in_the_one_before():
    assert _transfer._aligned(list("abcbcd"), list("abcbcbcd")) == [0, 1, 2, 3, 4, 3, 4, 5]
    between = "fghijklmnopqrstuvwxyz"
    one, two = "abcbcd" + between + "ede", "abcbcbcd" + between + "edede"
    places = _transfer._aligned(list(one), list(two))
    assert "".join(one[place] for place in places) == two and places[-4:] == [28, 29, 28, 29]
    assert _transfer._aligned(list("abcbcd"), list("abcbcxcd")) is None
