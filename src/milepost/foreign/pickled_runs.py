r"""Finds runs of tensors in pickled data. PyTorch writes each with the same instructions, which differ in their operands only.

::

    run       :=  {name  tensor}                                                   neighbours in one dict
    name      :=  "X" length:u32 text  put
    tensor    :=  function  "(" storage  "Q"  number  sizes put?  strides put?  flag  hooks  "t" put  "R" put
    storage   :=  "(" kind  class  "X" length:u32 digits put  device  number  "t" put
    sizes, strides  :=  ")"  |  number "\x85"  |  number^2 "\x86"  |  number^3 "\x87"  |  "(" number^4... "t"
    number    :=  "K" u8  |  "M" u16  |  "J" i32
    flag      :=  "\x88"  |  "\x89"
    hooks     :=  class ")" "R" put
    function, kind, class, device  :=  "h" u8  |  "j" u32                          what is remembered under this number
    put       :=  "r" u32

To carry out these thirty instructions one after the other takes several times as long as to make what they make. `run_at` only
recognises them, and `values_of` makes what they make. `pickled` counts what they make like that of any other instructions. If one of
them is to fail, and for the first tensors of a file, whose instructions differ, it carries them out one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.coding.varints import Column
from milepost.foreign.byte_stream import U32
from milepost.foreign.opaque import Name

_MOST: Final = 1024
"""The most tensors of a run, so that it takes little memory. Python writes 1000 members of a dict together."""
_TEXT: Final = ord("X")
_PARTS: Final = {
    b"put": rb"r(.{4})",
    b"get": rb"(?:h.|j.{4})",
    b"number": rb"(?:K.|M..|J.{4})",
}
_NUMBERS: Final = rb"(\)|%(number)b\x85|%(number)b{2}\x86|%(number)b{3}\x87|\(%(number)b{4,64}t)(?:%(put)b)?" % _PARTS
_TENSOR: Final = re.compile(
    rb"%(put)b(%(get)b\(\(%(get)b{2})X(.{4})([0-9]{1,20})%(put)b(%(get)b%(number)b)t%(put)bQ(%(number)b)" % _PARTS
    + _NUMBERS * 2
    + rb"([\x88\x89]%(get)b)\)R%(put)bt%(put)bR%(put)b" % _PARTS,
    re.DOTALL,
)
"""The instructions of a tensor, after the text of its name."""


class Run(NamedTuple):
    """The operands of the instructions of tensors. Each column has as many members as there are tensors.

    Attributes:
        names: The names.
        keys: The digits that name the storages.
        heads: What pushes the function, two marks, and the kind and the class of the storage.
        lengths: What pushes the device and the number of elements of the storage.
        offsets: What pushes the position in the storage.
        sizes: What pushes the shape.
        strides: What pushes the strides.
        hooks: What pushes the flag, and the class of the hooks.
        puts: For each tensor eight numbers under which values are remembered: those of the name, the digits, the name of the storage, the
            shape, the strides, the hooks, the arguments and the tensor. An empty one stands for a value that is not remembered.
        end: The position after the last of the instructions.
    """

    names: Sequence[str]
    keys: Sequence[str]
    heads: Sequence[bytes]
    lengths: Sequence[bytes]
    offsets: Sequence[bytes]
    sizes: Sequence[bytes]
    strides: Sequence[bytes]
    hooks: Sequence[bytes]
    puts: Sequence[bytes]
    end: int

    def numbers(self) -> Column:
        """The numbers under which values are remembered."""
        return np.frombuffer(b"".join(self.puts), "<u4").astype(np.int64)


def run_at(data: bytes | memoryview, position: int) -> Run | None:
    """The run that begins at a position, or None if there is none.

    Args:
        data: The pickled data.
        position: Where an instruction begins.
    """
    match, number, last = _TENSOR.match, U32.unpack_from, len(data) - 1 - U32.size
    texts: list[bytes | memoryview] = []
    rows: list[tuple[bytes, ...]] = []
    while position < last and data[position] == _TEXT and len(rows) < _MOST:
        begin = position + 1 + U32.size
        end = begin + number(data, position + 1)[0]
        found = match(data, end)
        if found is None:
            break
        texts.append(data[begin:end])
        rows.append(found.groups(b""))
        position = found.end()
    if not rows:
        return None
    put, heads, widths, keys, put_key, lengths, put_storage, offsets, sizes, put_sizes, strides, *others = zip(
        *rows, strict=True
    )
    put_strides, hooks, *put_others = others
    if [*map(len, keys)] != np.frombuffer(b"".join(widths), "<u4").tolist():
        return None  # digits that are followed by more text
    try:
        names = [str(text, "utf-8", "surrogatepass") for text in texts]
    except UnicodeDecodeError:
        return None
    puts = zip(put, put_key, put_storage, put_sizes, put_strides, *put_others, strict=True)
    return Run(
        names, [str(key, "ascii") for key in keys], heads, lengths, offsets, sizes, strides, hooks,
        [*chain.from_iterable(puts)], position,
    )  # fmt: skip


class Values(NamedTuple):
    """What the instructions of a run make. Each column has as many members as there are tensors.

    Attributes:
        identities: The names of the storages.
        storages: The storages.
        sizes: The shapes.
        strides: The strides.
        hooks: What the hooks are stored in.
        arguments: What the functions are called with.
        tensors: The tensors.
    """

    identities: Sequence[tuple[Any, ...]]
    storages: Sequence[Any]
    sizes: Sequence[tuple[int, ...]]
    strides: Sequence[tuple[int, ...]]
    hooks: Sequence[Any]
    arguments: Sequence[tuple[Any, ...]]
    tensors: Sequence[Any]

    def cost(self) -> int:
        """How many tuples that are not empty, and results of calls, these are."""
        return 5 * len(self.tensors) + sum(map(bool, chain(self.sizes, self.strides)))

    def arguments_of_calls(self) -> tuple[Sequence[Any], ...]:
        """Those arguments of the functions that may have elements."""
        return self.storages, self.sizes, self.strides, self.hooks

    def kinds(self) -> set[type]:
        """The classes of what calls have made."""
        return {*map(type, self.hooks), *map(type, self.tensors)}

    def remembered(self, run: Run) -> Iterator[Any]:
        """The values that are remembered, in the order of `Run.puts`."""
        fields = self.identities, self.sizes, self.strides, self.hooks, self.arguments, self.tensors
        return compress(chain.from_iterable(zip(run.names, run.keys, *fields, strict=True)), run.puts)


def values_of(
    run: Run,
    pushed: Callable[[bytes], Sequence[Any]],
    resolve: Callable[[Sequence[Any]], Sequence[Any]],
    call: Callable[[Sequence[Name], Sequence[tuple[Any, ...]]], Sequence[Any]],
) -> Values:
    """Makes what the instructions of a run make.

    Args:
        run: The run.
        pushed: Returns what some instructions push that take nothing from the stack.
        resolve: Returns the objects of some persistent ids.
        call: Returns the results of some calls.

    Raises:
        TypeError: What is to be called has no name.
        Exception: Whatever the arguments raise.
    """
    operands = {*run.heads, *run.lengths, *run.offsets, *run.sizes, *run.strides, *run.hooks}
    made = {each: pushed(each) for each in operands}

    def columns(operands: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        return zip(*map(made.__getitem__, operands), strict=True)

    functions, _, _, kinds, classes = columns(run.heads)
    devices, lengths = columns(run.lengths)
    (offsets,), (sizes,), (strides,) = map(columns, (run.offsets, run.sizes, run.strides))
    flags, makers = columns(run.hooks)
    if {*map(type, functions), *map(type, makers)} != {Name}:
        raise TypeError("a call of something that has no name")
    identities = [*zip(kinds, classes, run.keys, devices, lengths, strict=True)]
    storages = resolve(identities)
    hooks = call(makers, [()] * len(makers))
    arguments = [*zip(storages, offsets, sizes, strides, flags, hooks, strict=True)]
    return Values(identities, storages, sizes, strides, hooks, arguments, call(functions, arguments))
