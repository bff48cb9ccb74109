"""Hostile files, found by a fuzzer that follows coverage: ``make fuzz``, or ``python -m tests.fuzzing --help``.

`targets` says what bytes become of each format, `outcome` what must hold of every input, `corpus` where inputs are kept, `seeds`
which files of real libraries the search began with, and `search` how it goes on. `test_corpus` tries every kept input again.
"""
