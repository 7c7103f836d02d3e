"""Programs that memcalc does not bring along: models of timm, torchvision and transformers that are drawn from all there are, and
modules as a user writes them (own_modules.py, own_networks.py, own_users.py, own_layers.py). Each is recorded at one batch size, predicted at another, then measured by programs.py,
whose cases these are; "source" says what it is.

usage: other_programs.py draw SEED N OUT [--but CASES]                   N cases, a third of them own modules; none of CASES' (several)
       other_programs.py draw_others SEED N OUT [--own M]                N cases that were never measured, half with images (other_sources.py), and M own modules
       other_programs.py record CASES FOLDER [--part I/N] [--quick]                FOLDER/NAME.json.gz; what failed: FOLDER/NAME.failed
       other_programs.py predict MEMCALC CASES FOLDER OUT                batch sizes are halved until a run fits
"""
import argparse
import json
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path

from programs import GPU, LARGEST, LONGEST, OPTION, PRECISIONS, ROOT, lines_of, loaded

SHARES = (("own", 0.39), ("timm", 0.28), ("transformers", 0.25), ("torchvision", 0.08))
LARGEST_OF_TIMM = 100e6  # parameters
KEPT = ("convnext", "convnextv2", "deit", "densenet", "ecaresnet", "efficientnet", "eva02", "ghostnet", "inception", "mixer", "mnasnet",
        "mobilenetv2", "mobilenetv3", "mobilenetv4", "regnetx", "regnety", "resnest", "resnet", "resnetv2", "resnext", "seresnext",
        "swin", "tf", "vgg", "vit", "wide", "test", "gemma4", "qwen3", "deepseek", "naflexvit", "dm", "swinv2", "legacy")
TORCHVISION = ("alexnet", "googlenet", "squeezenet1_1", "shufflenet_v2_x1_0", "mnasnet1_3", "maxvit_t", "convnext_tiny", "swin_v2_t", "resnext50_32x4d",
               "regnet_y_1_6gf", "efficientnet_v2_s", "vit_b_32", "densenet161", "r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v2_s", "swin3d_t",
               "deeplabv3_resnet101", "fcn_resnet101",
               "regnet_x_400mf", "regnet_y_8gf", "mvit_v1_b", "swin3d_s", "vgg11_bn", "vgg13", "shufflenet_v2_x1_5", "squeezenet1_0", "resnext101_32x8d", "wide_resnet101_2", "efficientnet_b5")
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v2_s", "swin3d_t", "mvit_v1_b", "swin3d_s")
SOUND = dict(vocab_size=32, mask_time_prob=0.0, mask_feature_prob=0.0, layerdrop=0.0, ctc_loss_reduction="mean")
TRANSFORMERS = [("poolformer", "image", {}), ("levit", "image", {}), ("mobilevit", "image", {}), ("mobilevitv2", "image", {}), ("mobilenet_v1", "image", {}),
                ("efficientnet", "image", {}), ("regnet", "image", {}), ("resnet", "image", {}), ("bit", "image", {}), ("cvt", "image", {}), ("pvt", "image", {}),
                ("pvt_v2", "image", {}), ("focalnet", "image", {}), ("hiera", "image", {}), ("ijepa", "image", {}), ("vit_msn", "image", {}), ("swiftformer", "image", {}),
                ("data2vec-vision", "image", {}), ("dinov2_with_registers", "image", {}), ("mobilevit", "segmentation", {}), ("dpt", "segmentation", {}),
                ("wavlm", "ctc", SOUND), ("unispeech-sat", "ctc", SOUND), ("sew", "ctc", SOUND), ("sew-d", "ctc", SOUND), ("data2vec-audio", "ctc", SOUND),
                ("wav2vec2-conformer", "ctc", SOUND), ("unispeech", "ctc", SOUND), ("wavlm", "audio", SOUND),
                ("patchtst", "series", {}), ("patchtsmixer", "series", {}), ("autoformer", "series", {}), ("informer", "series", {}), ("time_series_transformer", "series", {}),
                ("ctrl", "causal", {}), ("xlnet", "causal", {}), ("reformer", "mlm", {}), ("funnel", "seqcls", {}), ("squeezebert", "seqcls", {}), ("mpnet", "seqcls", {}),
                ("layoutlm", "seqcls", {}), ("bigbird_pegasus", "seq2seq", {}), ("led", "seq2seq", {}), ("prophetnet", "seq2seq", {}), ("fnet", "seqcls", {}), ("yoso", "seqcls", {}),
                ("nystromformer", "seqcls", {}), ("canine", "seqcls", {}), ("rwkv", "causal", {}), ("xmod", "seqcls", dict(default_language="en_XX", languages=["en_XX"])),
                # Since seed 11021, of transformers 5.17; small ones of large models.
                ("hgnet_v2", "image", {}), ("pp_lcnet", "image", {}), ("vit_mae", "image", {}), ("pixio", "image", {}), ("dinat", "image", {}), ("vivit", "image", {}), ("timesformer", "image", {}),
                ("videomae", "image", {}), ("textnet", "image", {}), ("imagegpt", "image", {}), ("perceiver", "image", {}), ("upernet", "segmentation", {}), ("beit", "segmentation", {}),
                ("mobilebert", "mlm", {}), ("convbert", "mlm", {}), ("megatron-bert", "mlm", dict(num_hidden_layers=6)), ("roc_bert", "mlm", {}), ("flaubert", "mlm", {}), ("luke", "mlm", {}), ("mra", "mlm", {}),
                ("esmc", "mlm", {}), ("ibert", "seqcls", {}), ("jina_embeddings_v3", "mlm", dict(num_hidden_layers=6)), ("eurobert", "mlm", dict(num_hidden_layers=6)),
                ("blenderbot", "seq2seq", dict(encoder_layers=2, decoder_layers=4, d_model=1024, encoder_ffn_dim=4096, decoder_ffn_dim=4096, encoder_attention_heads=16, decoder_attention_heads=16)), ("plbart", "seq2seq", {}), ("longt5", "seq2seq", {}), ("switch_transformers", "seq2seq", {}), ("fsmt", "seq2seq", {}), ("nllb-moe", "seq2seq", dict(encoder_layers=2, decoder_layers=2)),
                ("t5gemma", "seq2seq", {}), ("umt5", "seq2seq", {}),
                ("doge", "causal", {}), ("helium", "causal", dict(num_hidden_layers=6)), ("nanochat", "causal", {}), ("xlstm", "causal", dict(num_hidden_layers=4, hidden_size=512)), ("recurrent_gemma", "causal", dict(num_hidden_layers=6, hidden_size=1024, num_attention_heads=8, intermediate_size=3072, vocab_size=32000)),
                ("codegen", "causal", dict(n_layer=6, n_embd=1024)), ("biogpt", "causal", dict(num_hidden_layers=6)), ("xglm", "causal", dict(num_layers=6)), ("openai-gpt", "causal", {}), ("zamba2", "causal", dict(num_hidden_layers=6, hidden_size=1024, layers_block_type=["mamba", "mamba", "hybrid"] * 2)),
                ("granitemoeshared", "causal", dict(hidden_size=768, intermediate_size=1024, num_hidden_layers=6)), ("jetmoe", "causal", dict(num_hidden_layers=4, hidden_size=1024, kv_channels=64, num_key_value_heads=8)), ("bitnet", "causal", dict(num_hidden_layers=6, hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_key_value_heads=4)), ("blt", "causal", {}),
                ("falcon_mamba", "causal", dict(num_hidden_layers=4, hidden_size=768)), ("persimmon", "causal", dict(num_hidden_layers=4, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, vocab_size=32000)), ("gpt_bigcode", "causal", dict(n_layer=6)),
                ("wav2vec2-bert", "ctc", dict(vocab_size=32, num_hidden_layers=6, layerdrop=0.0)), ("seamless_m4t", "seq2seq", {}), ("timesfm", "series", {})]


# ---- what a case is made of -----------------------------------------------------------------------------------------
def series_of(kind, sources, batch):
    """A forecaster of transformers with what its data loader gives."""
    import torch
    import transformers
    classes = {"patchtst": "PatchTST", "patchtsmixer": "PatchTSMixer", "autoformer": "Autoformer", "informer": "Informer", "time_series_transformer": "TimeSeriesTransformer"}
    class_of = getattr(transformers, classes[kind] + "ForPrediction")
    patched = kind.startswith("patch")
    settings = dict(context_length=512, prediction_length=96, num_input_channels=7) if patched else dict(
        context_length=96, prediction_length=24, lags_sequence=[1, 2, 3, 4, 5, 6, 7], num_time_features=4, d_model=64, input_size=1)
    config = class_of.config_class(**settings)

    def example(batch):
        if patched: return {"past_values": torch.empty(batch, 512, 7), "future_values": torch.empty(batch, 96, 7)}
        past = 96 + 7
        return {"past_values": torch.empty(batch, past), "past_time_features": torch.empty(batch, past, 4), "past_observed_mask": torch.ones(batch, past),
                "future_values": torch.empty(batch, 24), "future_time_features": torch.empty(batch, 24, 4)}

    from memcalc.record import Variant
    return sources.Source(lambda: class_of(config), example, {"batch": batch}, [Variant("train")], kind, "other")


def source_of(case, sources):
    """What is recorded: a Source of memcalc.record."""
    import torch
    from memcalc.record import Variant
    library, name, batch = *case["source"][:2], case["recorded_batch"]
    if library == "own":
        known = own_modules()[name]
        return sources.Source(known["kind"], known["kind"].inputs, {"batch": batch}, [Variant("train")], name, "other")
    if library in ("diffusers", "torchaudio"):
        import other_sources
        return getattr(other_sources, library)(name, batch, sources)
    if library == "timm": return sources.timm(name, batch=batch)
    if library == "torchvision":
        if name not in VIDEO: return sources.torchvision(name, batch=batch)
        import torchvision
        def example(batch): return {"x": torch.empty(batch, 3, 16, 112 if name[0] in "rm" and "vit" not in name else 224, 112 if name[0] in "rm" and "vit" not in name else 224), "y": torch.zeros(batch, dtype=torch.long)}
        def loss(output, given): return torch.nn.functional.cross_entropy(output, given["y"])
        return sources.Source(lambda: torchvision.models.get_model(name, weights=None), example, {"batch": batch}, [Variant("train")], name, "image", loss)
    task, config = case["source"][2:]
    if task == "series": return series_of(name, sources, batch)
    import transformers
    made = transformers.AutoConfig.for_model(name, **config)
    return sources.transformers(made, task, batch=batch, sequence=256, target=40 if task == "ctc" else 64)


# ---- drawn, recorded, predicted -------------------------------------------------------------------------------------
def of_timm(chooser, count, but):
    import timm
    import torch
    groups = {}
    for name in timm.list_models(): groups.setdefault(name.split("_")[0], []).append(name)
    known = {name.split("_")[0] for name in but}
    names = [name for name in groups if not name.startswith(KEPT) and name not in known]
    chooser.shuffle(names)
    found = []
    for group in names:
        if len(found) == count: break
        name = chooser.choice(groups[group])
        try:
            with torch.device("meta"): size = sum(p.numel() for p in timm.create_model(name).parameters())
        except Exception: size = 0  # made with numbers: 1 to 50 million
        if size <= LARGEST_OF_TIMM: found.append(("timm", name))
    return found


def own_modules():
    from own_modules import OWN
    import own_networks  # noqa: F401  adds to them
    import own_users  # noqa: F401
    import own_layers  # noqa: F401
    return OWN


def case_of(seed, i, source, recorded, chooser, precisions):
    factor, prec = chooser.choice([0.5, 1, 1.5, 2, 3, 4, 5]), chooser.choice(precisions)
    case = dict(id=f"other-{seed}-{i}-{source[1]}", name=source[1].replace("/", "-"), source=list(source), recorded_batch=recorded, prec=prec,
                batch=max(1, int(recorded * factor)), optimizer=chooser.choice(["adamw", "adamw", "adamw", "adamw-fused", "sgd", "adam"]),
                clip=chooser.random() < 0.25)
    print(case["id"], case["prec"], case["batch"], case["optimizer"], case["clip"], flush=True)
    return case


WHOLE_NETWORKS = ["fp32", "fp32", "amp-bf16", "amp-bf16", "amp-bf16", "amp-fp16", "bf16"]


def draw_others(a):
    """Of what was never measured: of images a fifth of transformers, a quarter of torchvision, the rest of timm; of others a fifth each of torchaudio
    and diffusers, the rest of transformers."""
    import other_sources
    sources, but, chooser, half = loaded(ROOT / "scripts/record_programs", "record_programs").recorder(), other_sources.measured(), random.Random(a.seed), a.n // 2
    of_torchvision, of_sound, of_diffusers = (round(share * half) for share in (0.25, 0.2, 0.2))
    import torchvision
    networks = [name for name in torchvision.models.list_models() if name not in but and "detection" not in torchvision.models.get_model_builder(name).__module__
                and not name.startswith(("quantized", "raft", "vit_h", "vit_l", "regnet_y_128gf"))]
    drawn = [("torchvision", name) for name in chooser.sample(networks, of_torchvision)]
    some = other_sources.of_transformers(chooser, (half // 5, half - of_sound - of_diffusers), but, sources)
    drawn += of_timm(chooser, half - of_torchvision - half // 5, but) + some
    drawn += [("torchaudio", name) for name in chooser.sample(sorted(set(other_sources.TORCHAUDIO) - but), of_sound)]
    drawn += [("diffusers", name) for name in chooser.sample(sorted(set(other_sources.DIFFUSERS) - but), of_diffusers)]
    OWN = own_modules()
    drawn += [("own", name) for name in chooser.sample(sorted(set(OWN) - but), a.own)]
    precisions = {"torchaudio": ["fp32", "amp-bf16", "amp-fp16"], "own": ["fp32", "fp32", "amp-bf16", "amp-bf16", "amp-fp16"]}
    batches = {"diffusers": 4} | {name: known["batch"] for name, known in OWN.items()}
    cases = [case_of(a.seed, i, source, batches.get(source[1 if source[0] == "own" else 0], 8), chooser, precisions.get(source[0], WHOLE_NETWORKS)) for i, source in enumerate(drawn)]
    Path(a.out).write_text("".join(json.dumps(case) + "\n" for case in cases))


def draw(a):
    OWN, chooser, drawn = own_modules(), random.Random(a.seed), []
    but = {case["source"][1] for path in a.but for case in lines_of(path)}
    counts = {library: round(share * a.n) for library, share in SHARES}
    drawn += [("own", name) for name in chooser.sample(sorted(set(OWN) - but), counts["own"])]
    drawn += of_timm(chooser, counts["timm"], but)
    drawn += [("transformers", *each) for each in chooser.sample([each for each in TRANSFORMERS if each[0] not in but], counts["transformers"])]
    drawn += [("torchvision", name) for name in chooser.sample([each for each in TORCHVISION if each not in but], counts["torchvision"])]
    cases = []
    for i, source in enumerate(drawn):
        recorded = OWN[source[1]]["batch"] if source[0] == "own" else 8
        precisions = WHOLE_NETWORKS if source[0] != "own" else ["fp32", "fp32", "amp-bf16", "amp-bf16", "amp-fp16"]
        cases.append(case_of(a.seed, i, source, recorded, chooser, precisions))
    Path(a.out).write_text("".join(json.dumps(case) + "\n" for case in cases))


def record(a):
    warnings.simplefilter("ignore")
    sources = loaded(ROOT / "scripts/record_programs", "record_programs").recorder()
    part, parts = map(int, a.part.split("/"))
    Path(a.folder).mkdir(parents=True, exist_ok=True)
    for case in lines_of(a.cases)[part::parts]:
        path = Path(a.folder, case["name"] + ".json.gz")
        if path.exists(): continue
        began = time.time()
        try:
            source = source_of(case, sources)
            if a.quick:  # what is measured alone: in train mode, as eager mode runs it, at other batch sizes
                source.variants, source.not_compiled = [each for each in source.variants if each.mode == "train"], "not asked"
                for symbol in source.symbols.keys() - {"batch"}: source.fixed.setdefault(symbol, "not asked")
            program = source.record(case["name"])
            program.save(path)
            print(case["name"], round(time.time() - began, 1), "s; opaque:", program.to_dict().get("opaque"), {key: value.get("reason") for key, value in program.to_dict()["symbols"].items() if value.get("fixed")}, flush=True)
        except BaseException as error:
            import traceback
            path.with_name(case["name"] + ".failed").write_text(traceback.format_exc())
            print(case["name"], round(time.time() - began, 1), "s FAILED", type(error).__name__, str(error)[:300], flush=True)


def predict(a):
    import gzip
    told = []
    for case in lines_of(a.cases):
        path = Path(a.folder, case["name"] + ".json.gz")
        if not path.exists():
            told.append(case | {"blind": {"refused": "not recorded: " + path.with_name(case["name"] + ".failed").read_text().strip()[-400:]}})
            continue
        symbols = {key: value["default"] for key, value in json.loads(gzip.decompress(path.read_bytes()))["symbols"].items()}
        while True:
            case["options"] = ["--optimizer", case["optimizer"], *(["--clip-grad", "1"] if case["clip"] else [])]
            case["symbols"] = symbols | {"batch": case["batch"]}
            precision = PRECISIONS.get(case["prec"]) or ["--precision", "amp-fp16", "--weights-dtype", "fp32"]
            sizes = [word for key, value in symbols.items() if key in OPTION and key != "image" for word in (OPTION[key], str(value))]
            words = ["--model", str(path), "--gpu", GPU, "--loop", "bare", "--bs", str(case["batch"]), "--no-remedies", *precision, *case["options"], *sizes, "--format", "json"]
            answer = subprocess.run([a.memcalc, *words], capture_output=True, text=True)
            if answer.returncode > 1:
                case["blind"] = {"refused": answer.stderr.strip()}
                break
            report = json.loads(answer.stdout)
            case["blind"] = {"allocated": report["memory"]["peak_allocated_bytes"], "reserved": report["memory"]["peak_reserved_bytes"],
                             "step_ms": 1e3 * (report.get("time") or {}).get("step_seconds", 0)}
            if case["batch"] == 1 or case["blind"]["reserved"] <= LARGEST / 3 and case["blind"]["step_ms"] <= 1e3 * LONGEST / 3: break
            case["batch"] = max(1, case["batch"] // 2)
        told.append(case)
        print(case["id"], case["prec"], case["batch"], case["blind"].get("refused", "")[:200] or [round(case["blind"][key] / 2**20) for key in ("allocated", "reserved")] + [round(case["blind"]["step_ms"], 1)], flush=True)
    Path(a.out).write_text("".join(json.dumps(case) + "\n" for case in told))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function, names in ((draw, ("seed", "n", "out")), (draw_others, ("seed", "n", "out")), (record, ("cases", "folder")), (predict, ("memcalc", "cases", "folder", "out"))):
        command = commands.add_parser(function.__name__)
        for name in names: command.add_argument(name, type=int if name in ("seed", "n") else str)
        if function is draw: command.add_argument("--but", action="append", default=[])
        if function is draw_others: command.add_argument("--own", type=int, default=0)
        if function is record:
            command.add_argument("--part", default="0/1")
            command.add_argument("--quick", action="store_true")
        command.set_defaults(call=function)
    a = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    a.call(a)


if __name__ == "__main__": main()
