"""A program that writes a file by hand, which does everything wrong: what the experiments must find."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.peers.peer import Late, Live, Peer, Values


class PlainFile(Peer):
    """A pickle of a dict, written in place."""

    title = "a plain file"
    packages = ("numpy",)
    name = "values.pickle"
    numbered = "values-{}.pickle"

    def hold(self, values: Values) -> Live:
        return dict(values)

    def values(self, live: Live) -> Values:
        return dict(live)

    def write(self, live: Live, path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for part in np.array_split(np.frombuffer(pickle.dumps(live), np.uint8), 3):
                file.write(part.tobytes())

    def read(self, live: Live, path: Path) -> None:
        held = dict(live)
        live.clear()
        saved = pickle.loads(path.read_bytes())
        for name, value in held.items():
            if saved[name].shape != value.shape or saved[name].dtype != value.dtype:
                raise ValueError("it does not fit")
            live[name] = saved[name]

    def tell(self, live: Live, path: Path) -> str:
        try:
            self.read(live, path)
        except (KeyError, ValueError):
            return "it does not fit"
        return ""

    def unbuilt(self) -> Mapping[str, Late]:
        def call(live: Live) -> None:
            live.setdefault("kernel", np.random.default_rng().normal(size=8))

        return {"a dict": Late(dict, call)}
