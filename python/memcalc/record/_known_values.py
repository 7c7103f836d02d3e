"""What is known of the values of a recording: numbers that follow on the CPU, answers of policies and of lines of code."""
from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ._memo import Kind
from ._names import Called
from ._nests import tensors_in, with_tensors
from ._values import LARGEST, Known, module_frame, needed

NOTHING = object()  # no answer
_FACTORIES = frozenset("""arange tensor as_tensor scalar_tensor zeros ones full linspace eye tril_indices triu_indices
    """.split())
_FILLED = {"zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1}
_PICKS = frozenset("topk argmax argmin sort argsort multinomial".split())
# What values may be known of though those of the arguments are not.
_ANSWERED = frozenset([*_FILLED, "new_full", "full_like", *_PICKS, "isnan", "isinf", "isfinite", "rand", "rand_like"])


class Info:
    """What is known of a live numbered value."""

    __slots__ = ("number", "requires_grad", "known", "death", "kind", "__weakref__")

    def __init__(self, number: int, requires_grad: bool) -> None:
        self.number, self.requires_grad = number, requires_grad
        self.known: Known | None = None
        self.death: Any = None
        self.kind: Kind | None = None  # once somebody has asked; a write forgets it


class KnownValues:
    """The numbered values of a recording, and what is known of them."""

    def __init__(self, policies: dict[str, Any]) -> None:
        super().__init__()
        self.policies = policies
        self.asked: dict[str, int] = {}  # how often a line was answered before
        self.example: Any = None  # the inputs by name, of which a policy may make its answer
        self.recording = False           # False while the module is built: values only
        self.values: dict[int, Info] = {}
        self.assumptions: Counter[tuple[str, str]] = Counter()

    def info(self, tensor: Any) -> Info | None:
        found = self.values.get(id(tensor))
        return found if found is not None and found.death() is tensor else None

    def assume(self, origins: frozenset[str]) -> None:
        if not self.recording: return
        file, line, _ = module_frame()
        for origin in origins: self.assumptions[origin, f"{file.rsplit('/', 1)[-1]}:{line}"] += 1

    def known(self, function: Any, called: Called, args: Any, kwargs: Any, outputs: list[torch.Tensor],
               inputs: list[torch.Tensor]) -> list[Known | None] | None:
        name, last = called.name, called.last
        infos = [self.info(t) for t in inputs]
        if not called.is_in_place and last not in _ANSWERED and last != "expand_as" and (not infos or None in infos or any(
                info.known is None for info in infos if info is not None)) and (infos or last not in _FACTORIES): return None
        if called.is_in_place:
            if name == "torch.Tensor.uniform_" and args[0].numel() == 1 and self.policies.get("random_draws", True):
                low, high = [*args[1:], *kwargs.values()][:2] if len(args) + len(kwargs) > 2 else (0.0, 1.0)
                with unset_fake_temporarily():
                    drawn = torch.full(args[0].shape, high - 0.001 * (high - low), dtype=args[0].dtype)
                return [Known(drawn, frozenset(["random_draws"]))]
            target = self.info(args[0]) if args else None
            if target is None or target.known is None: return None
            if any(info is None or info.known is None for info in infos) or last in ("uniform_", "normal_",
                                                                                   "bernoulli_", "random_"):
                self._forget(target.known.tensor)
                return None
        if any(t.numel() > LARGEST for t in outputs): return None
        if last == "expand_as" and infos and infos[0] is not None and infos[0].known is not None:  # of the other the shape alone
            with unset_fake_temporarily(): return [Known(infos[0].known.tensor.expand(outputs[0].shape), infos[0].known.origins)]
        fill = _FILLED.get(last)
        if last in ("new_full", "full_like"):
            fill = args[2 if last == "new_full" else 1] if len(args) > (2 if last == "new_full" else 1) else kwargs.get("fill_value")
            if isinstance(fill, torch.Tensor): fill = None
        if fill is not None and len(outputs) == 1:
            with unset_fake_temporarily():
                return [Known(torch.full(outputs[0].shape, fill, dtype=outputs[0].dtype))]
        knowns = [info.known for info in infos if info is not None and info.known is not None]
        if (infos and len(knowns) == len(infos)) or (not infos and last in _FACTORIES):
            made = self.compute(function, name, args, kwargs, must=False)
            if made is None: return None
            origins: frozenset[str] = frozenset().union(*(known.origins for known in knowns))
            found = tensors_in(made)
            if len(found) != len(outputs): return None
            return [Known(value, origins) if value.shape == out.shape else None for value, out in zip(found, outputs)]
        return self._by_policy(last, args, kwargs, outputs)

    def _by_policy(self, last: str, args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Known | None] | None:
        def allowed(policy: str) -> bool: return bool(self.policies.get(policy, True))

        with unset_fake_temporarily():
            if last in _PICKS and allowed("balanced_routing") and args and isinstance(args[0], torch.Tensor):
                given = args[0]
                dim = -1
                if last in ("argmax", "argmin", "sort", "argsort"):
                    dim = kwargs.get("dim", args[1] if len(args) > 1 and isinstance(args[1], int) else -1)
                    if last in ("argmax", "argmin") and dim is None: return None
                if given.dim() == 0 or given.shape[dim] == 0: return None
                found: list[Known | None] = []
                for out in outputs:
                    if out.dtype != torch.long: found.append(None)
                    else:
                        index = (torch.arange(out.numel()) % given.shape[dim]).view(out.shape)
                        found.append(Known(index, frozenset(["balanced_routing"])))
                return found
            if last in ("isnan", "isinf", "isfinite") and allowed("finite_values"):
                filled = torch.full(outputs[0].shape, last == "isfinite")
                return [Known(filled, frozenset(["finite_values"]))]
            if last in ("rand", "rand_like") and outputs[0].numel() == 1 and allowed("random_draws"):
                return [Known(torch.full(outputs[0].shape, 0.999, dtype=outputs[0].dtype), frozenset(["random_draws"]))]
        return None

    def _forget(self, value: torch.Tensor) -> None:
        """A write of unknown values: nothing that shares the storage is known any more."""
        storage = value.untyped_storage()._cdata
        for info in self.values.values():
            if info.known is not None and info.known.tensor.untyped_storage()._cdata == storage: info.known = None

    def compute(self, function: Any, name: str, args: Any, kwargs: Any, must: bool) -> Any:
        def real(thing: Any) -> Any:
            if isinstance(thing, torch.Tensor):
                info = self.info(thing)
                if info is None or info.known is None: raise needed(name, self.why())
                if must: self.assume(info.known.origins)
                return info.known.tensor
            if isinstance(thing, torch.device): return torch.device("cpu")
            if isinstance(thing, str) and thing.startswith("cuda"): return "cpu"
            return thing
        if name == "torch.Tensor.cuda": return real(args[0])
        args, kwargs = with_tensors(args, real), with_tensors(kwargs, real)
        kwargs.pop("pin_memory", None)
        if isinstance(kwargs.get("device"), int): kwargs["device"] = "cpu"
        with unset_fake_temporarily():
            try:
                return function(*args, **kwargs)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                if must: raise
                return None

    def answered(self) -> Any:
        if not self.policies: return NOTHING
        file, line, _ = module_frame()
        key = f"{file.rsplit('/', 1)[-1]}:{line}"
        if key not in self.policies: return NOTHING
        self.assume(frozenset([key]))
        answer = self.policies[key]
        if isinstance(answer, list):  # a line that asks several times
            asked = self.asked[key] = self.asked.get(key, -1) + 1
            answer = answer[asked % len(answer)]
        return answer(self.example) if callable(answer) else answer

    def why(self) -> str:
        off = [policy for policy, value in self.policies.items() if value is False]
        return f"The policies {', '.join(off)} are off. " if off else ""
