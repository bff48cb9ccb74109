"""Trains with many versions of each library, kills the run, resumes it, and compares: `make versions`.

- `environments`: which versions are installed together, and which programs are run with them;
- `training`: what the programs share: where a run is, when it is killed, what it held after each step;
- `with_jax`, `with_torch`, `with_keras`, `with_files`: the programs, a function for each library;
- `__main__`: makes the environments, runs the programs, and notes what came of it in ``benchmarks/results/versions.json``;
- `table`: the part of ``docs/versions.md`` that tells it.
"""
