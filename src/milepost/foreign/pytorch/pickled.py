"""Reads pickled data without unpickling it. Nothing that the stream names is imported or called.

The stream is a program for a small stack machine. Its instructions build plain data. A name in the stream stays a name. A call of a
name makes one of the few objects that `rebuilt` knows, or an `Opaque` object that keeps the arguments.

Limits: a stream may have one million lists, tuples, dicts, sets, names and calls, and one more for each 16 bytes; two million
places in which it remembers values, and in a longer stream one for each 8 bytes; and integers of 1024 bytes, since Python refuses to
write much longer ones as text. So it takes at most 256 MiB of memory and about 30 times its own length. A format whose streams are
denser may ask for twice as much. Keys that are tuples of more than 100 parts, or of several levels, become `Opaque`, because hashing
them may take too long.

Source: the opcodes' descriptions in Python's ``pickletools``.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Iterable
from operator import length_hint
from typing import Any, Final

from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.opaque import Name, Opaque
from milepost.plain_state.keys import KeyCheck

_LONGEST_NUMBER: Final = 1 << 10
"""Bytes of an integer. Python refuses to write integers of more than 4300 digits as text, as names and errors need it."""
_MOST_DIGITS: Final = 1 << 12
"""Decimal digits of an integer."""
_MOST_MEMO: Final = 1 << 21
_MOST_MADE: Final = 1_000_000
_BYTES_EACH: Final = 16
"""For each run of this many bytes in the stream, one more list, tuple, dict, set, name or call is allowed."""
_LONGEST_KEY: Final = 100
"""The most members of a tuple or frozen set that is a key. Its hash is computed at each use."""
_MOST_COPIED: Final = 64 << 20
"""How many elements calls may copy in addition to eight times the length of the stream. A few bytes can call for a large copy."""
_FIRST_LINE: Final = 1 << 12
"""How many bytes are searched first for the end of a line."""
_OF_DAMAGE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError, struct.error, RecursionError)
"""What instructions raise whose operands do not fit. This never happens in an intact stream."""


Call = Callable[[Name, tuple[Any, ...]], Any]
"""Returns the result of a call of a name."""
Build = Callable[[Any, Any], Any]
"""Returns an object after its state is set."""
Resolve = Callable[[Any], Any]
"""Returns an object that is elsewhere in the file, given its persistent id."""


class Unbuilt(Opaque):
    """Stands for a value until its state is set. Then the value replaces it, also in the stream's memo."""

    __slots__ = ()


def as_keys(keys: Iterable[Any], check: KeyCheck) -> list[Any]:
    """Keys of dicts and members of sets. Those whose hash may take too long are replaced by `Opaque` objects.

    Args:
        keys: The keys.
        check: Refuses too many keys with the same hash.
    """
    made = []
    for key in keys:
        if isinstance(key, (tuple, frozenset)) and (
            len(key) > _LONGEST_KEY or any(isinstance(each, (tuple, frozenset)) for each in key)
        ):
            key = Opaque(Name("builtins", type(key).__name__), sealed=True)
        made.append(key)
    check.add(made)
    return made


class PickledData:
    """Reads values from a run of bytes.

    Args:
        data: The bytes.
        name: Returns what represents a name: the name itself, or a value.
        call: Returns the result of a call of a name.
        build: Returns an object after its state is set.
        resolve: Returns an object that is elsewhere in the file.
        bytes_each: For each run of this many bytes, one more list, tuple, dict, set, name or call is allowed.

    Attributes:
        position: Where the next instruction begins.
        ended_early: Whether reading failed because there are no more bytes.
    """

    def __init__(
        self,
        data: bytes | memoryview,
        name: Callable[[Name], Any],
        call: Call,
        build: Build,
        resolve: Resolve,
        bytes_each: int = _BYTES_EACH,
    ) -> None:
        self._data = data
        self._name = name
        self._call_name = call
        self._build = build
        self._resolve = resolve
        self._most_made = _MOST_MADE + len(data) // bytes_each
        self._most_memo = max(_MOST_MEMO, 2 * len(data) // bytes_each)
        self.position = 0
        self.ended_early = False

    def read(self) -> Any:
        """Reads one value.

        Raises:
            CorruptCheckpointError: The bytes are damaged, or are not pickled data.
            UnsupportedError: They exceed a limit, or could be read only by running code.
        """
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # for each mark, the values before it
        self._memo: list[Any] = []  # what is remembered under numbers that follow each other from 0 on
        self._others: dict[int, Any] = {}
        self._unbuilt: dict[int, list[int]] = {}
        self._may_copy = _MOST_COPIED + 8 * len(self._data)
        self._may_make = self._most_made
        self._keys = KeyCheck()
        data, handlers, at = self._data, _HANDLERS, self.position
        try:
            while (code := data[at]) != _STOP:
                at = handlers[code](self, at + 1)
            if self._outer:
                raise ValueError("a mark without an end")
            (value,) = self._stack
            self.position = at + 1
            return value
        except MilepostError:
            raise
        except _OF_DAMAGE as error:
            if isinstance(error, struct.error) or at >= len(data):
                raise self._ended(f"more bytes after byte {at}") from None
            raise CorruptCheckpointError(
                f"the pickled data is damaged at byte {at}",
                found="tuples inside each other, too many levels deep"
                if isinstance(error, RecursionError)
                else f"{type(error).__name__}: {error!s:.200}",
            ) from None

    def _ended(self, expected: str) -> CorruptCheckpointError:
        self.ended_early = True
        return CorruptCheckpointError("the pickled data ends too early", expected=expected)

    def _bytes(self, start: int, end: int) -> bytes:
        if end > len(self._data):
            raise self._ended(f"{end - start} more bytes at byte {start}")
        return bytes(self._data[start:end])

    def _line(self, start: int) -> bytes:
        """The bytes up to the end of the line."""
        size = _FIRST_LINE
        while True:
            text, end, _ = bytes(self._data[start : start + size]).partition(b"\n")
            if end:
                return text
            if start + size >= len(self._data):
                raise self._ended(f"the end of the line at byte {start}")
            size *= 4

    def _too_many(self) -> UnsupportedError:
        return UnsupportedError(
            "the pickled data has too many lists, tuples, dicts, sets and calls",
            expected=f"{self._most_made} or fewer in {len(self._data)} bytes",
            remedy="save long lists as tensors",
        )

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_new(self, value: Any) -> None:
        """Pushes an object that takes more memory than its bytes in the stream."""
        self._may_make -= 1
        if self._may_make < 0:
            raise self._too_many()
        self._stack.append(value)

    def _mark(self, at: int) -> int:
        if len(self._outer) >= self._may_make:
            raise self._too_many()
        self._outer.append(self._stack)
        self._stack = []
        return at

    def _members(self) -> list[Any]:
        """The values after the last mark, which are taken from the stack with it."""
        members, self._stack = self._stack, self._outer.pop()
        return members

    def _drop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._members()

    def _repeat(self) -> None:
        self._stack.append(self._stack[-1])

    def _protocol(self, version: int) -> None:
        if version > 5:
            raise ValueError("an unknown protocol")

    def _text(self, data: bytes) -> None:
        self._stack.append(str(data, "utf-8", "surrogatepass"))

    def _latin(self, data: bytes) -> None:
        """Pushes a string of Python 2, which has one class for text and bytes: as text if it is UTF-8, and otherwise as bytes. PyTorch does
        the same."""
        try:
            self._stack.append(data.decode())
        except UnicodeDecodeError:
            self._stack.append(data)

    def _quoted(self, line: bytes) -> None:
        """Pushes text of Python 2, in quotes and with escapes."""
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise ValueError("text without quotes")
        self._latin(codecs.escape_decode(line[1:-1])[0])

    def _escaped(self, line: bytes) -> None:
        self._stack.append(codecs.raw_unicode_escape_decode(line)[0])

    def _long(self, data: bytes) -> None:
        if len(data) > _LONGEST_NUMBER:
            raise _too_many_digits()
        self._stack.append(int.from_bytes(data, "little", signed=True))

    def _decimal(self, line: bytes) -> None:
        if len(line) > _MOST_DIGITS:
            raise _too_many_digits()
        self._stack.append(line == b"01" if line in (b"00", b"01") else int(line.removesuffix(b"L")))

    def _put(self, number: int) -> None:
        """Remembers the last value under a number."""
        value, memo = self._stack[-1], self._memo
        if number == len(memo) and not self._others and number <= self._most_memo:
            memo.append(value)
        elif number >= 0 and len(memo) + len(self._others) <= self._most_memo:
            self._remember(number, value)
        else:
            raise ValueError("a place in the memo that does not exist")
        if isinstance(value, Unbuilt):
            self._unbuilt.setdefault(id(value), []).append(number)

    def _remember(self, number: int, value: Any) -> None:
        if number < len(self._memo):
            self._memo[number] = value
        else:
            self._others[number] = value

    def _memoize(self) -> None:
        self._put(len(self._memo) + len(self._others))

    def _get(self, number: int) -> None:
        self._stack.append(self._memo[number] if 0 <= number < len(self._memo) else self._others[number])

    def _tuple(self, at: int) -> int:
        self._push_new(tuple(self._members()))
        return at

    def _name_of(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name that is not text")
        self._push_new(self._name(Name(module, name)))

    def _stack_name(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._name_of(module, name)

    def _extension(self, number: int) -> None:
        self._push_new(Name("copyreg", f"extension {number}"))

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._call(function, arguments)

    def _call(self, function: Any, arguments: Any) -> None:
        if not isinstance(arguments, tuple):
            raise TypeError("arguments that are not a tuple")
        if isinstance(function, Name):
            value = self._call_name(function, arguments)
            if arguments and not isinstance(value, Opaque):
                self._count(arguments)
        elif isinstance(function, Opaque):
            value = Opaque(function.name, (function, arguments))
        else:
            raise TypeError("a call of something that has no name")
        self._push_new(value)

    def _count(self, copied: tuple[Any, ...]) -> None:
        self._may_copy -= sum(map(length_hint, copied))
        if self._may_copy < 0:
            raise ValueError("calls that copy far more than the stream holds")

    def _new_with_keywords(self) -> None:
        keywords, arguments, kind = self._stack.pop(), self._stack.pop(), self._stack.pop()
        if not isinstance(kind, Name):
            raise TypeError("an object without a class")
        self._push_new(Opaque(kind, (arguments, keywords)))

    def _object(self) -> None:
        kind, *arguments = self._members()
        self._call(kind, tuple(arguments))

    def _build_state(self) -> None:
        state, obj = self._stack.pop(), self._stack.pop()
        built = self._build(obj, state)
        if built is not obj:
            self._count(state if isinstance(state, tuple) else (state,))
            for number in self._unbuilt.pop(id(obj), ()):
                self._remember(number, built)
        self._stack.append(built)

    def _persistent(self) -> None:
        self._push_new(self._resolve(self._stack.pop()))

    def _append(self) -> None:
        value = self._stack.pop()
        self._extend([value])

    def _appends(self) -> None:
        self._extend(self._members())

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Opaque):
            target.items = [] if target.items is None else target.items
            target.items += values
        elif type(target) is list:
            target.extend(values)
        else:
            raise TypeError("an append to something that is not a list")

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def _set_items(self) -> None:
        self._update(self._members())

    def _update(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Opaque):
            target.entries = [] if target.entries is None else target.entries
            target.entries += self._pairs(values)
        elif isinstance(target, dict):
            target.update(self._pairs(values))
        else:
            raise TypeError("an item set in something that is not a dict")

    def _pairs(self, values: list[Any]) -> Iterable[tuple[Any, Any]]:
        return zip(as_keys(values[::2], self._keys), values[1::2], strict=True)

    def _new_dict(self) -> None:
        self._push_new(dict(self._pairs(self._members())))

    def _add_items(self) -> None:
        values = self._members()
        target = self._stack[-1]
        if isinstance(target, Opaque):
            target.items = [] if target.items is None else target.items
            target.items += values
        elif type(target) is set:
            target.update(as_keys(values, self._keys))
        else:
            raise TypeError("an addition to something that is not a set")

    def _frozen_set(self) -> None:
        self._push_new(frozenset(as_keys(self._members(), self._keys)))


def _too_many_digits() -> UnsupportedError:
    return UnsupportedError(
        "an integer has too many digits",
        expected=f"at most {_LONGEST_NUMBER} bytes, or {_MOST_DIGITS} decimal digits",
        remedy="save it as text",
    )


_Handler = Callable[[PickledData, int], int]
"""Carries out an instruction. Its argument is the position after the byte of the instruction, and its result that of the next one."""


def _alone(carry_out: Callable[[PickledData], Any]) -> _Handler:
    """An instruction that nothing follows."""

    def handler(data: PickledData, at: int) -> int:
        carry_out(data)
        return at

    return handler


def _pushing(value: Any) -> _Handler:
    """An instruction that pushes a value that is not in the stream."""

    def handler(data: PickledData, at: int) -> int:
        data._stack.append(value)
        return at

    return handler


def _tuple_of(count: int) -> _Handler:
    """An instruction that makes a tuple of the last values."""

    def handler(data: PickledData, at: int) -> int:
        stack = data._stack
        values = tuple(stack[-count:])
        if len(values) < count:
            raise ValueError("fewer values than a tuple needs")
        del stack[-count:]
        data._push_new(values)
        return at

    return handler


def _with_number(form: struct.Struct, carry_out: Callable[[PickledData, Any], None]) -> _Handler:
    """An instruction that a number follows."""
    read, size = form.unpack_from, form.size

    def handler(data: PickledData, at: int) -> int:
        carry_out(data, read(data._data, at)[0])
        return at + size

    return handler


def _with_bytes(form: struct.Struct, carry_out: Callable[[PickledData, bytes], None]) -> _Handler:
    """An instruction that bytes follow, after their number."""
    read, size = form.unpack_from, form.size

    def handler(data: PickledData, at: int) -> int:
        start = at + size
        end: int = start + read(data._data, at)[0]
        carry_out(data, data._bytes(start, end))
        return end

    return handler


def _with_line(carry_out: Callable[[PickledData, bytes], None]) -> _Handler:
    """An instruction that a line of text follows."""

    def handler(data: PickledData, at: int) -> int:
        line = data._line(at)
        carry_out(data, line)
        return at + len(line) + 1

    return handler


def _with_name(carry_out: Callable[[PickledData, str, str], None]) -> _Handler:
    """An instruction that a module and a name follow, each in a line."""

    def handler(data: PickledData, at: int) -> int:
        module = data._line(at)
        name = data._line(at + len(module) + 1)
        carry_out(data, module.decode(), name.decode())
        return at + len(module) + len(name) + 2

    return handler


def _unknown(data: PickledData, at: int) -> int:
    raise CorruptCheckpointError(
        f"byte {at - 1} is not an instruction of pickled data", found=f"{data._data[at - 1]:#04x}"
    )


_STOP: Final = ord(".")
_U8, _U16, _U32, _U64 = map(struct.Struct, ("<B", "<H", "<I", "<Q"))
_I32, _F64 = struct.Struct("<i"), struct.Struct(">d")
_Data = PickledData
_INSTRUCTIONS: Final[dict[int, _Handler]] = {
    0x80: _with_number(_U8, _Data._protocol),
    0x95: lambda data, at: at + _U64.size,  # the length of a frame
    ord("("): _Data._mark,
    ord("0"): _alone(_Data._drop),
    ord("1"): _alone(_Data._members),
    ord("2"): _alone(_Data._repeat),
    ord("N"): _pushing(None),
    0x88: _pushing(True),
    0x89: _pushing(False),
    ord("I"): _with_line(_Data._decimal),
    ord("L"): _with_line(_Data._decimal),
    ord("J"): _with_number(_I32, _Data._push),
    ord("K"): _with_number(_U8, _Data._push),
    ord("M"): _with_number(_U16, _Data._push),
    0x8A: _with_bytes(_U8, _Data._long),
    0x8B: _with_bytes(_U32, _Data._long),
    ord("F"): _with_line(lambda data, line: data._push(float(line))),
    ord("G"): _with_number(_F64, _Data._push),
    ord("X"): _with_bytes(_U32, _Data._text),
    0x8C: _with_bytes(_U8, _Data._text),
    0x8D: _with_bytes(_U64, _Data._text),
    ord("V"): _with_line(_Data._escaped),
    ord("S"): _with_line(_Data._quoted),
    ord("U"): _with_bytes(_U8, _Data._latin),
    ord("T"): _with_bytes(_U32, _Data._latin),
    ord("C"): _with_bytes(_U8, _Data._push),
    ord("B"): _with_bytes(_U32, _Data._push),
    0x8E: _with_bytes(_U64, _Data._push),
    0x96: _with_bytes(_U64, lambda data, content: data._push(bytearray(content))),
    ord(")"): _pushing(()),
    ord("t"): _Data._tuple,
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("]"): _alone(lambda data: data._push_new([])),
    ord("l"): _alone(lambda data: data._push_new(data._members())),
    ord("a"): _alone(_Data._append),
    ord("e"): _alone(_Data._appends),
    ord("}"): _alone(lambda data: data._push_new({})),
    ord("d"): _alone(_Data._new_dict),
    ord("s"): _alone(_Data._set_item),
    ord("u"): _alone(_Data._set_items),
    0x8F: _alone(lambda data: data._push_new(set())),
    0x90: _alone(_Data._add_items),
    0x91: _alone(_Data._frozen_set),
    ord("p"): _with_line(lambda data, line: data._put(int(line))),
    ord("q"): _with_number(_U8, _Data._put),
    ord("r"): _with_number(_U32, _Data._put),
    0x94: _alone(_Data._memoize),
    ord("g"): _with_line(lambda data, line: data._get(int(line))),
    ord("h"): _with_number(_U8, _Data._get),
    ord("j"): _with_number(_U32, _Data._get),
    ord("c"): _with_name(_Data._name_of),
    0x93: _alone(_Data._stack_name),
    ord("R"): _alone(_Data._reduce),
    0x81: _alone(_Data._reduce),  # makes an object of a class, which is the same as a call for the few classes here
    0x92: _alone(_Data._new_with_keywords),
    ord("i"): _with_name(lambda data, module, name: data._call(Name(module, name), tuple(data._members()))),
    ord("o"): _alone(_Data._object),
    0x82: _with_number(_U8, _Data._extension),
    0x83: _with_number(_U16, _Data._extension),
    0x84: _with_number(_I32, _Data._extension),
    ord("b"): _alone(_Data._build_state),
    ord("Q"): _alone(_Data._persistent),
}
"""What carries out each instruction. Those for persistent ids as text, and for data outside the stream, are not supported."""
_HANDLERS: Final = tuple(_INSTRUCTIONS.get(code, _unknown) for code in range(256))
"""The same by byte."""
