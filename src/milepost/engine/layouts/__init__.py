"""Weights that a program lays out otherwise than the file: steps that join, divide, stack, transpose and reshape saved values.

::

    file  --convert-->  saved names and shapes  --rename, ignore, only, cast-->  live objects

`steps` are what a user writes, and are pure data. They use names (`patterns`). `applying` carries them out on the names of a file. A value that they make
is a `recipes.Recipe`: it knows its shape, and from which boxes of saved tensors it reads a box of itself. So only what is asked for is read, and
a restore, a load and a conversion get a reader (`checkpoints`) or a file (`foreign_files`) that has the new values as if they had been saved.
"""
