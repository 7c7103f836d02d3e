"""Custom autograd functions: their forward pass as calls, what they save, and their backward pass on gradients without data."""
from __future__ import annotations

from typing import Any

import torch

from ._nests import tensors_in, with_tensors
from ._recorder import Recorder

Json = Any


class _Context:
    """What a custom autograd function gets as `ctx`."""

    own = 6  # attributes of this class itself

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.to_save: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.without_gradient: tuple[Any, ...] = ()
        self.materialize = True
        self._needs = needs
        self.asked = False  # whether the function looks which inputs need a gradient

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        self.asked = True
        return self._needs

    def save_for_backward(self, *tensors: Any) -> None: self.to_save = tensors
    def save_for_forward(self, *tensors: Any) -> None: pass
    def mark_dirty(self, *tensors: Any) -> None: self.dirty = tensors
    def mark_non_differentiable(self, *tensors: Any) -> None: self.without_gradient = tensors
    def set_materialize_grads(self, value: bool) -> None: self.materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]: return self.to_save

    saved_variables = saved_tensors


def custom(recorder: Recorder, kind: Any, args: Any) -> Any:
    """`kind.apply(*args)`: its forward's calls, what it saves, and its backward's calls on gradients without data."""
    context = _Context(tuple(isinstance(a, torch.Tensor) and recorder.requires(a) for a in args))
    outer, recorder.events = recorder.events, []
    requires = [recorder.requires(t) for t in tensors_in(args)]
    gradient = torch.is_grad_enabled() and any(requires)
    given = [recorder.encode(t) for t in tensors_in(args)]
    with recorder.quiet(), torch.set_grad_enabled(False):
        if kind.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context:
            output = kind.forward(*args)
            kind.setup_context(context, args, output)
        else: output = kind.forward(context, *args)

    def handed(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor): return tensor
        if any(tensor is t for t in context.dirty): return tensor
        if id(tensor) in recorder.module_tensors or any(tensor is a for a in args):
            same = recorder.encode(tensor)  # _process_backward_mode_ad: an input that is returned becomes a view of itself
            tensor = tensor.detach()
            recorder.events.append(("call", "torch.Tensor.view_as", [same, same], [], [recorder.number(tensor)]))
        info = recorder.info(tensor)
        if info is not None: info.requires_grad = gradient and tensor.is_floating_point() and not any(
            tensor is t for t in context.without_gradient)
        return tensor

    output = with_tensors(output, handed)
    results = [recorder.encode(t) for t in tensors_in(output)]
    saved = [recorder.encode(t) for t in context.saved_tensors if t is not None]
    attributes = [recorder.encode(t) for t in tensors_in(list(vars(context).values())[_Context.own:])]
    forward, recorder.events = recorder.events, []
    incoming: list[int] = []
    outgoing: list[Json] = []
    inputs: list[Json] = []  # the argument that each item of outgoing is the gradient of
    if gradient:
        recorder.recording = False
        gradients = [torch.empty_like(t) for t in tensors_in(output)]
        recorder.recording = True
        incoming = [recorder.number(t) for t in gradients]
        under_autocast = torch.is_autocast_enabled("cuda")
        torch.set_autocast_enabled("cuda", False)  # loss.backward() stands behind the region
        try:
            with recorder.quiet(), torch.set_grad_enabled(False):
                returned = kind.backward(context, *gradients)
        finally: torch.set_autocast_enabled("cuda", under_autocast)
        for item, argument in zip(returned if isinstance(returned, tuple) else (returned,), args):
            outgoing.append(recorder.encode(item) if isinstance(item, torch.Tensor) else None)
            inputs.append(recorder.encode(argument) if isinstance(argument, torch.Tensor) else None)
        argument = None
        del returned, gradients
        if outgoing: item = None  # noqa: F841
    backward = [event for event in recorder.events if not (event[0] == "drop" and (event[1] in incoming or
                                                                             {"v": event[1]} in outgoing))]
    answers = {"inputs": [i for i, made in zip(inputs, outgoing) if i is not None and made is not None],
               "needs": [bool(i is not None and recorder.requires(a)) for i, made, a in zip(inputs, outgoing, args)
                         if i is not None and made is not None],
               "differentiable": [recorder.requires(t) for t in tensors_in(output)],
               "asked": context.asked, "materialize": context.materialize}
    outgoing = [made if i is not None else None for i, made in zip(inputs, outgoing)]
    recorder.recording = False
    context.__dict__.clear()  # what only the context holds dies with autograd's node
    recorder.recording, recorder.events = True, outer
    recorder.events.append(("custom", kind.__name__, given, results, [list(e) for e in forward], saved, attributes, incoming,
                        [list(e) for e in backward], outgoing, answers))
    return output
