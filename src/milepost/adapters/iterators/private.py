"""Every private name of libraries of iterators that milepost uses, with its purpose."""

from __future__ import annotations

from typing import Final

STARTING: Final = "_starting_state_dict"
"""In an iterable data set of Hugging Face: a loaded state, for every iterator of its epoch."""
LATEST: Final = "_state_dict"
"""The same: the state of the iterator that was made last."""
EXAMPLES: Final = "_ex_iterable"
"""The same: the chain of what its examples pass through."""
WORKERS: Final = "_iterator"
"""In a ``DataLoader`` of PyTorch: the iterator that keeps its workers from one pass to the next."""
MADE: Final = "_get_iterator"
"""In a ``StatefulDataLoader`` of torchdata: the method that makes an iterator."""
NEXT: Final = ("next_iter_state", "_next_iter_state_dict")
"""The attributes in which loaders of torchdata keep a loaded state until the next iterator takes it."""
COUNT: Final = ("_snapshot", "_main_snapshot", "_num_workers")
"""In the state of a ``StatefulDataLoader``: the way to the number of its workers."""
