"""Weights that a program lays out otherwise than a file: steps for the argument ``convert`` of restores, of `milepost.load` and of `milepost.convert`.

=============  =========================================================  =============
step           what it makes                                              its inverse
=============  =========================================================  =============
`Concatenate`  one value of several, such as qkv of q, k and v            `Split`
`Stack`        one value with a new axis, such as that of experts         `Unstack`
`Transpose`    a value with its axes in another order                     `Transpose`
`Reshape`      a value with other axes instead of some neighbouring ones  `Reshape`
=============  =========================================================  =============

Steps are carried out one after the other, on the names of the file, before ``rename``. Each works on what the steps before it have made.
The state that an optimizer has of a parameter is converted with it. `inverse` makes the steps that undo some steps.

Example:
    >>> import milepost, numpy as np, tempfile
    >>> from milepost.layouts import Concatenate, Transpose, inverse
    >>> directory = tempfile.mkdtemp()
    >>> names = ["q", "k", "v"]
    >>> kernels = {name: {"kernel": np.full((4, 2), float(number))} for number, name in enumerate(names)}
    >>> path = milepost.save(directory + "/state", {"attn": kernels})
    >>> steps = [Transpose("attn/*/kernel", "attn/*/weight"), Concatenate([f"attn/{name}" for name in names], "attn/qkv")]
    >>> weights = milepost.load(path, convert=steps)["attn"]["qkv"]["weight"]
    >>> weights.shape, weights[:, 0].tolist()
    ((6, 4), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
    >>> fused = milepost.convert(path, directory + "/fused", convert=steps)
    >>> back = milepost.load(directory + "/fused", convert=inverse(steps))
    >>> all((back["attn"][name]["kernel"] == kernels[name]["kernel"]).all() for name in names)
    True
"""

from milepost.engine.layouts.steps import Concatenate, Reshape, Split, Stack, Step, Transpose, Unstack, inverse

__all__ = ["Concatenate", "Reshape", "Split", "Stack", "Step", "Transpose", "Unstack", "inverse"]
