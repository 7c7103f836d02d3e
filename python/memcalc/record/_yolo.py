"""Ultralytics' YOLO detectors with the loss that they train with (ultralytics 8.4: nn/tasks.py, utils/loss.py, utils/tal.py).

What the loss finds depends on values. Its lines are answered so: each image has the same number of objects, `target`; an
object holds the centres of as many anchors as one of 96 pixels does, at the strides of 8, 16 and 32; ten anchors of its own
are assigned to it (TaskAlignedAssigner's topk), one in the second head of detectors that train two (YOLOv10, YOLO26). Of other
versions of the package, whose lines are others, the recording is refused.
"""
from __future__ import annotations

from typing import Any

import torch

_ANCHORS_IN_AN_OBJECT = sum((96 // stride) ** 2 for stride in (8, 16, 32))
_ASSIGNED = 10
_POLICIES: dict[str, Any] = {
    "loss.py:400": lambda given: given["img"].shape[0],                                    # images that have objects
    "loss.py:405": lambda given: given["cls"].shape[0] // given["img"].shape[0],           # the most in one image
    "tal.py:232": lambda given: given["cls"].shape[0] * _ANCHORS_IN_AN_OBJECT,             # pairs of object and anchor
    "loss.py:140": lambda given: given["cls"].shape[0] * _ASSIGNED,                        # anchors of the foreground
}
_POLICIES_OF_TWO_HEADS = {**_POLICIES, "loss.py:140": [_POLICIES["loss.py:140"], lambda given: given["cls"].shape[0]]}


def parts(name: str, edge: int) -> dict[str, Any]:
    """Of a detector by the name of its YAML: what memcalc.record takes."""
    from ultralytics.cfg import get_cfg
    from ultralytics.nn.tasks import DetectionModel, yaml_model_load

    def make() -> torch.nn.Module:
        module = DetectionModel(f"{name}.yaml", verbose=False)
        module.args = get_cfg()
        for parameter in module.model[-1].dfl.parameters(): parameter.requires_grad_(False)  # the trainer always freezes ".dfl"
        module.criterion = module.init_criterion()  # of the first step, kept
        return module

    def example(batch: int, image: int, target: int) -> dict[str, Any]:
        objects = batch * target
        return {"img": torch.empty(batch, 3, image, image), "batch_idx": torch.empty(objects), "cls": torch.empty(objects, 1),
                "bboxes": torch.empty(objects, 4)}

    def step(module: Any, given: dict[str, Any]) -> Any:
        loss, items = module(given)
        return {"loss": loss.sum(), "items": items, "each": loss}

    described = yaml_model_load(f"{name}.yaml")
    two_heads = described.get("end2end") or described["head"][-1][2] == "v10Detect"
    policies = _POLICIES_OF_TWO_HEADS if two_heads else _POLICIES
    return {"make": make, "example": example, "step": step, "policies": policies, "sizes": {"image": [n for n in (480, 512, 800, 640) if n != edge][:3]},
            "multiples": {"image": 32}}
