"""The table of peers: what each library does, proved by running it. `python -m benchmarks.peers` writes it.

`libraries` has a module for each library, which says how its users save and restore. `experiments` has a module for each row,
which knows no library. A cell is what the experiment found: ``yes``, ``no``, or ``partly``, with a sentence that says what.
"""
