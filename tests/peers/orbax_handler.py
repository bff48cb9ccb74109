"""The tests of Orbax for its standard handler, with `milepost.jax.save` and `milepost.jax.restore` in its place."""

from __future__ import annotations

import os
from typing import Any

from tests.peers.library_texts import accept_own_texts
from tests.peers.orbax_targets import target_of
from tests.peers.suite import Suite

SUITE = Suite(
    title="Orbax, standard handler",
    packages=("orbax-checkpoint", "jax"),
    copied={
        "checkpoint/orbax/checkpoint/_src/handlers/standard_checkpoint_handler_test.py": "standard_checkpoint_handler_test.py"
    },
    files=("standard_checkpoint_handler_test.py",),
    plugins=("tests.peers.orbax_one_process",),
    replaced="`milepost.jax.save` saves the tree of the test, and `milepost.jax.restore` restores it. A restore without a target takes the structure from "
    "`milepost.load`. Where a test wants files in Orbax' format OCDBT, it gets a checkpoint of milepost. The tests run in one process, on eight devices of the "
    "CPU, with the installed Orbax around them.",
    excluded={
        "*::test_basic_no_item_arg": "It restores without a target, and milepost saves no layout of devices.",
        "*::test_topology_mismatch": "It restores without a target, and milepost saves no layout of devices.",
        "*::test_cast": "Orbax converts element types in saves, and milepost only in restores.",
        "*::test_change_shape1": "Orbax may cut or fill an array of another shape. milepost refuses it.",
        "*::test_construct_restore_args_with_fallback_sharding": "It tests a private function of Orbax.",
        "*::test_custom_metadata": "milepost saves metadata with the checkpoints of a manager.",
        "*::test_*_unsupported_type": "It wants text to be refused, which milepost saves.",
    },
    failing={
        "*::test_shape_dtype_struct": "A saved array of NumPy becomes an array of JAX where the target is a `jax.ShapeDtypeStruct`.",
        "*::test_masked_shape_dtype_struct": "Where nothing was saved, milepost leaves what the target has, a `jax.ShapeDtypeStruct`, and Orbax puts None there.",
        "*::test_with_random_keys": "milepost makes what the target describes: for the words of a key, words and no key; and without a sharding, an array on one device.",
    },
)


def pytest_configure(config: Any) -> None:
    """Puts milepost in the place of the handler."""
    from orbax.checkpoint._src.handlers import standard_checkpoint_handler_test_utils
    from orbax.checkpoint._src.serialization import type_handlers

    accept_own_texts()
    standard_checkpoint_handler_test_utils.StandardCheckpointHandler = Handler
    type_handlers.is_ocdbt_checkpoint = _is_checkpoint


class Handler:
    """Orbax' names for what `milepost.jax.save` and `milepost.jax.restore` do."""

    def save(self, directory: Any, args: Any) -> None:
        import milepost.jax

        milepost.jax.save(_path(directory), args.item)

    def restore(self, directory: Any, args: Any = None) -> Any:
        import milepost.jax

        path, item = _path(directory), getattr(args, "item", None)
        restored, _ = milepost.jax.restore(path, target_of(milepost.load(path, arrays="jax"), item))
        return restored

    def close(self) -> None:
        pass


def _path(directory: Any) -> str:
    return os.path.join(os.fspath(directory), "state")


def _is_checkpoint(directory: Any) -> bool:
    import milepost

    return milepost.tensorflow1.checkpoint_exists(_path(directory))
