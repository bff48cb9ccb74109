"""The contract between milepost and the objects it saves, and the registry of adapters.

An `Adapter` tells milepost how to save and restore one kind of object. Its parts are in `milepost.graph.contract`, one
subject in each file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from milepost.errors import MilepostError, UnsupportedError
from milepost.graph.contract import Arrays, Completeness, Contents, DeferredChildren, Matching, Slots
from milepost.graph.contract.operation import Operation
from milepost.graph.contract.values import ANY_SHAPE as ANY_SHAPE
from milepost.graph.contract.values import Array as Array
from milepost.graph.contract.values import Shape as Shape
from milepost.graph.contract.values import StoredTensor as StoredTensor
from milepost.graph.contract.values import Value as Value
from milepost.graph.frameworks import import_adapters, refuse_registered, refuse_type, register_registry
from milepost.graph.remedies import adapter_failed, cannot_be_read


class Adapter(Contents, Matching, Slots, DeferredChildren, Completeness, Arrays):
    """Tells milepost how to save and restore one kind of object. Derive a class, override the methods that apply to the
    objects, and `register` an instance of the class.

    One instance serves all objects of the kind, and holds no state of theirs. Only `handles` must be overridden. An adapter of
    objects with tensors overrides `values` and `assign`; one of objects with parts overrides `children`. All other methods
    concern some kinds only. Each base class has one subject.

    ``handles`` is called once for each type, and ``tracks`` whenever an object is met. All other methods are called in the
    order of the lists below. A method that an adapter does not override may be skipped (`overrides`). Each line is carried out
    for all objects before the next line. Methods in one line are called in this order for each object. "Nearest first" means
    breadth first from the root.

    When an object becomes an attribute of a `Checkpoint` or `Module`:

    - at once: ``on_attached``

    A save:

    - the walk, each object, nearest first: ``children``, ``skipped_by_tensorflow``, ``unfinished``
    - each object: ``has_slots``
    - each optimizer: ``slot_names``, ``slot`` for each name and each leaf, and ``children`` of the slot variable, which
      must be empty
    - completeness, each object, if something above has not accounted for it: ``account``
    - each object: ``on_attached``
    - each object: ``hints_to_save``
    - the values, each object, lower turns first: ``values_to_save``, then `Value.source` of each

    An asynchronous save copies what it got from `Value.source` before it returns, and calls nothing after that.

    A restore:

    - the match, each object that has a saved counterpart, nearest first: ``values``, ``children``, ``aliases``, ``unwanted``
    - each object that has no child for a saved edge, by any name: ``stand_ins``
    - each object that has a saved counterpart: ``removable_slots``
    - each saved slot variable: ``has_slots`` and ``slot``; if there is one, ``slot_fits``, else ``before_make_slot`` and ``make_slot``;
      then ``values`` of it
    - each object, if anything live was not saved: ``slot_names``, ``has_stepped``
    - the check of types and shapes, which calls nothing
    - each object that values are assigned to: ``may_refuse``
    - the check of all bytes, which calls nothing; so far no value has changed
    - each of these objects, those that may refuse first: ``before_assign``, ``assign``
    - the holders, if anything has got a successor: ``children``, ``replace``
    - each object of the match, nearest first: ``loads_saved``
    - each slot variable that is removed: ``before_make_slot``, ``drop_slot``
    - each value that is deferred for a child or slot variable, its holder: ``on_deferred``
    - each object of the match, nearest first: ``on_restored``
    - each object for which anything is deferred: ``aliases``, to see what older restores have deferred there

    ``children``, ``aliases`` and ``unwanted`` are not called for leaves, nor if nothing was saved below an object. Objects
    whose values all have a `Value.destination` are asked neither ``may_refuse`` nor to ``assign``. Their values are read into memory when
    all others have been assigned. Of an object that may not refuse, ``before_assign`` is called only as long as there is room for
    old values.

    A deferred restore, when a hook calls `milepost.adapters.restore_children` for an object:

    - the object: ``stand_ins``, ``children``
    - each new child for which a value is deferred: all lines of a restore, from the child on
    - the object: ``replace`` if a child got a successor, and ``on_restored``

    `milepost.adapters.restore_child` and `milepost.adapters.restore_slot` carry out the second of these lines alone.

    A restore that fails after the check is undone in reverse order:

    - the holders get their old children: ``replace``
    - the objects get their old values, by what ``before_assign`` returned, which calls ``assign`` if it is not overridden
    - the slot variables that were made are removed, by what ``before_make_slot`` returned: ``drop_slot`` if that is not overridden
    - each object for which it was called: ``on_restored``

    A report or an assertion of the status:

    - if anything is deferred: a walk that finds the objects made since, and for these the lines of a deferred restore
    - each object that was restored: ``exchanged``, ``slot``
    - each object that was restored: ``converted``
    - each object: ``has_slots``
    - the first four lines of a save
    - each object of which not all values were restored: ``values``

    At other times: ``during`` for each type, when a save, restore, report or assertion first meets an object of it; ``omission`` for each object that ``tracks`` has said no to, at the end of a walk; ``share_slot``
    instead of ``make_slot``, if one slot variable was saved for two variables; ``is_value``, ``is_new_array`` and
    ``new_array`` wherever milepost looks for arrays in lists and dicts; ``of_first_process`` for each object before its
    values, in a save of several processes; ``frozen`` for each object before its values, in a save with a base, and ``version`` for each object
    that such a save leaves out, or that a restore compares with the base; ``converted`` for each object that was restored, before an optimizer that
    comes later; ``reshaped`` and ``adapted`` for each object of the match, after the check, if a saved shape does not fit;
    ``load_saved`` where ``loads_saved`` was true, directly after it; the first four lines of a save, if ``removable_slots`` has listed any that the checkpoint does not have.

    Example:
        >>> import milepost, numpy as np
        >>> from milepost.adapters import Adapter, DType, Value, register, unregister
        >>> class Dial:
        ...     angle = 0.0
        >>> class DialAdapter(Adapter):
        ...     leaf = True
        ...     def handles(self, kind):
        ...         return kind is Dial
        ...     def values(self, dial):
        ...         return [Value("angle", DType.of("float64"), (), lambda: np.array(dial.angle))]
        ...     def assign(self, dial, arrays):
        ...         dial.angle = arrays["angle"].item()
        ...         return dial
        >>> adapter = DialAdapter()
        >>> register(adapter)
        >>> dial = Dial()
        >>> dial.angle = 0.5
        >>> path = milepost.Checkpoint(dial=dial).write("dials/ckpt")
        >>> dial.angle = 0.75
        >>> status = milepost.Checkpoint(dial=dial).read(path).assert_consumed()
        >>> dial.angle
        0.5
        >>> unregister(adapter)                             # so that other examples do without it
    """

    overrides: ClassVar[frozenset[str]] = frozenset()
    """Names of the methods that the class overrides. The others need not be called."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.overrides = frozenset(name for name in _METHODS if getattr(cls, name) is not getattr(Adapter, name))


_METHODS: Final = [name for name in dir(Adapter) if not name.startswith("_") and callable(getattr(Adapter, name))]

_MISSING: Final = object()


class Registry:
    """The adapters, and what follows from them for each type that was met. When they change, both are replaced.

    What another thread finds meanwhile goes to the old tables.

    Attributes:
        adapters: In the order in which they are asked.
        functional: Whether any is for values that never change.
        by_type: The adapters of types, or None where there is none.
        kinds: What `milepost.graph.trees.places` has found for types.
    """

    adapters: Sequence[Adapter]
    functional: bool
    by_type: dict[type, Adapter | None]
    kinds: dict[type, Any]

    def __init__(self) -> None:
        self.change(())

    def change(self, adapters: Sequence[Adapter]) -> None:
        """Replaces all adapters."""
        self.adapters = adapters
        self.functional = any(each.functional for each in adapters)
        self.by_type = {}
        self.kinds = {}


registry: Final = Registry()


def register(adapter: Adapter, *, last: bool = False) -> None:
    """Adds an adapter. Adapters that are added later are asked first, so that one can refine an earlier one.

    It also applies to existing objects, since adapters are asked in each save and restore. Values that were deferred for such
    objects arrive when the program asks the status for a report or an assertion. Two steps are not repeated for objects that
    have already been assigned to an attribute of a `Checkpoint` or `Module`: `Adapter.on_attached`, and the rule that lists and
    dicts of values that never change (`Adapter.functional`) are not wrapped.

    Args:
        adapter: The adapter.
        last: Whether it is asked after all others. Use this for an adapter of objects that no other adapter handles.

    Raises:
        UnsupportedError: The object is not an adapter.

    Example:
        >>> from milepost.adapters import Adapter, register, unregister
        >>> class Gauge: ...
        >>> class GaugeAdapter(Adapter):
        ...     def handles(self, kind):
        ...         return issubclass(kind, Gauge)
        >>> adapter = GaugeAdapter()
        >>> register(adapter)
        >>> adapter_of(Gauge()) is adapter
        True
        >>> unregister(adapter)
    """
    if not isinstance(adapter, Adapter):
        is_class = isinstance(adapter, type)
        raise UnsupportedError(
            "only an adapter can be registered",
            expected="an object of a subclass of milepost.adapters.Adapter",
            found=f"the class {adapter.__name__}" if is_class else f"an object of type {type(adapter).__name__}",
            remedy=f"register({adapter.__name__}())" if is_class else "derive its class from milepost.adapters.Adapter",
        )
    others = registry.adapters
    registry.change((*others, adapter) if last else (adapter, *others))


def unregister(adapter: Adapter) -> None:
    """Undoes `register`, for example at the end of a test. Restored objects stay restored.

    Args:
        adapter: The registered adapter.

    Raises:
        ValueError: The adapter is not registered.
    """
    if adapter not in registry.adapters:
        raise ValueError(f"this {type(adapter).__name__} is not registered")
    first = registry.adapters.index(adapter)
    registry.change((*registry.adapters[:first], *registry.adapters[first + 1 :]))


def is_anything_functional() -> bool:
    """Whether any adapter is for values that never change."""
    return registry.functional


def adapter_of_type(kind: type) -> Adapter | None:
    """The adapter for objects of exactly this type. None if they are not trackable.

    Raises:
        AdapterError: The type belongs to a framework whose installed version milepost cannot use.
    """
    known = registry.by_type.get(kind, _MISSING)
    if known is not _MISSING:
        return known  # type: ignore[return-value]
    import_adapters()
    refuse_type(kind)
    answers = registry.by_type
    found = next((adapter for adapter in registry.adapters if _handles(adapter, kind)), None)
    if found is None:
        refuse_registered(kind)
    answers[kind] = found
    return found


def _handles(adapter: Adapter, kind: type) -> bool:
    try:
        return adapter.handles(kind)
    except MilepostError:
        raise
    except Exception as error:
        raise adapter_failed(adapter, "handles", error).with_context(key=f"the type {kind.__qualname__}") from error


def adapter_of(obj: object) -> Adapter | None:
    """The adapter for an object, or None if milepost does not save such objects.

    Args:
        obj: Any object.

    Raises:
        AdapterError: The object belongs to a framework whose installed version milepost cannot use.

    Example:
        >>> import numpy as np
        >>> type(adapter_of(np.zeros(3))).__name__
        'NumpyArrayAdapter'
    """
    adapter = adapter_of_type(type(obj))
    if adapter is not None and "tracks" in adapter.overrides and not adapter.tracks(obj):
        return None
    return adapter


def adapter_of_type_during(operation: Operation, kind: type) -> Adapter | None:
    """The adapter for objects of exactly this type that one operation uses (`Adapter.during`). Errors are those of `adapter_of_type`."""
    found = operation.adapters.get(kind)
    if found is None:
        found = adapter_of_type(kind)
        if found is not None and "during" in found.overrides:
            found = operation.adapters[kind] = found.during(operation)
    return found


def adapter_during(operation: Operation, obj: object) -> Adapter | None:
    """The adapter for an object that one operation uses. None if milepost does not save such objects."""
    adapter = adapter_of_type_during(operation, type(obj))
    if adapter is not None and "tracks" in adapter.overrides and not adapter.tracks(obj):
        return None
    return adapter


def values_of(adapter: Adapter, obj: Any) -> Sequence[Value]:
    """The values of one object.

    Raises:
        UntrackableError: The object raises an error when its values are read.
    """
    try:
        return adapter.values(obj) if "values" in adapter.overrides else ()
    except MilepostError:
        raise
    except Exception as error:
        raise cannot_be_read(obj, error, adapter, "values") from error


def adapter_of_array_type(name: str) -> Adapter | None:
    """The adapter for arrays whose type has this name in the object graph. None while its framework is not imported."""
    if not name:
        return None
    import_adapters()
    return next((adapter for adapter in registry.adapters if adapter.array_type == name), None)


def _snapshot() -> Callable[[], None]:
    return partial(registry.change, registry.adapters)


register_registry(_snapshot)
