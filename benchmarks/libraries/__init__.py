"""Saves and resumes every object of whole libraries that others wrote, and compares with the libraries' own saving.

`python -m benchmarks.libraries [LIBRARY ...]` does that and writes the page. It needs the packages of `catalogue.LIBRARIES`,
none of which milepost or its tests need, and skips libraries that are not installed.
"""
