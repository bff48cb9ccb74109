"""Loaders that Accelerate has prepared. Without torchdata they have the methods for a state, but no state."""

from __future__ import annotations

from typing import Any

from milepost.adapters.iterators.any_library import is_of
from milepost.adapters.iterators.torchdata import TorchdataAdapter
from milepost.graph.adapter import register


class AccelerateAdapter(TorchdataAdapter):
    """Loaders of Accelerate, which wrap one of torchdata."""

    def handles(self, kind: type) -> bool:
        return is_of(kind, "accelerate.data_loader") and self.methods(kind) is not None

    def remedy(self, obj: Any) -> str:
        return (
            "make the Accelerator with DataLoaderConfiguration(use_stateful_dataloader=True), which needs torchdata; or leave "
            "the loader out of the checkpoint, and skip the batches of earlier runs with accelerate.skip_first_batches()"
        )


register(AccelerateAdapter())
