"""What to record for a model of a library: how it is made, its inputs, its variants."""
from __future__ import annotations

import functools
import inspect
import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterable

import torch

from ._denoising import DENOISING, EDITING, ONE_FRAME, VAE_SCALE, encode_pixels
from ._ltx import PROMPT_TOKENS as LTX
from ._ltx import inputs as ltx_inputs
from ._ltx import squares as ltx_loss
from ._pictures import pictures
from ._program import Program, record
from ._recordings import Variant
from ._solve import PRECISIONS
from ._sounds import sounds
from ._stretch import Depths, depths_of
from ._targets import TARGETS, answers

# transformers' Auto class for a task, and what its labels are.
TASKS = {
    "causal": ("AutoModelForCausalLM", "tokens"), "mlm": ("AutoModelForMaskedLM", "tokens"),
    "seqcls": ("AutoModelForSequenceClassification", "class"), "tokcls": ("AutoModelForTokenClassification", "tags"),
    "qa": ("AutoModelForQuestionAnswering", "spans"),
    "seq2seq": ("AutoModelForSeq2SeqLM", "target"), "image": ("AutoModelForImageClassification", "class"),
    "segmentation": ("AutoModelForSemanticSegmentation", "pixels"), "speech": ("AutoModelForSpeechSeq2Seq", "target"),
    "ctc": ("AutoModelForCTC", "target"), "contrastive": ("AutoModel", "pairs"),
    "image-text": ("AutoModelForImageTextToText", "tokens"), "audio": ("AutoModelForAudioClassification", "class"),
    "audio-text": ("AutoModelForMultimodalLM", "tokens"), "captions": ("AutoModelForImageTextToText", "target"),
}
SPANS = ("start_positions", "end_positions")  # of answers in a text
_ENDINGS = (("ForSequenceClassification", "seqcls"), ("ForTokenClassification", "tokcls"), ("ForMaskedLM", "mlm"),
            ("ForQuestionAnswering", "qa"), ("ForImageClassification", "image"), ("ForSemanticSegmentation", "segmentation"),
            ("ForCTC", "ctc"), ("ForObjectDetection", "detection"), ("ForUniversalSegmentation", "masks"), ("ForAudioClassification", "audio"),
            ("ForSpeechSeq2Seq", "speech"), ("ForCausalLM", "causal"), ("LMHeadModel", "causal"))


@dataclass
class Source:
    """The arguments of `record`."""

    make: Callable[..., Any]
    example: Callable[..., dict[str, Any]]
    symbols: dict[str, int]
    variants: list[Variant]
    name: str
    task: str
    loss: Callable[..., Any] | None = None
    sizes: dict[str, list[Any]] = field(default_factory=dict)
    maxima: dict[str, int] = field(default_factory=dict)
    minima: dict[str, int] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    multiples: dict[str, int] = field(default_factory=dict)
    policies: dict[str, Any] = field(default_factory=dict)
    step: Callable[..., Any] | None = None  # a loop's own calls around the module
    precisions: tuple[str, ...] = PRECISIONS
    depths: Depths | None = None
    not_compiled: str = ""

    def record(self, name: str | None = None) -> Program:
        return record(self.make, self.example, loss=self.loss, symbols=self.symbols, task=self.task, variants=self.variants,
                      name=name or self.name, sizes=self.sizes, maxima=self.maxima, minima=self.minima, fixed=self.fixed,
                      policies=self.policies, multiples=self.multiples, step=self.step, precisions=self.precisions,
                      depths=self.depths, not_compiled=self.not_compiled)


def task_of(class_name: str, model_type: str = "") -> str | None:
    for ending, task in _ENDINGS:
        if class_name.endswith(ending): return task
    if class_name in ("CLIPModel", "SiglipModel", "Siglip2Model", "AltCLIPModel", "ChineseCLIPModel"): return "contrastive"
    if class_name.endswith("ForConditionalGeneration"): return "speech" if model_type == "whisper" else "seq2seq"
    return None


def transformers(config: Any, task: str | None = None, *, batch: int = 8, sequence: int = 512, target: int | None = None,
                 image: int | None = None, images: int = 1, name: str | None = None, attention: str | None = None) -> Source:
    """`config`: a configuration, or what names one: a hub id, a config.json, a folder. `images`: of each text."""
    import transformers as library

    if isinstance(config, (str, Path)):
        path = Path(config)
        if path.suffix == ".json" and path.exists():
            values = json.loads(path.read_text())
            name = name or path.stem
            config = library.AutoConfig.for_model(values.pop("model_type"), **values)
        else:
            name = name or str(config)
            config = library.AutoConfig.from_pretrained(str(config))
    architecture = (getattr(config, "architectures", None) or [None])[0]
    if task is None: task = task_of(architecture, config.model_type) if architecture else None
    if task == "seq2seq" and hasattr(config, "vision_config"): task = "image-text"
    if task is None: raise ValueError(f"{config.model_type}: the configuration names no architecture; say which task")
    if task in TARGETS: return _targeted(config, task, batch=batch, target=target, image=image, name=name)
    auto, labels = TASKS[task]
    make_class = getattr(library, auto)
    extra = {"attn_implementation": attention} if attention else {}

    def maker(config: Any) -> Callable[[torch.dtype], torch.nn.Module]:
        def make(dtype: torch.dtype) -> torch.nn.Module: return make_class.from_config(config, **_of_type(dtype), **extra)
        return make

    kind = make_class._model_mapping[type(config)]
    kind = kind[0] if isinstance(kind, (tuple, list)) else kind
    forward = set(inspect.signature(kind.forward).parameters)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = int(getattr(text, "vocab_size", 0) or 1000)
    maximum = getattr(text, "max_position_embeddings", None)
    if isinstance(maximum, int) and maximum > 0: sequence = min(sequence, maximum)
    if task in ("seq2seq", "speech", "captions"):
        for key in ("pad_token_id", "decoder_start_token_id"):
            if getattr(config, key, None) is None: setattr(config, key, 0)
    symbols = {"batch": batch}
    reads = kind.main_input_name == "input_ids" or task == "audio-text"
    # A spectrogram of any length (Parakeet, whose last label is the padding; Canary, whose encoder is Parakeet's); Whisper's has one.
    is_frames = kind.main_input_name == "input_features" and (task == "ctc" or task == "speech" and hasattr(config, "encoder_config"))
    bins = getattr(getattr(config, "encoder_config", config), "num_mel_bins", None) or getattr(config, "feature_projection_input_dim", 80)
    if reads or is_frames: symbols["sequence"] = sequence
    if labels == "target": symbols["target"] = min(target or sequence, getattr(text, "max_target_positions", None) or 1 << 30)
    vision = getattr(config, "encoder", config) if task == "captions" else getattr(config, "vision_config", config)
    edge = image or getattr(vision, "image_size", None) or 224
    edge = edge if isinstance(edge, int) else edge[0]
    shown = pictures(config, kind, images, image) if task == "image-text" else sounds(config, kind, images) if task == "audio-text" else None
    if shown is not None:
        if shown.edge: edge, symbols["image"] = shown.edge, shown.edge
        least = shown.all_tokens + 8
        if sequence < least: raise ValueError(f"{shown.all_tokens} places for images or sounds: a sequence of {sequence} is too short")
    is_pixels = kind.main_input_name == "pixel_values"
    channels = getattr(vision, "num_channels", 3)
    if is_pixels or labels == "pairs": symbols["image"] = edge
    # Trainer.model_accepts_loss_kwargs
    counts = getattr(kind, "accepts_loss_kwargs", any(p.kind is p.VAR_KEYWORD
                                                      for p in inspect.signature(kind.forward).parameters.values()))
    eos = getattr(text, "eos_token_id", None)

    def example(batch: int = batch, sequence: int = sequence, target: int = 0, image: int = edge) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(0)
        low = min(5, vocabulary - 1)
        ids = torch.randint(low, vocabulary, (batch, sequence), generator=draw)
        if task == "seqcls" and isinstance(eos, int) and eos < vocabulary:
            ids = torch.where(ids == eos, torch.full_like(ids, low), ids)
            ids[:, -1] = eos
        if shown is not None:  # each image or sound behind a token, then the text
            ids = torch.where(ids >= min(low + 1000, shown.token_id), torch.full_like(ids, low), ids)
            for start in range(1, shown.all_tokens, shown.tokens + 1):
                ids[:, start:start + shown.tokens] = shown.token_id
                if shown.start_id is not None: ids[:, start - 1] = shown.start_id
        made: dict[str, Any]
        if is_pixels: made = {"pixel_values": torch.empty(batch, channels, image, image)}
        elif is_frames:
            made = {"input_features": torch.empty(batch, sequence, bins),
                    "attention_mask": torch.ones(batch, sequence, dtype=torch.long)}
            made["attention_mask"][-1, -sequence // 8:] = 0  # its processor pads to the longest
        elif kind.main_input_name == "input_features" and not reads:
            frames = 2 * getattr(config, "max_source_positions", 1500)
            made = {"input_features": torch.empty(batch, getattr(config, "num_mel_bins", 80), frames)}
        elif hasattr(config, "num_mel_bins") and kind.main_input_name == "input_values":  # a spectrogram
            made = {"input_values": torch.empty(batch, config.max_length, config.num_mel_bins)}
        elif kind.main_input_name == "input_values": made = {"input_values": torch.empty(batch, 80000)}
        else: made = {"input_ids": ids}
        if labels == "pairs": made["pixel_values"] = torch.empty(batch, channels, image, image)  # of each text one
        if shown is not None:
            made.update(shown.tensors(batch, sequence))
            if shown.types: made[shown.types] = (ids == shown.token_id).long()
        if "attention_mask" in forward and "input_ids" in made:
            made["attention_mask"] = torch.ones_like(ids)
            made["attention_mask"][0, -1] = 0  # memcalc passes a mask where sequences are padded
        if labels == "pairs": return made
        if labels == "spans": return {**made, **{where: torch.zeros(batch, dtype=torch.long) for where in SPANS}}
        made["labels"] = {"tokens": lambda: ids.clone(), "class": lambda: torch.zeros(batch, dtype=torch.long),
                          "tags": lambda: torch.zeros(batch, sequence, dtype=torch.long),
                          "pixels": lambda: torch.zeros(batch, image, image, dtype=torch.long),
                          "target": lambda: torch.randint(low, vocabulary - is_frames, (batch, target), generator=draw)}[labels]()
        # The Trainer's count of the tokens that have a label, for models whose loss divides by it.
        if counts: made["num_items_in_batch"] = torch.tensor(made["labels"].numel())
        return made

    names = list(example(**symbols))
    mask = "" if is_frames else "attention_mask"  # of frames it is always given
    plain = [n for n in names if n not in (mask, "num_items_in_batch")]
    given = [[n for n in names if n not in without] for without in (
        (mask, "num_items_in_batch"), ("num_items_in_batch",), (mask,), ())]
    given = [g for i, g in enumerate(given) if g not in given[:i]]
    caches: list[dict[str, bool]] = [{"cache": True}, {"cache": False}] if hasattr(text, "use_cache") and (
        "use_cache" in forward or "past_key_values" in forward) else [{}]

    def variant(mode: str, cache: dict[str, bool], inputs: list[str]) -> Variant:
        arguments = {"return_loss": True} if labels == "pairs" and mode == "train" else {}
        return Variant(mode, cache, inputs, arguments, {"use_cache": cache["cache"]} if cache else {})

    variants = [variant("train", cache, inputs) for inputs in given for cache in caches]
    variants += [variant("eval", caches[0], inputs) for inputs in given if "num_items_in_batch" not in inputs]
    # Without labels a decoder of its own has no input.
    if labels not in ("target", "pairs"): variants.append(variant("eval", caches[0], [n for n in plain if n not in ("labels", *SPANS)]))
    maxima = {"sequence": maximum} if isinstance(maximum, int) and maximum > 0 and "sequence" in symbols else {}
    source = Source(maker(config), example, symbols, variants, name or config.model_type, task, sizes=_edges(edge), maxima=maxima,
                    depths=depths_of(config, maker))
    if shown is not None:
        source.task = "causal"  # what is trained is the text
        source.policies = shown.policies
        source.fixed, source.minima = {"image": shown.reason} if shown.edge else {}, {"sequence": shown.all_tokens + 1}
        text = sequence - shown.all_tokens
        source.sizes["sequence"] = [shown.all_tokens + n for n in (_prime(text * 2 // 3), _prime(text * 2 // 5), _prime(text * 5 // 4))]
    return source


def _of_type(dtype: torch.dtype) -> dict[str, Any]:
    """The argument of from_config() that says the weights' type."""
    import transformers as library

    return {"dtype" if tuple(int(n) for n in library.__version__.split(".")[:2]) >= (4, 56) else "torch_dtype": dtype}


def _targeted(config: Any, task: str, *, batch: int, target: int | None, image: int | None, name: str | None) -> Source:
    """A model whose labels are made within the step (_targets.py)."""
    import transformers as library

    known = TARGETS[task]
    make_class, edge = getattr(library, known.auto), image or known.image
    symbols = {"batch": batch, "image": edge} | ({"target": target or known.target} if known.target else {})
    kind = make_class._model_mapping[type(config)]
    takes = inspect.signature((kind[0] if isinstance(kind, (tuple, list)) else kind).forward).parameters
    if any(name not in takes for name in known.given):
        raise ValueError(f"{config.model_type}: the task {task} is of models that take {', '.join(known.given)}")

    def make(dtype: torch.dtype) -> torch.nn.Module: return make_class.from_config(config, **_of_type(dtype))
    def example(batch: int, image: int, target: int = 0) -> dict[str, Any]: return known.inputs(batch, target, image)

    variants = [Variant("train", precisions=known.precisions), Variant("eval", inputs=list(known.given))]
    return Source(make, example, symbols, variants, name or config.model_type, known.task, sizes={"image": _others(known.sizes, edge)} if known.sizes else _edges(edge),
                  fixed=dict(known.fixed), step=known.step, not_compiled=known.not_compiled)


def _prime(least: int) -> int:
    """The first prime from `least` on."""
    while least < 2 or any(least % d == 0 for d in range(2, int(least**0.5) + 1)): least += 1
    return least


def _others(sizes: Iterable[int], default: int) -> list[int]:
    """The first three sizes that are not the example's."""
    return [n for n in sizes if n != default][:3]


def _edges(edge: int) -> dict[str, list[list[int]]]:
    """Further edges of images: multiples of 32, as most architectures need; else any, enough of them to find what padding of
    odd ones adds; else larger ones, where small images are made larger first."""
    larger = [n for n in (352, 416, 288, 480, 608, 736) if n > edge][:3]
    choices = [[n for n in (160, 352, 288, 224) if n != edge][:3], [173, 277, 350, 211, 403, 318, 246, 385, 231]]
    return {"image": choices + ([larger] if len(larger) == 3 else [])}


def _classifier(make: Callable[..., torch.nn.Module], name: str, batch: int, edge: int, channels: int = 3,
                pixels: bool = False, given_as: str = "x") -> Source:
    def example(batch: int, image: int) -> dict[str, Any]:
        labels = (batch, image, image) if pixels else (batch,)
        return {given_as: torch.empty(batch, channels, image, image), "y": torch.zeros(labels, dtype=torch.long)}

    def loss(output: Any, given: dict[str, Any]) -> Any:
        scores = output["out"] if isinstance(output, dict) else output  # torchvision's networks of segmentation
        return torch.nn.functional.cross_entropy(scores, given["y"])

    return Source(make, example, {"batch": batch, "image": edge}, [Variant("train"), Variant("eval")], name, "image", loss,
                  _edges(edge))


def timm(name: str, *, batch: int = 32, image: int | None = None) -> Source:
    import timm as library

    if not library.is_model(name): raise ValueError(f"timm {library.__version__} has no model {name}")
    settings = library.get_pretrained_cfg(name)
    edge = image or (settings.input_size[-1] if settings is not None else 224)
    return _classifier(lambda: library.create_model(name), name, batch, edge)


def torchvision(name: str, *, batch: int = 32, image: int | None = None) -> Source:
    import torchvision as library

    make = library.models.get_model_builder(name)
    if ".detection" in make.__module__: return _detector(name, batch, image or 800)
    options = {"weights": None}
    if "weights_backbone" in inspect.signature(make).parameters: options["weights_backbone"] = None
    pixels = "segmentation" in make.__module__
    return _classifier(lambda: make(**options), name, batch, image or (299 if name == "inception_v3" else 224), pixels=pixels,
                       given_as="input" if name.startswith("lraspp") else "x")


def _detector(name: str, batch: int, edge: int, objects: int = 8) -> Source:
    """A detector as it is made of a backbone that has been trained before: of a ResNet three stages train, their norms do not; of
    VGG-16 four of five parts; of MobileNet all."""
    policies = answers(name, objects, batch)

    def make() -> torch.nn.Module:
        from torchvision.models import mobilenet_v3_large, resnet50, vgg16
        from torchvision.models.detection import _utils, anchor_utils, backbone_utils, faster_rcnn, fcos, mask_rcnn, retinanet, ssd, ssdlite
        from torchvision.ops import FrozenBatchNorm2d
        from torchvision.ops.feature_pyramid_network import LastLevelP6P7

        if name.startswith("ssd300"):
            boxes = anchor_utils.DefaultBoxGenerator([[2], [2, 3], [2, 3], [2, 3], [2], [2]], scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
                                                     steps=[8, 16, 32, 64, 100, 300])
            return ssd.SSD(ssd._vgg_extractor(vgg16(weights=None), False, 4), boxes, (300, 300), 91)
        if name.startswith("ssdlite320"):
            norm = functools.partial(torch.nn.BatchNorm2d, eps=0.001, momentum=0.03)
            backbone = ssdlite._mobilenet_extractor(mobilenet_v3_large(weights=None, norm_layer=norm, reduced_tail=True), 6, norm)
            boxes = anchor_utils.DefaultBoxGenerator([[2, 3] for _ in range(6)], min_ratio=0.2, max_ratio=0.95)
            head = ssdlite.SSDLiteHead(_utils.retrieve_out_channels(backbone, (320, 320)), boxes.num_anchors_per_location(), 91, norm)
            return ssd.SSD(backbone, boxes, (320, 320), 91, head=head, image_mean=[0.5] * 3, image_std=[0.5] * 3)
        if "rcnn" in name:
            backbone = backbone_utils._resnet_fpn_extractor(resnet50(weights=None, norm_layer=FrozenBatchNorm2d), 3)
            return (mask_rcnn.MaskRCNN if name.startswith("mask") else faster_rcnn.FasterRCNN)(backbone, 91)
        kind = retinanet.RetinaNet if name.startswith("retinanet") else fcos.FCOS
        backbone = resnet50(weights=None, norm_layer=FrozenBatchNorm2d)
        return kind(backbone_utils._resnet_fpn_extractor(backbone, 3, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256)), 91)

    def example(batch: int, image: int) -> dict[str, Any]:
        boxes = torch.tensor([0.0, 0.0, 32.0, 32.0]).expand(batch, objects, 4).contiguous()
        return {"images": torch.empty(batch, 3, image, image), "boxes": boxes, "labels": torch.ones(batch, objects, dtype=torch.long),
                **({"masks": torch.ones(batch, objects, image, image, dtype=torch.uint8)} if name.startswith("mask") else {})}

    def step(module: Any, given: dict[str, Any]) -> Any:
        keys = [key for key in given if key != "images"]
        targets = [dict(zip(keys, each)) for each in zip(*(given[key].unbind() for key in keys))]
        losses = module(list(given["images"].unbind()), targets)
        return {"loss": sum(losses.values()), **losses}

    fixed = {"batch": "the loss goes through the images one by one", "image": "its transform resizes images to one size"}
    return Source(make, example, {"batch": batch, "image": edge}, [Variant("train", precisions=("float32", "autocast"))], name, "detection",
                  fixed=fixed, policies=policies, step=step, precisions=("float32", "autocast"),
                  not_compiled="left out: its loss breaks the graph for each image")


def ultralytics(name: str, *, batch: int = 16, image: int | None = None, target: int = 8) -> Source:
    """A YOLO detector by the name of its YAML, in train mode."""
    from ._yolo import parts as yolo

    edge = image or 640
    return Source(symbols={"batch": batch, "image": edge, "target": target}, name=name, task="detection",
                  variants=[Variant("train", precisions=("float32", "autocast"))], not_compiled="left out: its loss breaks the graph", **yolo(name, edge))


def _squares(output: Any, given: dict[str, Any]) -> Any:
    """A loss in which nothing but the prediction takes part, in float32."""
    predicted = output.sample if hasattr(output, "sample") else output[0]
    return torch.nn.functional.mse_loss(predicted.float(), given["noise"].float())


def denoising(name: str, config: dict[str, Any] | None = None, *, batch: int = 1, image: int | None = None, edits: bool = False) -> Source:
    """A training step of diffusers' LoRA scripts around a network by its class. `image`: pixels of its side. `edits`: beside the
    image another as large, from which it is made."""
    import diffusers as library

    kind, known = getattr(library, name), (EDITING if edits else DENOISING)[name]
    if known.pipeline: getattr(library, known.pipeline)  # is imported here: what modules make as they are imported is no call of a step
    values = {key: p.default for key, p in inspect.signature(kind.__init__).parameters.items() if key != "self"} | (config or {})

    def example(batch: int, image: int, sequence: int) -> dict[str, Any]: return known.inputs(values, batch, image // VAE_SCALE, sequence)

    variants = [Variant("train")]
    if known.regions: variants.append(Variant("train", {"checkpointing": True}, checkpointing=True, regions=True))
    tokens = known.tokens
    lengths = ([32 * n for n in (7, 11, 19)] if known.token_multiple > 1 else
               [_prime(tokens * 2 // 3), _prime(tokens * 2 // 5), _prime(tokens * 5 // 4)])
    return Source(lambda: kind(**(config or {})), example, {"batch": batch, "image": image or known.image, "sequence": tokens}, variants,
                  name, "denoising", sizes={"image": _others(known.sizes, image or known.image), "sequence": lengths},
                  multiples={"image": known.multiple, "sequence": known.token_multiple}, step=known.step, precisions=known.precisions,
                  fixed=dict(known.fixed))


def part(library: str, name: str, config: dict[str, Any], *, batch: int = 1, image: int | None = None,
         sequence: int | None = None) -> Source:
    """A model beside a denoising network, which encodes pixels or token ids without gradients."""
    variants, precisions = [Variant("eval", gradients=False)], ("float32", "bfloat16")
    if library == "diffusers":
        import diffusers

        frames = [1] if name in ONE_FRAME else []
        return Source(lambda: getattr(diffusers, name)(**config), lambda batch, image: {"pixel_values": torch.empty(batch, 3, *frames, image, image)},
                      {"batch": batch, "image": image or 1024}, variants, name, "other", sizes={"image": _others([512, 768, 1280, 1024], image or 1024)},
                      multiples={"image": 64}, step=encode_pixels, precisions=precisions)
    import transformers

    kind = getattr(transformers, name)
    made = kind.config_class(**config)
    return Source(lambda dtype: kind._from_config(made, **_of_type(dtype)), lambda batch: {"input_ids": torch.zeros(batch, sequence, dtype=torch.long)},
                  {"batch": batch}, variants, name, "other", precisions=precisions)


def diffusers(name: str, config: dict[str, Any] | None = None, *, batch: int = 4,
              image: int | list[int] | None = None) -> Source:
    """A denoising network by its class. `image`: the edge of the latents, or their frames, height and width, of which the width
    follows the height."""
    import diffusers as library

    kind = getattr(library, name)
    values = {key: p.default for key, p in inspect.signature(kind.__init__).parameters.items() if key != "self"}
    values.update(config or {})
    edge = image or values.get("sample_size") or 64
    channels, out = int(values.get("in_channels") or 4), int(values.get("out_channels") or values.get("in_channels") or 4)
    states = values.get("cross_attention_dim") or values.get("joint_attention_dim") or values.get("text_dim") or 0
    states = states[0] if isinstance(states, (tuple, list)) else states
    forward = inspect.signature(kind.forward).parameters

    symbols, multiples = {"batch": batch}, {}
    if isinstance(edge, int):
        symbols["image"] = edge
        multiples["image"] = 2 ** max(len(values.get("block_out_channels") or ()) - 1, 0) * int(values.get("patch_size") or 1)
        before, high, wide = [], 1, 1
    else:
        *before, high, wide = edge
        symbols["image"] = high
        high, wide = high // math.gcd(high, wide), wide // math.gcd(high, wide)
        patch = values.get("patch_size") or 1
        patch = patch if isinstance(patch, int) else patch[-1]
        multiples["image"] = high * next(n for n in itertools.count(1) if n * high % patch == 0 and n * wide % patch == 0)

    def example(batch: int, image: int) -> dict[str, Any]:
        size = [*before, image, image // high * wide]
        if name in LTX: return ltx_inputs(name, values, batch, *size)
        main = "sample" if "sample" in forward else "hidden_states"
        made: dict[str, Any] = {main: torch.empty(batch, channels, *size)}
        if "timestep" in forward: made["timestep"] = torch.zeros(batch, dtype=torch.long)
        if "encoder_hidden_states" in forward and states: made["encoder_hidden_states"] = torch.empty(batch, 512 if values.get("text_dim") else 77, int(states))
        if "pooled_projections" in forward: made["pooled_projections"] = torch.empty(batch, int(values["pooled_projection_dim"]))
        if "class_labels" in forward and values.get("num_embeds_ada_norm"):
            made["class_labels"] = torch.zeros(batch, dtype=torch.long)
        made["noise"] = torch.empty(batch, out, *size)
        return made

    counts = (5, 11, 9, 8) if isinstance(edge, int) else (1, 3, 4, 5)  # multiples of that many latents
    further = [n * multiples["image"] for n in counts if n * multiples["image"] != symbols["image"]]
    made = Source(lambda: kind(**(config or {})), example, symbols, [Variant("train"), Variant("eval")], name, "other",
                  _squares, sizes={"image": further[:3]}, multiples=multiples)
    if name in LTX:
        layers = values["num_layers"]

        def shallower(left_out: int, _: int) -> Callable[..., Any]: return lambda: kind(**{**(config or {}), "num_layers": layers - left_out})

        made.loss, made.depths = ltx_loss, Depths(layers, shallower)
    return made
