"""Reads pickled data without unpickling it: the stream is data here, and nothing it names is imported or called.

The stream is a program for a small stack machine. Of its instructions, those that build plain data are carried out; what it
names stays a name, and calling a name makes one of the few things that `rebuilt` knows. Everything else is refused.

What a stream may hold: one million lists, tuples, dicts, sets, names and calls, and one more for each 16 bytes; two million
places to remember values in; integers of 4096 bytes; keys that are text, numbers or tuples of 100 parts. More is refused, so that
the memory that a stream takes is at most 256 MiB and some 30 times its own length.

Source: the opcodes' descriptions in Python's ``pickletools``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.graph.plain_keys import KeyCheck

_LONGEST_NUMBER: Final = 1 << 12
"""Bytes of an integer."""
_MOST_MEMO: Final = 1 << 21
_MOST_MADE: Final = 1_000_000
_BYTES_EACH: Final = 16
"""Bytes of a stream for each of which there may be one more list, tuple, dict, set, name or call."""
_LONGEST_KEY: Final = 100
"""Members of a tuple or frozen set that is a key; its hash is computed whenever it is used."""
_MOST_COPIED: Final = 64 << 20
"""Elements that calls may copy beside eight times what is there; each takes a few bytes of the stream, however long."""


@dataclass(frozen=True, slots=True)
class Name:
    """Something that the stream names: a class or function, which is not looked up.

    Attributes:
        module: Where it would be.
        name: What it is called there.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def needs_code(name: Name) -> UnsupportedError:
    """The error for a file that can only be read by running code that it names."""
    return UnsupportedError(
        "this file cannot be read without running code that it names, which milepost never does",
        expected="tensors, numbers, text, and lists, tuples, dicts and sets of them",
        found=f"{name!s:.200}",
        remedy=(
            "if you trust whoever made it: load it with torch.load(path, weights_only=False) where nothing else can be "
            "harmed, and save its tensors with milepost, or with torch.save without that object"
        ),
    )


Call = Callable[[Name, tuple[Any, ...]], Any]
"""What calling a name gives."""
Build = Callable[[Any, Any], Any]
"""What setting the state of an object gives."""
Resolve = Callable[[Any], Any]
"""What is meant by something that lies elsewhere in the file."""


def check_keys(keys: Iterable[Any], check: KeyCheck) -> None:
    """Refuses keys of dicts and members of sets that could take for ever: large ones, and many of one hash."""
    keys = list(keys)
    for key in keys:
        if isinstance(key, (tuple, frozenset)):
            if any(isinstance(each, (tuple, frozenset)) for each in key):
                raise ValueError("a key of several levels")
            if len(key) > _LONGEST_KEY:
                raise ValueError(f"a key of more than {_LONGEST_KEY} parts")
    check.add(keys)


class _Mark:
    pass


_MARK: Final = _Mark()


class PickledData:
    """Reads values from a run of bytes.

    Args:
        data: The bytes.
        name: What is to stand for a name: the name itself, or a value.
        call: Makes what calling a name would give.
        build: Gives an object its state.
        resolve: Finds what lies elsewhere.

    Attributes:
        position: Where the next value begins.
        ended_early: Whether reading failed because there are no more bytes.
    """

    def __init__(
        self, data: bytes | memoryview, name: Callable[[Name], Any], call: Call, build: Build, resolve: Resolve
    ) -> None:
        self._data = memoryview(data)
        self.name = name
        self.call = call
        self.build = build
        self.resolve = resolve
        self.position = 0
        self.ended_early = False

    def read(self) -> Any:
        """Reads one value.

        Raises:
            CorruptCheckpointError: The bytes are damaged, or no pickled data.
            UnsupportedError: They ask for something that would take running code.
        """
        try:
            return _Machine(self).run()
        except MilepostError:
            raise
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            struct.error,
            RecursionError,
        ) as error:
            # The data does not fit the instructions, which no intact stream does to them.
            raise CorruptCheckpointError(
                f"the pickled data is damaged at byte {self.position}", found=f"{type(error).__name__}: {error!s:.200}"
            ) from None

    def __len__(self) -> int:
        return len(self._data)

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        end = self.position + count
        if count < 0 or end > len(self._data):
            self.ended_early = True
            raise CorruptCheckpointError(
                "the pickled data ends too early", expected=f"{count} more bytes at byte {self.position}"
            )
        part = self._data[self.position : end]
        self.position = end
        return part

    def line(self) -> str:
        """The bytes up to the end of the line, as text."""
        limit = min(self.position + (1 << 16), len(self._data))
        chunk = bytes(self._data[self.position : limit])
        text, end, _ = chunk.partition(b"\n")
        if not end:
            self.ended_early = limit == len(self._data)
            raise CorruptCheckpointError("the pickled data has a line without an end", found=f"byte {self.position}")
        self.position += len(text) + 1
        return text.decode()


class _Machine:
    def __init__(self, stream: PickledData) -> None:
        self._in = stream
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._may_copy = _MOST_COPIED + 8 * len(stream)
        self._may_make = self._most = _MOST_MADE + len(stream) // _BYTES_EACH
        self._keys = KeyCheck()

    def run(self) -> Any:
        while True:
            code = self._in.take(1)[0]
            if code == _STOP:
                (value,) = self._stack
                return value
            handler = _HANDLERS.get(code)
            if handler is None:
                raise CorruptCheckpointError(
                    f"byte {self._in.position - 1} is no instruction of pickled data that holds plain values",
                    found=f"{code:#04x}",
                )
            handler(self)

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def _pop_to_mark(self) -> list[Any]:
        stack = self._stack
        for position in range(len(stack) - 1, -1, -1):
            if stack[position] is _MARK:
                values = stack[position + 1 :]
                del stack[position:]
                return values
        raise ValueError("no mark")

    def _drop(self) -> None:
        del self._stack[-1]

    def _drop_to_mark(self) -> None:
        self._pop_to_mark()

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_new(self, value: Any) -> None:
        """Pushes something that takes more memory than the bytes that say it."""
        self._may_make -= 1
        if self._may_make < 0:
            raise UnsupportedError(
                "pickled data of too many lists, tuples, dicts, sets and calls",
                expected=f"{self._most} or fewer in {len(self._in)} bytes",
                remedy="save long lists as tensors",
            )
        self._push(value)

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._in.take(struct.calcsize(form)))[0]

    def _skip(self, count: int) -> None:
        self._in.take(count)

    def _protocol(self) -> None:
        if self._in.take(1)[0] > 5:
            raise ValueError("an unknown protocol")

    def _global(self) -> None:
        module = self._in.line()
        self._push_new(self._in.name(Name(module, self._in.line())))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("a name that is no text")
        self._push_new(self._in.name(Name(module, name)))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(arguments, tuple):
            raise TypeError("arguments that are no tuple")
        if not isinstance(function, Name):
            raise TypeError("a call of something that has no name")
        self._count(arguments)
        self._push_new(self._in.call(function, arguments))

    def _build_state(self) -> None:
        state = self._pop()
        self._count(state if isinstance(state, tuple) else (state,))
        self._stack[-1] = self._in.build(self._stack[-1], state)

    def _count(self, copied: tuple[Any, ...]) -> None:
        self._may_copy -= sum(len(each) for each in copied if isinstance(each, _SIZED))
        if self._may_copy < 0:
            raise ValueError("calls that copy far more than there is")

    def _persistent(self) -> None:
        self._push_new(self._in.resolve(self._pop()))

    def _text(self, form: str) -> None:
        self._push(str(self._in.take(self._number(form)), "utf-8", "surrogatepass"))

    def _bytes(self, form: str) -> None:
        self._push(bytes(self._in.take(self._number(form))))

    def _latin(self, form: str) -> None:
        """Text of Python 2, as PyTorch reads it."""
        self._push(str(self._in.take(self._number(form)), "utf-8"))

    def _long(self, form: str) -> None:
        size = self._number(form)
        if size > _LONGEST_NUMBER:
            raise ValueError("an integer of too many digits")
        self._push(int.from_bytes(self._in.take(size), "little", signed=True))

    def _put(self, number: int) -> None:
        if number < 0 or len(self._memo) > _MOST_MEMO:
            raise ValueError("a place that there is not")
        self._memo[number] = self._stack[-1]

    def _get(self, number: int) -> None:
        self._push(self._memo[number])

    def _tuple(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self._push_new(tuple(reversed(values)))

    def _append(self) -> None:
        value = self._pop()
        self._list().append(value)

    def _appends(self) -> None:
        values = self._pop_to_mark()
        self._list().extend(values)

    def _list(self) -> list[Any]:
        target = self._stack[-1]
        if type(target) is not list:
            raise TypeError("no list to append to")
        return target

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        check_keys((key,), self._keys)
        self._dict()[key] = value

    def _set_items(self) -> None:
        values = self._pop_to_mark()
        if len(values) % 2:
            raise ValueError("a key without a value")
        check_keys(values[::2], self._keys)
        self._dict().update(zip(values[::2], values[1::2], strict=True))

    def _dict(self) -> dict[Any, Any]:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise TypeError("no dict to put into")
        return target

    def _new_dict(self) -> None:
        values = self._pop_to_mark()
        check_keys(values[::2], self._keys)
        self._push_new(dict(zip(values[::2], values[1::2], strict=True)))

    def _add_items(self) -> None:
        values = self._pop_to_mark()
        target = self._stack[-1]
        if type(target) is not set:
            raise TypeError("no set to add to")
        check_keys(values, self._keys)
        target.update(values)

    def _frozen_set(self) -> None:
        values = self._pop_to_mark()
        check_keys(values, self._keys)
        self._push_new(frozenset(values))

    def _decimal(self) -> None:
        text = self._in.line()
        if len(text) > _LONGEST_NUMBER:
            raise ValueError("an integer of too many digits")
        self._push({"00": False, "01": True}[text] if text in ("00", "01") else int(text.removesuffix("L")))


def _pushes(value: Any) -> Callable[[_Machine], None]:
    return lambda machine: machine._push(value)


_SIZED: Final = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_STOP: Final = ord(".")
_HANDLERS: Final[dict[int, Callable[[_Machine], None]]] = {
    0x80: _Machine._protocol,
    0x95: lambda m: m._skip(8),  # the length of a frame
    ord("("): _pushes(_MARK),
    ord("0"): _Machine._drop,
    ord("1"): _Machine._drop_to_mark,
    ord("2"): lambda m: m._push(m._stack[-1]),
    ord("N"): _pushes(None),
    0x88: _pushes(True),
    0x89: _pushes(False),
    ord("I"): _Machine._decimal,
    ord("L"): _Machine._decimal,
    ord("J"): lambda m: m._push(m._number("<i")),
    ord("K"): lambda m: m._push(m._number("<B")),
    ord("M"): lambda m: m._push(m._number("<H")),
    0x8A: lambda m: m._long("<B"),
    0x8B: lambda m: m._long("<I"),
    ord("F"): lambda m: m._push(float(m._in.line())),
    ord("G"): lambda m: m._push(m._number(">d")),
    ord("X"): lambda m: m._text("<I"),
    0x8C: lambda m: m._text("<B"),
    0x8D: lambda m: m._text("<Q"),
    ord("U"): lambda m: m._latin("<B"),
    ord("T"): lambda m: m._latin("<I"),
    ord("C"): lambda m: m._bytes("<B"),
    ord("B"): lambda m: m._bytes("<I"),
    0x8E: lambda m: m._bytes("<Q"),
    0x96: lambda m: m._push(bytearray(m._in.take(m._number("<Q")))),
    ord(")"): _pushes(()),
    ord("t"): lambda m: m._push_new(tuple(m._pop_to_mark())),
    0x85: lambda m: m._tuple(1),
    0x86: lambda m: m._tuple(2),
    0x87: lambda m: m._tuple(3),
    ord("]"): lambda m: m._push_new([]),
    ord("l"): lambda m: m._push_new(m._pop_to_mark()),
    ord("a"): _Machine._append,
    ord("e"): _Machine._appends,
    ord("}"): lambda m: m._push_new({}),
    ord("d"): _Machine._new_dict,
    ord("s"): _Machine._set_item,
    ord("u"): _Machine._set_items,
    0x8F: lambda m: m._push_new(set()),
    0x90: _Machine._add_items,
    0x91: _Machine._frozen_set,
    ord("p"): lambda m: m._put(int(m._in.line())),
    ord("q"): lambda m: m._put(m._number("<B")),
    ord("r"): lambda m: m._put(m._number("<I")),
    0x94: lambda m: m._put(len(m._memo)),
    ord("g"): lambda m: m._get(int(m._in.line())),
    ord("h"): lambda m: m._get(m._number("<B")),
    ord("j"): lambda m: m._get(m._number("<I")),
    ord("c"): _Machine._global,
    0x93: _Machine._stack_global,
    ord("R"): _Machine._reduce,
    0x81: _Machine._reduce,  # making an object of a class: the few classes there are may as well be called
    ord("b"): _Machine._build_state,
    ord("Q"): _Machine._persistent,
}
"""By instruction. Those for instances, persistent text and registered extensions are left out."""
