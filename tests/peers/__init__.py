"""Runs the tests that other libraries have for their own files, with milepost in the place of these libraries.

`python -m tests.peers safetensors=PATH flax=PATH` takes checkouts of the libraries by their paths, and writes a section of `docs/peers.md`.
It is no part of CI: nothing of the libraries' tests is kept here. `suites.py` lists the suites; the module of each says what milepost
replaces, and is also the plugin of pytest that does it.
"""
