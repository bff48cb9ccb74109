"""`RandomState`: the global random state of a program, and generators of its own, as one trackable object."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from milepost.adapters.generators import python_state, set_python_state
from milepost.adapters.packed import PackedAdapter
from milepost.errors import MismatchError, UnrestoredWarning, UntrackableError, UntrackedWarning, warn
from milepost.graph.adapter import adapter_of, register
from milepost.graph.containers import NoDependency
from milepost.graph.frameworks import imported, usable
from milepost.graph.module import Tracked
from milepost.graph.native import AttributeAdapter

_DEVICES = ("cuda", "mps", "xpu")


class RandomState(Tracked):
    """Saves and restores the global random generators of Python and of libraries, and generators of your own.

    Put it into a checkpoint. It saves the state of these generators, if their libraries are imported: Python's ``random``;
    ``numpy.random``; the CPU generator of ``torch``, and those of its CUDA, MPS and XPU devices in use; the seed of
    ``tf.random.set_seed`` with its sequence, and TensorFlow's global generator; and the global seed generator of Keras 3. A restore
    sets them after all other objects were restored.

    A restore does not import a library. If the state of PyTorch was saved and PyTorch is not imported yet, there is a warning, and
    later saves still hold that state.

    TensorFlow does not expose the counters of operations that have a seed of their own or run inside a ``tf.function``, so these are
    not saved. Use `tf.random.Generator` or stateless operations there.

    JAX has no global generator. Pass its keys as arguments; each becomes an attribute. A key cannot change, so a restore replaces
    the attribute.

    Args:
        **generators: Generators to save too, each under its name: `numpy.random.Generator`, `random.Random`, `torch.Generator`,
            keys of JAX, or other trackable objects.

    Raises:
        UntrackableError: One of them is not trackable. This is a ``ValueError``.

    Example:
        >>> import milepost, numpy as np, random, tempfile
        >>> state = milepost.RandomState(shuffle=np.random.default_rng(7))
        >>> path = milepost.Checkpoint(random=state).write(tempfile.mkdtemp() + "/ckpt")
        >>> expected = random.random(), state.shuffle.integers(100)
        >>> fresh = milepost.RandomState(shuffle=np.random.default_rng(0))
        >>> status = milepost.Checkpoint(random=fresh).read(path)
        >>> (random.random(), fresh.shuffle.integers(100)) == expected
        True
    """

    def __init__(self, **generators: Any) -> None:
        self._kept = NoDependency({})  # state of libraries that are not imported
        for name, generator in generators.items():
            if adapter_of(generator) is None:
                raise UntrackableError(
                    "this generator is not trackable",
                    key=name,
                    expected="a generator of NumPy, Python or PyTorch, or a key of JAX",
                    found=f"a {type(generator).__name__}",
                    remedy="import the generator's library before you make the RandomState",
                )
            setattr(self, name, generator)


class RandomStateAdapter(PackedAdapter, AttributeAdapter):
    """`RandomState`. Its turn is the last, so that no object draws from the generators after they were saved or restored."""

    each_process = "random"
    turn = 2

    def handles(self, kind: type) -> bool:
        return issubclass(kind, RandomState)

    def state(self, obj: RandomState) -> Any:
        return {**obj.__dict__["_kept"], **global_state(), **_keras_state()}

    def load(self, obj: RandomState, state: Any) -> None:
        obj.__dict__["_kept"] = set_global_state(state)


def global_state() -> dict[str, Any]:
    """The state of the global generators of all imported libraries, as plain data: by library, and by device."""
    state: dict[str, Any] = {"python": python_state(random), "numpy": np.random.get_state(legacy=False)}
    torch = imported("torch")
    if torch is not None:
        state["torch"] = {"cpu": torch.get_rng_state().numpy()}
        for device in _DEVICES:
            generators = _generators(torch, device)
            if generators and _is_in_use(torch, device):
                state["torch"][device] = [each.get_state().numpy() for each in generators]
    if _may_be_saved("tensorflow"):
        from milepost.adapters.tensorflow import random_state as tensorflow_state

        library_state = tensorflow_state.global_state()
        if library_state:
            state["tensorflow"] = library_state
    return state


def _may_be_saved(library: str) -> bool:
    """Whether the state of a library can be saved. There is a warning if it is imported in a version that milepost cannot use."""
    if usable(library) is not None:
        return True
    if imported(library) is not None:
        name, _ = _LIBRARIES[library]
        warn(
            f"milepost cannot use the installed version of {name}, so its global random state is not saved",
            UntrackedWarning,
        )
    return False


def set_global_state(state: Any) -> dict[str, Any]:
    """Sets a state that `global_state` returned, for the libraries that are imported.

    Returns:
        The state of libraries that are not imported.

    Raises:
        MismatchError: This is not such a state, or a generator refuses it. Nothing was changed.
    """
    before = {**global_state(), **(_keras_state() if "keras" in state else {})}
    try:
        return _set(state)
    except Exception as error:
        _set(before)
        raise MismatchError(
            "a global random generator refuses its saved state; nothing was changed",
            expected="a state that the same version of the library saved",
            found=f"{type(error).__name__}: {error}",
            remedy="install the version that saved it, or leave the RandomState out of what is restored",
        ) from error


def _set(state: Mapping[str, Any]) -> dict[str, Any]:
    set_python_state(random, state["python"])
    np.random.set_state(state["numpy"])
    kept = {}
    for library, (name, set_state) in _LIBRARIES.items():
        if library not in state:
            continue
        if usable(library) is None:
            warn(
                f"milepost cannot use the installed version of {name}, so its saved random state was not restored; install another"
                if imported(library)
                else f"{name} is not imported, so its saved random state was not restored; import it before restoring",
                UnrestoredWarning,
            )
            kept[library] = state[library]
        else:
            set_state(state[library])
    return kept


def _keras_state() -> dict[str, Any]:
    """The state of Keras 3. The callback for ``fit()`` saves this by itself, so `global_state` does not include it."""
    keras = imported("keras")
    if keras is None or int(keras.__version__.partition(".")[0]) < 3 or not _may_be_saved("keras"):
        return {}
    from milepost.adapters.keras import random_state as keras_state

    library_state = keras_state.global_state()
    return {"keras": library_state} if library_state else {}


def _set_keras(state: Mapping[str, Any]) -> None:
    from milepost.adapters.keras import random_state as keras_state

    keras_state.set_global_state(state)


def _set_tensorflow(state: Mapping[str, Any]) -> None:
    from milepost.adapters.tensorflow import random_state as tensorflow_state

    tensorflow_state.set_global_state(state)


def _set_torch(state: Mapping[str, Any]) -> None:
    torch: Any = imported("torch")
    for device, saved in state.items():
        if device == "cpu":
            torch.set_rng_state(torch.from_numpy(saved.copy()))
            continue
        generators = _generators(torch, device)
        if len(generators) < len(saved):
            warn(
                f"the random state of {len(saved)} {device} devices was saved, and this machine has {len(generators)}; the others "
                "were not restored",
                UnrestoredWarning,
            )
        for generator, array in zip(generators, saved, strict=False):
            generator.set_state(torch.from_numpy(array.copy()))


_LIBRARIES: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], None]]]] = {
    "torch": ("PyTorch", _set_torch),
    "tensorflow": ("TensorFlow", _set_tensorflow),
    "keras": ("Keras", _set_keras),
}
"""Libraries whose state is set only if they are imported: the name in messages, and the function that sets the state."""


def _generators(torch: Any, device: str) -> list[Any]:
    """The default generators of all devices of a kind."""
    module = getattr(torch, device, None)
    if module is None or device not in _DEVICES:
        return []
    if device == "mps":
        available = torch.backends.mps.is_available()
        return [_MPS(module)] if available else []
    if not module.is_available():
        return []
    return [_DeviceGenerator(module, number) for number in range(module.device_count())]


def _is_in_use(torch: Any, device: str) -> bool:
    return device == "mps" or bool(getattr(torch, device).is_initialized())


class _DeviceGenerator:
    """The default generator of a device, by functions that PyTorch has for devices of every kind."""

    def __init__(self, module: Any, number: int) -> None:
        self._module = module
        self._number = number

    def get_state(self) -> Any:
        return self._module.get_rng_state(self._number)

    def set_state(self, state: Any) -> None:
        self._module.set_rng_state(state, self._number)


class _MPS:
    """The generator of the MPS device, of which there is only one."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def get_state(self) -> Any:
        return self._module.get_rng_state()

    def set_state(self, state: Any) -> None:
        self._module.set_rng_state(state)


register(RandomStateAdapter())
