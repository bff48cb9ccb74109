"""The rows of the table, a module each: ``KEY``, ``TITLE``, ``HOW``, and ``run(peer, scratch)``, which returns a finding."""

from __future__ import annotations

from types import ModuleType

from benchmarks.peers.experiments import (
    code,
    compressed,
    deferred,
    failed_restore,
    fallback,
    flipped_bytes,
    killed_overwrite,
    killed_series,
    mapped,
    one_file,
    report,
    saved_again,
    syncs,
    tensorflow_files,
    together,
)

ROWS: tuple[ModuleType, ...] = (
    deferred,
    saved_again,
    report,
    failed_restore,
    flipped_bytes,
    killed_series,
    killed_overwrite,
    syncs,
    fallback,
    tensorflow_files,
    code,
    together,
    mapped,
    one_file,
    compressed,
)
