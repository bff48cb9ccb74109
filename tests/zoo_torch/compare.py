"""Exact comparison of what PyTorch objects hold and return."""

from __future__ import annotations

from typing import Any

from tests.zoo_torch.recipe import torch


class DifferenceError(Exception):
    """A restored object is not what was saved; the text says in what."""


def bits(tensor: Any) -> tuple[Any, ...]:
    """A tensor as something that is equal only if all is equal, bit for bit."""
    plain = tensor.detach().resolve_conj().resolve_neg().to_dense() if tensor.is_sparse else tensor.detach()
    memory = plain.contiguous().reshape(-1).view(torch.uint8) if plain.numel() else torch.empty(0, dtype=torch.uint8)
    return plain.dtype, tuple(plain.shape), memory.numpy().tobytes()


def plain(value: Any) -> Any:
    """Nested data with `bits` for tensors."""
    if isinstance(value, torch.Tensor):
        return bits(value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return (type(value), value)


def require_same(what: str, found: Any, expected: Any) -> None:
    """Raises a `DifferenceError` unless both are equal; both are what `plain` returns."""
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in {**found, **expected}:
            if found.get(key) != expected.get(key):
                require_same(f"{what}: {key}", found.get(key), expected.get(key))
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            require_same(f"{what}: {number}", one, other)
    raise DifferenceError(f"{what}: {str(found)[:120]} instead of {str(expected)[:120]}")


def perturb(tensors: Any, seed: int) -> None:
    """Gives tensors other values than they were made with, which depend on the seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in tensors:
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
                tensor.add_(0.25 * noise.to(tensor.dtype) + 0.05)
            else:
                tensor.add_(1 + seed)
