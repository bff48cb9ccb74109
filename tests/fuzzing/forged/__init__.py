"""Forged files of each format, each used completely in a process that measures its memory and its time: see `measure`."""
