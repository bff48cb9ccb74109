import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.coding.crc32c import PROVIDERS, combine, crc32c, mask, provider, unmask

Provider = Callable[[Any, int], int]


def _available() -> Iterator[tuple[str, Provider]]:
    for name, load in PROVIDERS.items():
        try:
            yield name, load()
        except ImportError:
            continue


AVAILABLE = dict(_available())


def bitwise(data: bytes, value: int = 0) -> int:
    """The definition in RFC 3720, one bit at a time."""
    value ^= 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.fixture(params=[*sorted(PROVIDERS), "milepost"])
def extend(request: pytest.FixtureRequest) -> Provider:
    """The function of each package, and the one that chooses among them."""
    if request.param == "milepost":
        return crc32c
    if request.param not in AVAILABLE:
        pytest.skip(f"{request.param} is not installed")
    return AVAILABLE[str(request.param)]


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_vectors(extend: Provider, data: bytes, crc: int) -> None:
    """Every provider gives the values that RFC 3720 publishes."""
    assert extend(data, 0) == crc32c(data) == crc


def test_masked_vectors() -> None:
    """Masked values are the ones found in TensorFlow's files."""
    assert mask(crc32c(b"123456789")) == 0xC78AB0E5
    assert mask(crc32c(b"")) == 0xA282EAD8


@given(st.integers(0, 2**32 - 1))
def test_masking_loses_nothing_and_changes_everything(crc: int) -> None:
    rotated = (mask(crc) - 0xA282EAD8) & 0xFFFFFFFF
    assert (rotated >> 17 | rotated << 15) & 0xFFFFFFFF == crc
    assert 0 <= mask(crc) < 2**32
    assert mask(crc) != crc


@given(st.integers(0, 2**32 - 1))
def test_unmask_undoes_mask(crc: int) -> None:
    """Masking loses nothing and changes everything."""
    assert unmask(mask(crc)) == crc
    assert 0 <= mask(crc) < 2**32
    assert mask(crc) != crc


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_providers_agree_with_the_definition(data: bytes, value: int) -> None:
    """Every provider computes the same, from any running value on."""
    expected = bitwise(data, value)
    assert {name: extend(data, value) for name, extend in AVAILABLE.items()} == dict.fromkeys(AVAILABLE, expected)


BUFFERS: dict[str, Any] = {
    "bytes": b"0123456789abcdef" * 3,
    "bytearray": bytearray(b"0123456789abcdef" * 3),
    "memoryview": memoryview(b"0123456789abcdef" * 3),
    "writable memoryview": memoryview(bytearray(b"0123456789abcdef" * 3)),
    "memoryview of numbers": memoryview(np.arange(6.0)).cast("B").cast("d", (2, 3)),
    "slice": memoryview(b"x" + b"0123456789abcdef")[1:],
    "float32": np.arange(12, dtype=np.float32).reshape(3, 4),
    "bfloat16": np.arange(12).astype(ml_dtypes.bfloat16).reshape(3, 4),
    "int4": np.arange(7).astype(ml_dtypes.int4),
    "record": np.zeros(3, [("qint8", np.int8)]),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "scalar": np.array(3.5),
    "empty bytes": b"",
    "empty bytearray": bytearray(),
    "empty memoryview": memoryview(b""),
    "empty array": np.zeros((0, 3)),
    "empty bfloat16": np.zeros((2, 0), ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS.keys())
def test_any_contiguous_buffer(extend: Provider, buffer: Any) -> None:
    """Every kind of buffer is hashed as the bytes it holds."""
    assert extend(buffer, 7) == bitwise(buffer.tobytes() if hasattr(buffer, "tobytes") else buffer, 7)


def test_read_only_array(extend: Provider) -> None:
    """Hashing does not need write access."""
    array = np.arange(10)
    array.flags.writeable = False
    assert extend(array, 0) == bitwise(array.tobytes())


@pytest.mark.parametrize("array", [np.zeros((4, 4))[:, ::2], np.zeros((4, 5), order="F"), np.zeros(8)[::2]])
def test_scattered_arrays_are_refused(extend: Provider, array: np.ndarray[Any, Any]) -> None:
    """Bytes that do not lie in row-major order in one piece are never hashed as if they did."""
    with pytest.raises(ValueError, match="contiguous"):
        extend(array, 0)


@pytest.mark.parametrize("shape", [(2 * 8 << 20, 2), (4,)], ids=["large", "small"])
def test_scattered_arrays_are_refused_at_any_size(extend: Provider, shape: tuple[int, ...]) -> None:
    """Chunking copies nothing to make an array contiguous."""
    with pytest.raises(ValueError, match="contiguous"):
        extend(np.zeros(shape, np.uint8)[::2], 0)


@pytest.mark.parametrize("size", [(8 << 20) - 1, 8 << 20, (8 << 20) + 1, (24 << 20) + 5])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.ndarray, ml_dtypes.bfloat16])
def test_large_buffers(extend: Provider, size: int, kind: Any) -> None:
    """Hashing in chunks gives the same value as hashing at once."""
    array = np.resize(np.arange(251, dtype=np.uint8), size)
    if kind is ml_dtypes.bfloat16:
        array = array[: size // 2 * 2]
    expected = 3
    for start in range(0, size, 1 << 20):
        expected = AVAILABLE["google-crc32c"](array[start : start + (1 << 20)].tobytes(), expected)
    data = {np.ndarray: array.view, ml_dtypes.bfloat16: lambda: array.view(ml_dtypes.bfloat16)}.get(
        kind, lambda: kind(array)
    )()
    assert extend(data, 3) == expected


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_combine_joins_two_pieces(a: bytes, b: bytes) -> None:
    """The checksum of joined pieces follows from the checksums of the pieces."""
    assert combine(crc32c(a), crc32c(b), len(b)) == crc32c(a + b)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(1, 2**63 - 1))
def test_combine_agrees_with_another_implementation(crc_a: int, crc_b: int, length: int) -> None:
    """Lengths far beyond memory combine as the AWS library combines them."""
    checksums = pytest.importorskip("awscrt.checksums")
    if not hasattr(checksums, "combine_crc32c"):
        pytest.skip("this awscrt does not combine")
    assert combine(crc_a, crc_b, length) == checksums.combine_crc32c(crc_a, crc_b, length)


def test_the_first_package_that_is_installed_is_for_large_buffers() -> None:
    """The core dependency, which stops other threads, is used last."""
    assert provider()[0] == next(iter(AVAILABLE))


def run_without(packages: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process where some packages cannot be imported."""
    missing = f"import sys; sys.modules.update(dict.fromkeys({packages}))\n"
    return subprocess.run([sys.executable, "-c", missing + code], capture_output=True, text=True, check=False)


def test_without_fast_providers_the_core_dependency_is_used() -> None:
    """A missing or broken optional package is passed over at import."""
    ran = run_without(
        ["awscrt", "crc32c"],
        "from milepost.coding.crc32c import crc32c, provider\n"
        "print(provider()[0], hex(crc32c(bytearray(b'123456789'))))",
    )
    assert ran.stdout.split() == ["google-crc32c", "0xe3069283"]


SMALL_AND_LARGE = "print(hex(crc32c(b'123456789')), 'awscrt' in sys.modules, hex(crc32c(bytearray(1 << 20))))"


def test_a_program_without_large_buffers_imports_no_large_package() -> None:
    """The import takes longer than all checksums of a small checkpoint."""
    ran = run_without([], f"from milepost.coding.crc32c import crc32c\n{SMALL_AND_LARGE}")
    assert ran.stdout.split() == ["0xe3069283", "False", "0x14298c12"]


def test_without_a_compiled_core_dependency_another_package_hashes_small_buffers() -> None:
    """google-crc32c in pure Python is ten thousand times slower."""
    pytest.importorskip("awscrt")
    pure = "import google_crc32c\ngoogle_crc32c.implementation = 'python'\ngoogle_crc32c.extend = None\n"
    ran = run_without([], f"{pure}from milepost.coding.crc32c import crc32c\n{SMALL_AND_LARGE}")
    assert ran.stdout.split() == ["0xe3069283", "True", "0x14298c12"]


def test_without_any_provider_the_error_says_what_to_install() -> None:
    """No provider at all cannot go unnoticed."""
    ran = run_without(["awscrt", "crc32c", "google_crc32c"], "import milepost.coding.crc32c")
    assert "pip install google-crc32c" in ran.stderr
