"""Looks for rules of the sources that no test holds: ``make mutants``, or ``python -m tests.mutation --help``.

`changes` says what is changed, `covering` which tests run a line, `trying` runs these tests on a changed copy of the project, `plugin` is what
pytest needs for both, and `same.toml` lists changes that no test can see, each with the reason.
"""
