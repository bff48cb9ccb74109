"""The commands of `milepost`, one a file. Each has `add`, which adds it to the parser, and `run`, which does it."""
