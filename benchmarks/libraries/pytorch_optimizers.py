"""Every optimizer and scheduler of the package ``pytorch_optimizer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytorch_optimizer as package
import torch

from benchmarks.libraries.specimen import Specimen
from benchmarks.libraries.training import Training


def _sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _matrices(net: Any, **others: Any) -> list[dict[str, Any]]:
    """The groups that optimizers for matrices want."""
    parameters = list(net.parameters())
    return [
        {"params": [each for each in parameters if each.ndim == 2], "use_muon": True},
        {"params": [each for each in parameters if each.ndim != 2], "use_muon": False, **others},
    ]


def _of_matrices(name: str) -> Callable[[Any], Any]:
    return lambda net: getattr(package, name)(_matrices(net))


def _sharp(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda net: getattr(package, name)(
        net.parameters(), base_optimizer=torch.optim.SGD, lr=0.05, momentum=0.9, **options
    )


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    **{name: _of_matrices(name) for name in ("Muon", "DistributedMuon", "AdaMuon", "AdaGO", "NorMuon", "MuonClip")},
    **{name: _sharp(name) for name in ("SAM", "LookSAM", "FriendlySAM")},
    "WSAM": lambda net: package.WSAM(net, net.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9),
    "BSAM": lambda net: package.BSAM(net.parameters(), num_data=8, lr=0.01),
    "Ranger21": lambda net: package.Ranger21(net.parameters(), num_iterations=20, lr=0.01),
    "Lookahead": lambda net: package.Lookahead(_sgd(net.parameters()), k=4),
    "OrthoGrad": lambda net: package.OrthoGrad(_sgd(net.parameters())),
    "TRAC": lambda net: package.TRAC(_sgd(net.parameters())),
    "ScheduleFreeWrapper": lambda net: package.ScheduleFreeWrapper(_sgd(net.parameters()), momentum=0.9),
    "PCGrad": lambda net: package.PCGrad(_sgd(net.parameters())),
    "AdaLOMO": lambda net: package.AdaLOMO(net),
    "LOMO": lambda net: package.LOMO(net),
    "AdamMini": lambda net: package.AdamMini(net, num_embeds=4, num_heads=2, num_query_groups=2),
    "AliG": lambda net: package.AliG(net.parameters(), max_lr=0.1),
    "GaLore": lambda net: package.GaLore(
        [{"params": list(net.parameters()), "rank": 2, "update_proj_gap": 4, "scale": 1.0, "projection_type": "std"}],
        lr=0.01,
    ),
    "SafeFP16Optimizer": lambda net: package.SafeFP16Optimizer(_sgd(net.parameters())),
    "SpectralSphere": lambda net: package.SpectralSphere([each for each in net.parameters() if each.ndim == 2]),
    "Lookahead, AdamP": lambda net: package.Lookahead(package.AdamP(net.parameters(), lr=0.01), k=4),
    "Fira": lambda net: package.Fira(
        [{"params": list(net.parameters()), "rank": 2, "update_proj_gap": 4, "scale": 1.0, "projection_type": "std"}],
        lr=0.01,
    ),
}
_SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "CosineAnnealingWarmupRestarts": lambda optimizer: package.CosineAnnealingWarmupRestarts(
        optimizer, first_cycle_steps=8, warmup_steps=2
    ),
    "CosineScheduler": lambda optimizer: package.CosineScheduler(optimizer, t_max=10, max_lr=0.1, warmup_steps=2),
    "LinearScheduler": lambda optimizer: package.LinearScheduler(optimizer, t_max=10, max_lr=0.1, warmup_steps=2),
    "PolyScheduler": lambda optimizer: package.PolyScheduler(
        optimizer, t_max=10, max_lr=0.1, warmup_steps=2, poly_order=0.5
    ),
    "REXScheduler": lambda optimizer: package.REXScheduler(optimizer, total_steps=10),
}


def names() -> Iterable[str]:
    """Optimizers by their classes' names, and schedulers."""
    found = {
        name
        for name, kind in vars(package).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and not name.startswith("Base")
    }
    return sorted({*found, *_SPECIAL, *_SCHEDULERS}, key=str.lower)


def make(name: str, seed: int) -> Specimen:
    """A training with one of them."""
    if name in _SCHEDULERS:
        schedule = _SCHEDULERS[name]
        return Training(seed, lambda net: _sgd(net.parameters()), lambda optimizer: {"schedule": schedule(optimizer)})
    return Training(seed, _SPECIAL.get(name) or (lambda net: _made(getattr(package, name), net)))


def _made(kind: Any, net: Any) -> Any:
    try:
        return kind(net.parameters(), lr=0.01)
    except TypeError:
        return kind(net.parameters())
