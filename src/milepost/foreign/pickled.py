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
import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.byte_stream import F64, I32, U8, U16, U32, U64, ByteStream
from milepost.foreign.opaque import Name, Opaque
from milepost.foreign.pickled_runs import run_at, values_of
from milepost.plain_state.keys import KeyCheck

_LONGEST_NUMBER: Final = 1 << 10
"""Bytes of an integer. Python refuses to write integers of more than 4300 digits as text, as names and errors need it."""
_MOST_DIGITS: Final = 1 << 12
"""Decimal digits of an integer."""
_MOST_MEMO: Final = 1 << 21
_MOST_MADE: Final = 1_000_000
BYTES_EACH: Final = 16
"""For each run of this many bytes in the stream, one more list, tuple, dict, set, name or call is allowed."""
_LONGEST_KEY: Final = 100
"""The most members of a tuple or frozen set that is a key. Its hash is computed at each use."""
_MOST_COPIED: Final = 64 << 20
"""How many elements calls may copy in addition to eight times the length of the stream. A few bytes can call for a large copy."""
_SIZED: Final = (tuple, dict, str, bytes, bytearray, list, set, frozenset)
_OF_DAMAGE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError, struct.error, RecursionError)
"""What instructions raise whose operands do not fit. This never happens in an intact stream."""


Call = Callable[[Name, tuple[Any, ...]], Any]
"""Returns the result of a call of a name."""
Build = Callable[[Any, Any], Any]
"""Returns an object after its state is set."""
Resolve = Callable[[Any], Any]
"""Returns an object that is elsewhere in the file, given its persistent id."""
CallAll = Callable[[Sequence[Name], Sequence[tuple[Any, ...]]], Sequence[Any]]
"""Returns the results of calls, as `Call` does for each of them."""
ResolveAll = Callable[[Sequence[Any]], Sequence[Any]]
"""Returns objects that are elsewhere in the file, as `Resolve` does for each of them."""


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


def _elements_of(values: Sequence[Any]) -> int:
    """How many elements those of some values have that are containers."""
    kinds = {*map(type, values)}
    sized = {*filter(_is_sized, kinds)}
    if sized == kinds:
        return sum(map(len, values))
    return sum(len(each) for each in values if type(each) in sized)


@functools.cache
def _is_sized(kind: type) -> bool:
    return issubclass(kind, _SIZED)


@functools.cache
def _is_opaque(kind: type) -> bool:
    return issubclass(kind, Opaque)


class _Mark:
    pass


_MARK: Final = _Mark()


class PickledData(ByteStream):
    """Reads values from a run of bytes.

    Args:
        data: The bytes.
        name: Returns what represents a name: the name itself, or a value.
        call: Returns the result of a call of a name.
        build: Returns an object after its state is set.
        resolve: Returns an object that is elsewhere in the file.
        bytes_each: For each run of this many bytes, one more list, tuple, dict, set, name or call is allowed.
        call_all: The same as ``call`` for many calls, if that is faster than one after the other.
        resolve_all: The same as ``resolve`` for many objects.
    """

    def __init__(
        self,
        data: bytes | memoryview,
        name: Callable[[Name], Any],
        call: Call,
        build: Build,
        resolve: Resolve,
        bytes_each: int = BYTES_EACH,
        *,
        call_all: CallAll | None = None,
        resolve_all: ResolveAll | None = None,
    ) -> None:
        super().__init__(data)
        self.bytes_each = bytes_each
        self.name = name
        self.call = call
        self.build = build
        self.resolve = resolve
        self.call_all = call_all or (lambda names, arguments: [*map(call, names, arguments)])
        self.resolve_all = resolve_all or (lambda identities: [*map(resolve, identities)])

    def read(self) -> Any:
        """Reads one value.

        Raises:
            CorruptCheckpointError: The bytes are damaged, or are not pickled data.
            UnsupportedError: They exceed a limit, or could be read only by running code.
        """
        try:
            return _Machine(self).run()
        except MilepostError:
            raise
        except _OF_DAMAGE as error:
            raise CorruptCheckpointError(
                f"the pickled data is damaged at byte {self.position}",
                found="tuples inside each other, too many levels deep"
                if isinstance(error, RecursionError)
                else f"{type(error).__name__}: {error!s:.200}",
            ) from None


class _Machine:
    def __init__(self, stream: PickledData) -> None:
        self._in = stream
        self._stack: list[Any] = []
        self._marks: list[int] = []  # where the marks are in the stack
        self._memo: list[Any] = []  # what is remembered under numbers that follow each other from 0 on
        self._others: dict[int, Any] = {}
        self._unbuilt: dict[int, list[int]] = {}
        self._may_copy = _MOST_COPIED + 8 * len(stream)
        self._may_make = self._most = _MOST_MADE + len(stream) // stream.bytes_each
        self._most_memo = max(_MOST_MEMO, 2 * len(stream) // stream.bytes_each)
        self._keys = KeyCheck()

    def run(self) -> Any:
        stream, handlers = self._in, _HANDLERS
        while True:
            self._run_frequent()
            code = stream.byte()
            handler = handlers.get(code)
            if handler is None:
                if code == _STOP:
                    (value,) = self._stack
                    return value
                raise CorruptCheckpointError(
                    f"byte {self._in.position - 1} is not an instruction of pickled data",
                    found=f"{code:#04x}",
                )
            handler(self)

    def _run_frequent(self) -> None:  # noqa: C901, PLR0915 - most of the time of opening a file is spent here, and calls would add to it
        """Carries out instructions until the last few bytes, or until one is to fail or is unusual. The instructions that are
        frequent in files of PyTorch and DCP are carried out here, all others by their handlers."""
        stream, stack, memo, others, marks = self._in, self._stack, self._memo, self._others, self._marks
        data, position, handlers = stream.data, stream.position, _HANDLERS
        long, most_memo = U32.unpack_from, self._most_memo
        limit = len(data) - 1 - U32.size  # before it, an instruction and its number are there
        while position < limit:
            code = data[position]
            if code == _LONG_PUT or code == _PUT:  # noqa: SIM109 - faster than making a tuple
                value = stack[-1] if stack else _MARK
                number = long(data, position + 1)[0] if code == _LONG_PUT else data[position + 1]
                if (
                    value is _MARK
                    or isinstance(value, Unbuilt)
                    or number != len(memo)
                    or number + len(others) > most_memo
                ):
                    break
                memo.append(value)
                position += 5 if code == _LONG_PUT else 2
            elif code == _MEMOIZE:
                value = stack[-1] if stack else _MARK
                if value is _MARK or isinstance(value, Unbuilt) or others or len(memo) > most_memo:
                    break
                memo.append(value)
                position += 1
            elif code == _GET or code == _LONG_GET:  # noqa: SIM109
                number = long(data, position + 1)[0] if code == _LONG_GET else data[position + 1]
                if number >= len(memo):
                    break
                stack.append(memo[number])
                position += 5 if code == _LONG_GET else 2
            elif code == _BYTE:
                stack.append(data[position + 1])
                position += 2
            elif code == _SET_MARK:
                marks.append(len(stack))
                stack.append(_MARK)
                position += 1
                if data[position] == _TEXT:
                    position = self._carry_out_run(position)
            elif code == _TEXT or code == _SHORT_TEXT:  # noqa: SIM109
                start = position + (5 if code == _TEXT else 2)
                end = start + (long(data, position + 1)[0] if code == _TEXT else data[position + 1])
                if end > limit:
                    break
                stream.position = position
                stack.append(str(data[start:end], "utf-8", "surrogatepass"))
                position = end
            elif code == _TUPLE:
                if not marks or not self._may_make:
                    break
                self._may_make -= 1
                start = marks.pop()
                stack[start:] = (tuple(stack[start + 1 :]),)
                position += 1
            elif code == _TUPLE_OF_ONE:
                if not stack or stack[-1] is _MARK or not self._may_make:
                    break
                self._may_make -= 1
                stack[-1] = (stack[-1],)
                position += 1
            elif code == _FALSE:
                stack.append(False)
                position += 1
            elif code == _NO_MEMBERS:
                stack.append(())
                position += 1
            else:
                handler = handlers.get(code)
                if handler is None:
                    break
                stream.position = position + 1
                handler(self)
                position = stream.position
        stream.position = position

    def _carry_out_run(self, position: int) -> int:
        """Carries out the instructions of a run of tensors together.

        Returns:
            Where the run ends. Where it begins, if there is none, or if one of its instructions is to fail or is unusual: then nothing has
            changed, and they are carried out one by one.
        """
        run = run_at(self._in.data, position)
        if run is None or not self._are_next(run.numbers()):
            return position
        try:
            made = values_of(run, self._pushed, self._in.resolve_all, self._in.call_all)
        except (MilepostError, *_OF_DAMAGE):
            return position
        copied = sum(map(_elements_of, made.arguments_of_calls()))
        if made.cost() > self._may_make or copied > self._may_copy or any(map(_is_opaque, made.kinds())):
            return position
        self._may_make -= made.cost()
        self._may_copy -= copied
        self._memo += made.remembered(run)
        self._stack += chain.from_iterable(zip(run.names, made.tensors, strict=True))
        return run.end

    def _are_next(self, numbers: Column) -> bool:
        """Whether values of these numbers may be remembered after all that are."""
        first = len(self._memo)
        following = np.arange(first, first + len(numbers))
        return not self._others and first + len(numbers) <= self._most_memo and np.array_equal(numbers, following)

    def _pushed(self, piece: bytes) -> list[Any]:
        """What some instructions push that take nothing from the stack."""
        machine = _Machine(PickledData(piece, self._in.name, self._in.call, self._in.build, self._in.resolve))
        machine._memo, stream = self._memo, machine._in
        while stream.position < len(piece):
            _HANDLERS[stream.byte()](machine)
        return machine._stack

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def _mark(self) -> None:
        self._marks.append(len(self._stack))
        self._stack.append(_MARK)

    def _pop_to_mark(self) -> list[Any]:
        if not self._marks:
            raise ValueError("no mark")
        position = self._marks.pop()
        values = self._stack[position + 1 :]
        del self._stack[position:]
        return values

    def _drop(self) -> None:
        if self._stack.pop() is _MARK:
            self._marks.pop()

    def _repeat(self) -> None:
        value = self._pop()
        self._stack += (value, value)

    def _drop_to_mark(self) -> None:
        self._pop_to_mark()

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_new(self, value: Any) -> None:
        """Pushes an object that takes more memory than its bytes in the stream."""
        self._may_make -= 1
        if self._may_make < 0:
            raise UnsupportedError(
                "the pickled data has too many lists, tuples, dicts, sets and calls",
                expected=f"{self._most} or fewer in {len(self._in)} bytes",
                remedy="save long lists as tensors",
            )
        self._stack.append(value)

    def _skip(self, count: int) -> None:
        self._in.take(count)

    def _protocol(self) -> None:
        if self._in.byte() > 5:
            raise ValueError("an unknown protocol")

    def _global(self) -> None:
        module = self._in.line()
        self._push_new(self._in.name(Name(module, self._in.line())))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("a name that is not text")
        self._push_new(self._in.name(Name(module, name)))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        self._call(function, arguments)

    def _call(self, function: Any, arguments: Any) -> None:
        if not isinstance(arguments, tuple):
            raise TypeError("arguments that are not a tuple")
        if isinstance(function, Name):
            value = self._in.call(function, arguments)
            if arguments and not isinstance(value, Opaque):
                self._count(arguments)
        elif isinstance(function, Opaque):
            value = Opaque(function.name, (function, arguments))
        else:
            raise TypeError("a call of something that has no name")
        self._push_new(value)

    def _new_with_keywords(self) -> None:
        keywords, arguments, kind = self._pop(), self._pop(), self._pop()
        if not isinstance(kind, Name):
            raise TypeError("an object without a class")
        self._push_new(Opaque(kind, (arguments, keywords)))

    def _instance(self) -> None:
        name = Name(self._in.line(), self._in.line())
        self._call(name, tuple(self._pop_to_mark()))

    def _object(self) -> None:
        kind, *arguments = self._pop_to_mark()
        self._call(kind, tuple(arguments))

    def _extension(self, form: struct.Struct) -> None:
        self._push_new(Name("copyreg", f"extension {self._in.number(form)}"))

    def _build_state(self) -> None:
        state, obj = self._pop(), self._pop()
        built = self._in.build(obj, state)
        if built is not obj:
            self._count(state if isinstance(state, tuple) else (state,))
            for number in self._unbuilt.pop(id(obj), ()):
                self._remember(number, built)
        self._push(built)

    def _count(self, copied: tuple[Any, ...]) -> None:
        self._may_copy -= _elements_of(copied)
        if self._may_copy < 0:
            raise ValueError("calls that copy far more than the stream holds")

    def _persistent(self) -> None:
        self._push_new(self._in.resolve(self._pop()))

    def _text(self, form: struct.Struct) -> None:
        self._push(str(self._in.take(self._in.number(form)), "utf-8", "surrogatepass"))

    def _bytes(self, form: struct.Struct) -> None:
        self._push(bytes(self._in.take(self._in.number(form))))

    def _latin(self, form: struct.Struct) -> None:
        """Text of Python 2, decoded as PyTorch does."""
        self._push(_text_of(bytes(self._in.take(self._in.number(form)))))

    def _quoted(self) -> None:
        """Text of Python 2, in quotes and with escapes."""
        text = self._in.line_of_bytes()
        if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
            raise ValueError("text without quotes")
        self._push(_text_of(codecs.escape_decode(text[1:-1])[0]))

    def _long(self, form: struct.Struct) -> None:
        size = self._in.number(form)
        data = self._in.take(size)
        if size > _LONGEST_NUMBER:
            raise _too_many_digits()
        self._push(int.from_bytes(data, "little", signed=True))

    def _put(self, number: int) -> None:
        if number < 0 or self._remembered() > self._most_memo:
            raise ValueError("a place in the memo that does not exist")
        value = self._stack[-1]
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        self._remember(number, value)
        if isinstance(value, Unbuilt):
            self._unbuilt.setdefault(id(value), []).append(number)

    def _remembered(self) -> int:
        """How many values are remembered."""
        return len(self._memo) + len(self._others)

    def _remember(self, number: int, value: Any) -> None:
        if number < len(self._memo):
            self._memo[number] = value
        elif number == len(self._memo):
            self._memo.append(value)
            self._others.pop(number, None)
        else:
            self._others[number] = value

    def _get(self, number: int) -> None:
        self._push(self._memo[number] if 0 <= number < len(self._memo) else self._others[number])

    def _tuple(self, count: int) -> None:
        values = tuple(self._stack[-count:])
        if len(values) < count or (self._marks and self._marks[-1] >= len(self._stack) - count):
            raise ValueError("fewer values than a tuple needs")
        del self._stack[-count:]
        self._push_new(values)

    def _append(self) -> None:
        value = self._pop()
        self._extend([value])

    def _appends(self) -> None:
        self._extend(self._pop_to_mark())

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
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def _set_items(self) -> None:
        self._update(self._pop_to_mark())

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
        self._push_new(dict(self._pairs(self._pop_to_mark())))

    def _add_items(self) -> None:
        values = self._pop_to_mark()
        target = self._stack[-1]
        if isinstance(target, Opaque):
            target.items = [] if target.items is None else target.items
            target.items += values
        elif type(target) is set:
            target.update(as_keys(values, self._keys))
        else:
            raise TypeError("an addition to something that is not a set")

    def _frozen_set(self) -> None:
        self._push_new(frozenset(as_keys(self._pop_to_mark(), self._keys)))

    def _decimal(self) -> None:
        text = self._in.line()
        if len(text) > _MOST_DIGITS:
            raise _too_many_digits()
        self._push({"00": False, "01": True}[text] if text in ("00", "01") else int(text.removesuffix("L")))


def _too_many_digits() -> UnsupportedError:
    return UnsupportedError(
        "an integer has too many digits",
        expected=f"at most {_LONGEST_NUMBER} bytes, or {_MOST_DIGITS} decimal digits",
        remedy="save it as text",
    )


def _text_of(data: bytes) -> str | bytes:
    """A string of Python 2, which has one class for text and bytes: as text if it is UTF-8, and otherwise as bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _pushes(value: Any) -> Callable[[_Machine], None]:
    return lambda machine: machine._stack.append(value)


_STOP: Final = ord(".")
_LONG_PUT, _PUT, _MEMOIZE, _GET, _LONG_GET, _BYTE, _SET_MARK, _TEXT, _SHORT_TEXT = b"rq\x94hjK(X\x8c"
_TUPLE, _TUPLE_OF_ONE, _FALSE, _NO_MEMBERS = b"t\x85\x89)"
"""The instructions that are frequent in files of PyTorch."""
_HANDLERS: Final[dict[int, Callable[[_Machine], None]]] = {
    0x80: _Machine._protocol,
    0x95: lambda m: m._skip(8),  # the length of a frame
    ord("("): _Machine._mark,
    ord("0"): _Machine._drop,
    ord("1"): _Machine._drop_to_mark,
    ord("2"): _Machine._repeat,
    ord("N"): _pushes(None),
    0x88: _pushes(True),
    0x89: _pushes(False),
    ord("I"): _Machine._decimal,
    ord("L"): _Machine._decimal,
    ord("J"): lambda m: m._push(m._in.number(I32)),
    ord("K"): lambda m: m._push(m._in.byte()),
    ord("M"): lambda m: m._push(m._in.number(U16)),
    0x8A: lambda m: m._long(U8),
    0x8B: lambda m: m._long(U32),
    ord("F"): lambda m: m._push(float(m._in.line())),
    ord("G"): lambda m: m._push(m._in.number(F64)),
    ord("X"): lambda m: m._text(U32),
    0x8C: lambda m: m._text(U8),
    0x8D: lambda m: m._text(U64),
    ord("V"): lambda m: m._push(codecs.raw_unicode_escape_decode(m._in.line_of_bytes())[0]),
    ord("S"): _Machine._quoted,
    ord("U"): lambda m: m._latin(U8),
    ord("T"): lambda m: m._latin(U32),
    ord("C"): lambda m: m._bytes(U8),
    ord("B"): lambda m: m._bytes(U32),
    0x8E: lambda m: m._bytes(U64),
    0x96: lambda m: m._push(bytearray(m._in.take(m._in.number(U64)))),
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
    ord("q"): lambda m: m._put(m._in.byte()),
    ord("r"): lambda m: m._put(m._in.number(U32)),
    0x94: lambda m: m._put(m._remembered()),
    ord("g"): lambda m: m._get(int(m._in.line())),
    ord("h"): lambda m: m._get(m._in.byte()),
    ord("j"): lambda m: m._get(m._in.number(U32)),
    ord("c"): _Machine._global,
    0x93: _Machine._stack_global,
    ord("R"): _Machine._reduce,
    0x81: _Machine._reduce,  # makes an object of a class, which is the same as a call for the few classes here
    0x92: _Machine._new_with_keywords,
    ord("i"): _Machine._instance,
    ord("o"): _Machine._object,
    0x82: lambda m: m._extension(U8),
    0x83: lambda m: m._extension(U16),
    0x84: lambda m: m._extension(I32),
    ord("b"): _Machine._build_state,
    ord("Q"): _Machine._persistent,
}
"""By instruction. Those for persistent ids as text, and for data outside the stream, are not supported."""
