"""Element types, and what an older ml_dtypes lacks of them."""

import subprocess
import sys

import pytest

LACKING = """
import ml_dtypes
for name in ("int2", "uint2", "float4_e2m1fn"):
    vars(ml_dtypes).pop(name, None)
from milepost.tensor import DType
"""


@pytest.mark.parametrize("asked", ["DType.of('int2')", "DType.from_number(31)"])
def test_a_type_that_ml_dtypes_is_too_old_for_is_named_with_the_remedy(asked):
    code = f"{LACKING}\ntry: {asked}\nexcept NotImplementedError as error: print(error.found, error.remedy)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("int2 run: pip install --upgrade ml_dtypes")


def test_all_other_types_are_there_with_an_old_ml_dtypes():
    code = f"{LACKING}\nprint([dtype.number for dtype in DType.all()])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str([*range(1, 20), *range(21, 31)])
