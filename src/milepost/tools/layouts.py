"""Steps of `convert` as a user types them: calls as in Python, of which only the text is looked at and nothing is run."""

from __future__ import annotations

import argparse
import ast
from typing import Any, Final

from milepost.engine.layouts.steps import Concatenate, Reshape, Split, Stack, Step, Transpose, Unstack
from milepost.errors import UnsupportedError

_STEPS: Final[dict[str, Any]] = {
    each.__name__: each for each in (Concatenate, Split, Stack, Unstack, Transpose, Reshape)
}
_EXPECTED: Final = "a step as in Python, such as \"Transpose('*/kernel', '*/weight')\""


def step_of(text: str) -> Step:
    """The step that a text means, for an option of the command line.

    Args:
        text: The name of a class of `milepost.layouts`, with its arguments in brackets: text, numbers, lists and None.

    Raises:
        argparse.ArgumentTypeError: It is no step.

    Example:
        >>> step_of("Split('*/qkv', ['*/q', '*/k', '*/v'], axis=-1)")
        Split(source='*/qkv', targets=('*/q', '*/k', '*/v'), axis=-1, sizes=None)
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _STEPS:
            raise ValueError(f"the steps are {', '.join(_STEPS)}")
        arguments = [_literal(each) for each in call.args]
        named = {each.arg: _literal(each.value) for each in call.keywords if each.arg is not None}
        if len(named) < len(call.keywords):
            raise ValueError("** is not understood")
        made: Step = _STEPS[call.func.id](*arguments, **named)
        return made
    except UnsupportedError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {error.key} is to be {error.expected}, found {error.found}"
        ) from None
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        why = error.msg if isinstance(error, SyntaxError) else error
        raise argparse.ArgumentTypeError(f"expected {_EXPECTED}, found {text!r}: {why}") from None


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError("its arguments are text, numbers, lists and None") from None
