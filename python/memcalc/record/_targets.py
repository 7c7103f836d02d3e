"""Tasks of transformers whose labels are no tensor: lists with an item for each image, or masks that no class of it takes.

`target` is the number of objects in an image, the same in all: each image's labels have a size of their own in a data set.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch

_ONE_BY_ONE = (("batch", "the loss goes through the images one by one"),)
# Of torchvision's detection models: what their losses find, by the line that asks (0.26); elsewhere the recording is refused.
# Each object has 16 anchors, whose best one is one; no anchor lies between the thresholds, so that all count. Of FCOS it has
# the nine places around its centre (center_sampling_radius 1.5).
_ANCHORS, _PLACES = 16, 9


def _two_stages(name: str, objects: int, batch: int) -> dict[str, Any]:
    """Faster R-CNN and Mask R-CNN (defaults of FasterRCNN.__init__). All boxes are large enough, and suppression leaves each image
    the 2,000 that it keeps. The sampler finds as many places of objects as it takes, a half of 256 anchors and a quarter of 512
    boxes, and background for the rest; boxes lie evenly on the pyramid's four levels."""
    kept, anchors, boxes = 2000, 256, 512
    levels = [boxes * batch // 4] * 4 + ([boxes * batch // 16] * 4 if name.startswith("mask") else [])
    of_anchors, of_boxes = objects * _ANCHORS, boxes // 4
    return {"boxes.py:145": True, "rpn.py:285": True, "boxes.py:48": kept, "_utils.py:408": objects,
            "_utils.py:44": [of_anchors] * batch + [of_boxes] * batch,
            "_utils.py:45": [159_882 - of_anchors] * batch + [kept + objects - of_boxes] * batch,
            "rpn.py:315": min(of_anchors, anchors // 2) * batch, "rpn.py:316": (anchors - min(of_anchors, anchors // 2)) * batch,
            "roi_heads.py:620": boxes, "roi_heads.py:40": of_boxes * batch, "poolers.py:201": levels, "roi_heads.py:808": of_boxes}


def answers(name: str, objects: int, batch: int) -> dict[str, Any]:
    found, places = objects * _ANCHORS, objects * _PLACES

    def of_all(count: int) -> Callable[[dict[str, Any]], int]: return lambda given: count * given["boxes"].shape[0]

    if name.startswith("retinanet"):
        return {"_utils.py:408": objects, "retinanet.py:173": found, "retinanet.py:182": True, "retinanet.py:183": True,
                "retinanet.py:186": False, "retinanet.py:282": found}
    if name.startswith("fcos"):  # each predicted box meets its object's (torchvision/ops/_utils.py)
        return {f"fcos.py:{line}": of_all(places) for line in (86, 90, 98, 99, 118)} | {"_utils.py:103": True}
    if name.startswith("ssd"):  # three other places for each that an object has
        return {"ssd.py:277": found, "ssd.py:323": [of_all(found), of_all(3 * found)]}
    if name.startswith(("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn")) and not name.endswith("v2"): return _two_stages(name, objects, batch)
    raise ValueError(f"{name}: what its loss samples and suppresses depends on values, and no policy answers (torchvision's "
                     "models/detection); retinanet, fcos, ssd300 and ssdlite320 are recorded")


# A hundred graphs between the host's matchings, which double the program.
_LEFT_OUT = "left out: its loss breaks the graph for each image and layer"
# Weights of 16 bits fail in the matching: torch.cdist has no bfloat16 on the card, numpy has no bfloat16 at all.
_MATCHED = ("float32", "autocast")


@dataclass(frozen=True)
class Targets:
    auto: str                                      # transformers' Auto class
    task: str                                      # of the program
    image: int                                     # edge of the images, pixels
    inputs: Callable[[int, int, int], dict[str, Any]]   # of batch, target, image
    step: Callable[..., Any]                       # the loop's own calls around the module
    given: tuple[str, ...]                         # the inputs without labels
    target: int = 0                                # objects of an image; 0: there are none
    sizes: tuple[int, ...] = ()                    # further edges at which it is recorded; without: those of any network
    fixed: tuple[tuple[str, str], ...] = ()        # symbols that have one size, and why
    precisions: tuple[str, ...] | None = None      # in which it trains; None: all
    not_compiled: str = ""


def _pixels(batch: int, image: int) -> dict[str, Any]:
    """Images of several sizes: the processor pads to the largest. The last one is narrower."""
    mask = torch.ones(batch, image, image, dtype=torch.long)
    mask[-1, :, -image // 4:] = 0
    return {"pixel_values": torch.empty(batch, 3, image, image), "pixel_mask": mask}


def _boxes(batch: int, target: int, image: int) -> dict[str, Any]:
    return {**_pixels(batch, image), "class_labels": torch.zeros(batch, target, dtype=torch.long),
            "boxes": torch.empty(batch, target, 4)}


def _detect(module: Any, batch: dict[str, Any]) -> Any:
    images = {name: batch[name] for name in ("pixel_values", "pixel_mask")}
    if "boxes" not in batch: return module(**images)
    labels = [{"class_labels": classes, "boxes": boxes}
              for classes, boxes in zip(batch["class_labels"].unbind(), batch["boxes"].unbind())]
    return module(**images, labels=labels)


def _masks(batch: int, target: int, image: int) -> dict[str, Any]:
    return {**_pixels(batch, image), "mask_labels": torch.empty(batch, target, image, image),
            "class_labels": torch.zeros(batch, target, dtype=torch.long)}


def _segment(module: Any, batch: dict[str, Any]) -> Any:
    labels = {name: list(batch[name].unbind()) for name in ("mask_labels", "class_labels") if name in batch}
    return module(pixel_values=batch["pixel_values"], pixel_mask=batch["pixel_mask"], **labels)


def _prompts(batch: int, target: int, image: int) -> dict[str, Any]:
    """A box for each object, and its mask at the size that the decoder makes, a quarter of the image's."""
    return {"pixel_values": torch.empty(batch, 3, image, image), "input_boxes": torch.empty(batch, target, 4),
            "masks": torch.empty(batch, target, image // 4, image // 4)}


def _prompted(module: Any, batch: dict[str, Any]) -> Any:
    """One mask for each box, as SAM is fine-tuned; transformers' class has no loss."""
    made = module(pixel_values=batch["pixel_values"], input_boxes=batch["input_boxes"], multimask_output=False)
    if "masks" not in batch: return made
    loss = torch.nn.functional.binary_cross_entropy_with_logits(made.pred_masks.squeeze(2), batch["masks"])
    return {"loss": loss, **made}


_TOKENS_OF_A_CONCEPT = 32  # to which SAM 3's processor pads


def _concepts(batch: int, target: int, image: int) -> dict[str, Any]:
    """A phrase for each image and the masks of what it names, at the size that the decoder makes: four places of a patch of 14."""
    edge = image // 14 * 4
    return {"pixel_values": torch.empty(batch, 3, image, image), "input_ids": torch.zeros(batch, _TOKENS_OF_A_CONCEPT, dtype=torch.long),
            "attention_mask": torch.ones(batch, _TOKENS_OF_A_CONCEPT, dtype=torch.long), "masks": torch.empty(batch, target, edge, edge)}


def _named(module: Any, batch: dict[str, Any]) -> Any:
    """Scores of all queries and the masks of as many as there are objects; transformers' class has no loss and no matching."""
    made = module(pixel_values=batch["pixel_values"], input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    if "masks" not in batch: return made
    objects = batch["masks"].shape[1]
    wanted = torch.zeros_like(made.pred_logits)
    wanted[:, :objects] = 1.0
    binary = torch.nn.functional.binary_cross_entropy_with_logits
    loss = binary(made.pred_masks[:, :objects], batch["masks"]) + binary(made.pred_logits, wanted)
    return {"loss": loss, **made}


def _labelled(batch: int, _: int, image: int) -> dict[str, Any]:
    return {"pixel_values": torch.empty(batch, 3, image, image), "y": torch.zeros(batch, dtype=torch.long)}


def _features(module: Any, batch: dict[str, Any]) -> Any:
    """An encoder that transformers gives no head: what it pools is taken for the scores, as timm's models without classes are."""
    made = module(pixel_values=batch["pixel_values"])
    return made if "y" not in batch else {"loss": torch.nn.functional.cross_entropy(made.pooler_output, batch["y"]), **made}


_PADDED = ("pixel_values", "pixel_mask")
TARGETS = {
    "detection": Targets("AutoModelForObjectDetection", "detection", 640, _boxes, _detect, _PADDED, 8, (800, 480, 352, 640), _ONE_BY_ONE, _MATCHED, _LEFT_OUT),
    "masks": Targets("AutoModelForUniversalSegmentation", "masks", 512, _masks, _segment, _PADDED, 8, (384, 640, 352, 512), _ONE_BY_ONE, _MATCHED, _LEFT_OUT),
    "prompts": Targets("AutoModelForMaskGeneration", "masks", 1024, _prompts, _prompted, ("pixel_values", "input_boxes"), 1),
    "concepts": Targets("AutoModel", "masks", 1008, _concepts, _named, ("pixel_values", "input_ids", "attention_mask"), 4,
                        fixed=(("image", "the backbone's windows and places are those of 1,008 pixels"),)),
    "features": Targets("AutoModel", "other", 224, _labelled, _features, ("pixel_values",)),
}
