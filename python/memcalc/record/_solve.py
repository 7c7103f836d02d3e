"""Several recordings of one module as one: integers that differ by size become polynomials of the symbols, data types
that differ by precision become `weights` or `compute`."""
from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Iterable

Json = Any
Sizes = dict[str, int]
PRECISIONS = ("float32", "bfloat16", "autocast")
AUTOCAST_ON_16_BITS = "autocast_bfloat16"  # weights of 16 bits: recorded where a module looks at its weights' type


class Mismatch(ValueError):
    """The recordings are not the same program."""


def solve_integer(values: list[int], sizes: list[Sizes]) -> str | int | None:
    """The expression that gives each value at its sizes; None where there is no simple one."""
    if len(set(values)) == 1: return values[0]
    symbols = sorted(sizes[0])
    changing = [s for s in symbols if len({size[s] for size in sizes}) > 1]
    # Products of the symbols, none twice; then squares.
    products: list[tuple[str, ...]] = []
    for mask in range(1, 1 << len(changing)): products.append(tuple(s for i, s in enumerate(changing) if mask >> i & 1))
    products.sort(key=len)
    for candidate in _candidates(products):
        found = _fit(candidate, values, sizes)
        if found is not None: return found
    squares = [(s, s) for s in changing] + [(*p, s) for p in products for s in changing if len(p) == 2 and s in p]

    def with_squares(most: int) -> str | int | None:
        for square in squares:
            rests: list[list[tuple[str, ...]]] = [[], [()], [square[:1]], [square[:1], ()]]
            for rest in rests + [[product] for product in products]:
                found = _fit([square, *rest], values, sizes, most)
                if found is not None: return found
        return None

    solved = with_squares(64)
    if solved is None: solved = _floors(values, sizes, changing)
    return with_squares(1024) if solved is None else solved  # patches of 32 pixels are 1024 to a square


def _candidates(products: list[tuple[str, ...]]) -> Iterable[list[tuple[str, ...]]]:
    for product in products: yield [product]
    for product in products: yield [product, ()]
    for i, one in enumerate(products):
        for other in products[i + 1:]:
            yield [one, other]
            yield [one, other, ()]
    if len(products) <= 3: yield [*products, ()]


def _value(product: tuple[str, ...], size: Sizes) -> int:
    made = 1
    for symbol in product: made *= size[symbol]
    return made


def _fit(terms: list[tuple[str, ...]], values: list[int], sizes: list[Sizes], most: int = 64) -> str | None:
    """Solves by elimination; every recording must agree, and there must be more of them than unknowns."""
    if len(values) <= len(terms): return None
    rows = [[Fraction(_value(term, size)) for term in terms] + [Fraction(value)] for value, size in zip(values, sizes)]
    count = len(terms)
    rank = 0
    for column in range(count):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][column] != 0), None)
        if pivot is None: return None
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        rows[rank] = [x / rows[rank][column] for x in rows[rank]]
        for r in range(len(rows)):
            if r != rank and rows[r][column] != 0:
                rows[r] = [x - rows[r][column] * y for x, y in zip(rows[r], rows[rank])]
        rank += 1
    if any(row[count] != 0 for row in rows[count:]): return None
    if any(rows[i][count].denominator > most for i in range(count)): return None  # a fit by chance
    return _text([(terms[i], rows[i][count]) for i in range(count)])


def _text(terms: list[tuple[tuple[str, ...], Fraction]]) -> str:
    text = ""
    denominator = 1
    for _, c in terms: denominator = denominator * c.denominator // _gcd(denominator, c.denominator)
    for product, coefficient in terms:
        whole = int(coefficient * denominator)
        if whole == 0: continue
        factors = [str(abs(whole))] if abs(whole) != 1 or not product else []
        text += ("-" if whole < 0 else "+" if text else "") + "*".join(factors + list(product))
    text = text or "0"
    return text if denominator == 1 else f"({text})//{denominator}"


def _gcd(a: int, b: int) -> int:
    while b: a, b = b, a % b
    return a


def _floors(values: list[int], sizes: list[Sizes], changing: list[str]) -> str | None:
    """m*((s + r) // c) + k, the rest (c - s % c) % c, and the smaller or larger of s + k and a constant."""
    for symbol in changing:
        given = [size[symbol] for size in sizes]
        others: list[list[tuple[str, ...]]] = [[()]]
        others += [[(other,)] for other in changing if other != symbol]
        for c in (2, 4, 8, 14, 16, 32, 64, 128, 256, 320, 512):
            for r in {0, 1, c // 2, c - 1}:
                parts = [(s + r) // c for s in given]
                if len(set(parts)) == 1: continue
                for other in others:
                    scaled = [part * _value(other[0], size) for part, size in zip(parts, sizes)]
                    ratio = Fraction(values[0] - values[-1], scaled[0] - scaled[-1]) if scaled[0] != scaled[-1] else None
                    if ratio is None or ratio.denominator != 1: continue
                    k = values[0] - int(ratio) * scaled[0]
                    if all(int(ratio) * x + k == v for x, v in zip(scaled, values)):
                        inner = f"(({symbol}+{r})//{c})" if r else f"({symbol}//{c})"
                        return "*".join(([str(int(ratio))] if ratio != 1 else []) + [inner] + list(other[0])) + (f"{k:+d}" if k else "")
            for r in sorted({0, c // 2, c - 1}):
                name = f"(({symbol}+{r})//{c})" if r else f"({symbol}//{c})"
                found = _fit_squares(name, [(s + r) // c for s in given], others, values, sizes)
                if found is None: found = _fit_parity(name, [(s + r) // c for s in given], values)
                if found is not None: return found
            rest = [(c - s % c) % c for s in given]
            if rest == values: return f"({c}-{symbol}%{c})%{c}"
        for word, choose in (("min", min), ("max", max)):
            for k in {v - s for v, s in zip(values, given)}:
                for constant in set(values):
                    if all(choose(s + k, constant) == v for s, v in zip(given, values)):
                        return f"{word}({symbol}{f'{k:+d}' if k else ''},{constant})"
    return None


def _fit_squares(name: str, parts: list[int], others: list[list[tuple[str, ...]]], values: list[int],
                 sizes: list[Sizes]) -> str | None:
    """Polynomials of the second degree in `parts`, the patches on an edge: their number and the distances between two."""
    if len(set(parts)) < 3: return None
    with_parts = [{**size, name: part} for size, part in zip(sizes, parts)]
    for other in others:
        square = (*other[0], name, name)
        for rest in ([], [()], [(*other[0], name)], [(*other[0], name), ()], [other[0]] if other[0] else []):
            found = _fit([square, *rest], values, with_parts)
            if found is not None and not re.search(r"\)//\d+$", found): return found  # fractions: a fit by chance
    return None


def _fit_parity(name: str, parts: list[int], values: list[int]) -> str | None:
    """What TensorFlow's padding of odd images adds: only where there are sizes enough to tell."""
    if set(values) != {0, 1} or len(set(parts)) < 8 or any(p % 2 != v for p, v in zip(parts, values)): return None
    return name + "%2"


# What the types that follow the precision are in each of PRECISIONS.
_ALL = (*PRECISIONS, AUTOCAST_ON_16_BITS)
FOLLOWING = {"weights": dict(zip(_ALL, ("float32", "bfloat16", "float32", "bfloat16"))),
             "compute": dict(zip(_ALL, ("float32", "bfloat16", "bfloat16", "bfloat16")))}


def solve_dtype(by_precision: dict[str, str]) -> str:
    """`weights` and `compute` where the type follows the run's precision."""
    kinds = set(by_precision.values())
    # What was recorded with weights of 16 bits alone stands for float16, too.
    if kinds == {"bfloat16"} and "float32" not in by_precision: return "compute" if "autocast" in by_precision else "weights"
    if len(kinds) == 1: return kinds.pop()
    for name, meant in FOLLOWING.items():
        if all(found == meant[p] for p, found in by_precision.items()): return name
    raise Mismatch(f"a data type that is {', '.join(f'{found} in {p}' for p, found in by_precision.items())}")


class Merger:
    """Merges the events of recordings, each made at a precision and at sizes."""

    def __init__(self, keys: list[tuple[str, Sizes]]) -> None:
        self.keys = keys
        self.inexact: list[str] = []
        self._solved: dict[tuple[int, ...], Json] = {}

    def merge(self, items: list[Json]) -> Json:
        first = items[0]
        kind = type(first)
        if kind is dict:
            if "d" in first and all(type(item) is dict and "d" in item for item in items): return {"d": self._dtype(items)}
            if any(type(item) is not dict or item.keys() != first.keys() for item in items): raise Mismatch("keys")
            return {key: self.merge([item[key] for item in items]) for key in first}
        if kind is list or kind is tuple:
            if any(type(item) is not kind or len(item) != len(first) for item in items): raise Mismatch("lengths")
            return [self.merge([item[i] for item in items]) for i in range(len(first))]
        if all(item == first and type(item) is kind for item in items): return first
        if kind is int and all(type(item) is int for item in items): return self._integer(items)
        if kind is float and all(type(item) in (float, int) for item in items): return first  # changes no shape
        raise Mismatch(f"{first!r} and others")

    def _dtype(self, items: list[Json]) -> str:
        found: dict[str, str] = {}
        for (precision, _), item in zip(self.keys, items):
            if found.setdefault(precision, item["d"]) != item["d"]: raise Mismatch("a data type that differs by size")
        return solve_dtype(found)

    def _integer(self, items: list[int]) -> Json:
        key = tuple(items)
        if key not in self._solved:
            by_size: dict[tuple[int, ...], int] = {}
            sizes: list[Sizes] = []
            for (_, size), value in zip(self.keys, items):
                place = tuple(size[s] for s in sorted(size))
                if place not in by_size: sizes.append(size)
                if by_size.setdefault(place, value) != value: raise Mismatch("an integer that differs by precision")
            found = solve_integer(list(by_size.values()), sizes)
            if found is None: raise Mismatch(f"no expression for {items}")
            self._solved[key] = {"n": found} if isinstance(found, str) else found
        return self._solved[key]
