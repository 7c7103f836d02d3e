"""Where other_programs.py's draw finds modules of libraries that were never measured, and how they are made: all types of transformers that
are no family of memcalc, torchaudio's networks, diffusers' networks that no script of its LoRA runs trains."""
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
LARGEST = 300e6  # parameters
TASKS = ("image", "segmentation", "ctc", "audio", "causal", "seq2seq", "mlm", "seqcls")  # the first that a type has
DEPTHS = "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers".split()
LISTS = ("layer_types", "mlp_layer_types", "layers_block_type")
LAYERS = 6
WAVES, FRAMES, TARGET = 16000, 400, 24


def squares(output, given): return output.float().square().mean()


def ctc(output, given):
    import torch
    scores = output if output.dim() == 3 else output[0]
    scores = scores.log_softmax(-1).transpose(0, 1)
    lengths = torch.full((scores.size(1),), scores.size(0), dtype=torch.long)
    return torch.nn.functional.ctc_loss(scores, given["y"], lengths, torch.full((scores.size(1),), TARGET, dtype=torch.long))


def last_first(output, given): return ctc(output.transpose(1, 2), given)
def first_of(output, given): return ctc(output[0], given)
def all_of(output, given): return sum(each.float().square().mean() for each in output)


# name: (what makes it, a batch's inputs: sizes behind the batch or a number of classes below which ids lie, its loss)
TORCHAUDIO = {
    "Wav2Letter": ("models.Wav2Letter(num_classes=40)", dict(x=(1, WAVES)), last_first),
    "DeepSpeech": ("models.DeepSpeech(80, n_class=40)", dict(x=(1, FRAMES, 80)), ctc),
    "Conformer": ("models.Conformer(80, 4, 256, 8, 31)", dict(input=(FRAMES, 80), lengths=FRAMES), lambda output, given: squares(output[0], given)),
    "ConvTasNet": ("models.conv_tasnet_base()", dict(input=(1, WAVES)), squares),
    "HDemucs": ("models.hdemucs_low(['drums', 'bass', 'other', 'vocals'])", dict(input=(2, 44100)), squares),
    "WaveRNN": ("models.WaveRNN([5, 5, 8], 256, 200)", dict(waveform=(1, 200 * 20), specgram=(1, 128, 24)), squares),
    "Emformer": ("models.Emformer(256, 4, 1024, 6, 16, right_context_length=4)", dict(input=(FRAMES + 4, 256), lengths=FRAMES), lambda output, given: squares(output[0], given)),
    "SquimObjective": ("models.squim_objective_base()", dict(x=(WAVES,)), all_of),
    "Wav2Vec2Base": ("models.wav2vec2_base(aux_num_out=32, encoder_layer_drop=0.0)", dict(waveforms=(5 * WAVES,)), first_of),
    "WavLMBase": ("models.wavlm_base(aux_num_out=32, encoder_layer_drop=0.0)", dict(waveforms=(5 * WAVES,)), first_of),
}

# diffusers: (the class's configuration, the edge of what it takes); all that a denoiser's script does not train
DIFFUSERS = {
    "VQModel": (dict(block_out_channels=[64, 128], layers_per_block=2, down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=3), 128),
    "AutoencoderTiny": ({}, 256),
    "AsymmetricAutoencoderKL": (dict(down_block_out_channels=[64, 128], up_block_out_channels=[64, 128], down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2), 128),
    "AutoencoderDC": (dict(encoder_block_out_channels=[64, 128, 256], decoder_block_out_channels=[64, 128, 256], encoder_layers_per_block=[2, 2, 2], decoder_layers_per_block=[2, 2, 2],
                           encoder_block_types=["ResBlock", "ResBlock", "EfficientViTBlock"], decoder_block_types=["ResBlock", "ResBlock", "EfficientViTBlock"], encoder_qkv_multiscales=[[], [], [5]],
                           decoder_qkv_multiscales=[[], [], [5]], decoder_norm_types="rms_norm", decoder_act_fns="silu", attention_head_dim=32), 128),
    "PixArtTransformer2DModel": (dict(num_attention_heads=8, attention_head_dim=48, cross_attention_dim=384, caption_channels=None, num_layers=8, sample_size=32), 32),
    "UNet2DModel": (dict(block_out_channels=[64, 128, 256], down_block_types=["DownBlock2D", "AttnDownBlock2D", "SkipDownBlock2D"], up_block_types=["SkipUpBlock2D", "AttnUpBlock2D", "UpBlock2D"]), 64),
    "Kandinsky3UNet": (dict(block_out_channels=[64, 128, 256, 256], groups=32, layers_per_block=2, cross_attention_dim=256, encoder_hid_dim=256), 64),
    "UVit2DModel": (dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1024, cond_embed_dim=256, encoder_hidden_size=256, block_out_channels=384, vocab_size=1024, codebook_size=1000, sample_size=32), 32),
    "DiTTransformer2DModel": (dict(num_layers=8, num_attention_heads=6, attention_head_dim=64, sample_size=32), 32),
    "Transformer2DModel": (dict(num_attention_heads=4, attention_head_dim=32, in_channels=64, num_layers=4, norm_num_groups=32), 32),
    "UNetMotionModel": (dict(block_out_channels=[64, 128, 128, 128], motion_num_attention_heads=4, cross_attention_dim=256), 32),
    "AutoencoderKLTemporalDecoder": (dict(block_out_channels=[64, 128], down_block_types=["DownEncoderBlock2D"] * 2), 64),
}


def torchaudio(name, batch, sources):
    import torch
    import torchaudio as library
    from memcalc.record import Variant
    text, inputs, loss = TORCHAUDIO[name]

    def example(batch):
        made = {key: torch.empty(batch, *size) if isinstance(size, tuple) else torch.full((batch,), size, dtype=torch.long) for key, size in inputs.items()}
        return made | ({"y": torch.arange(batch * TARGET).view(batch, TARGET) % 30 + 1} if loss in (ctc, last_first, first_of) else {})

    return sources.Source(lambda: eval(text, dict(models=library.models)), example, {"batch": batch}, [Variant("train")], name, "other", loss)


def diffusers(name, batch, sources):
    config, edge = DIFFUSERS[name]
    return sources.diffusers(name, config, batch=batch, image=edge)


def measured():
    """Names of what was measured or drawn before, of any library."""
    import gzip
    names, folder = set(), HERE.parent
    for path in [*HERE.glob("other_drawn_*.jsonl"), *HERE.glob("families_drawn_*.jsonl"), *HERE.glob("programs_drawn_*.jsonl")]:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            names |= {str(row.get("source", ["", ""])[1]), str(row.get("name")), str(row.get("model_type")), str(row.get("kind"))}
    with gzip.open(folder / "other_programs_h200.jsonl.gz", "rt") as lines: names |= {row["source"][1] for row in map(json.loads, lines) if "source" in row}
    for place in ("any_module", "drawn", "programs"):
        names |= {path.name.split(".")[0].removeprefix("timm-").removeprefix("diff-").removeprefix("seg-") for path in (folder / place).glob("*.json.gz")}
    for entry in json.loads((folder.parents[1] / "specs/programs/sources.json").read_text())["models"]:
        names |= {entry["model"] if isinstance(entry.get("model"), str) else "", (entry.get("config") or {}).get("model_type", "")}
    return names


def smaller(config):
    """Of a configuration's class what makes it as deep as LAYERS."""
    made = {key: LAYERS for key in DEPTHS if isinstance(getattr(config, key, None), int) and getattr(config, key) > LAYERS}
    return made | {key: getattr(config, key)[:LAYERS] for key in LISTS if isinstance(getattr(config, key, None), list)}


def of_transformers(chooser, wanted, but, sources):
    """`wanted`: how many with images and how many without."""
    import torch
    import transformers as library
    families = {path.name for path in (HERE.parents[2] / "lib/memcalc/families").iterdir()}
    left, found = dict(zip((True, False), wanted)), []
    types = sorted(name for name in library.CONFIG_MAPPING.keys() if name not in families and name.replace("-", "_") not in families and name not in but)
    chooser.shuffle(types)
    for name in types:
        if not any(left.values()): break
        kind = library.CONFIG_MAPPING[name]
        task = next((task for task in TASKS if kind in getattr(library, sources.TASKS[task][0])._model_mapping), None)
        if task is None or left[task in ("image", "segmentation")] == 0: continue
        try:
            config = smaller(kind())
            with torch.device("meta"): size = sum(p.numel() for p in getattr(library, sources.TASKS[task][0]).from_config(kind(**config)).parameters())
        except Exception as error:
            print(name, task, "has no default:", repr(error)[:90], flush=True)
            continue
        if size > LARGEST: continue
        left[task in ("image", "segmentation")] -= 1
        found.append(("transformers", name, task, config))
    return found
