"""Saves and restores of several processes that run one program.

====================  ==============================================================================================
`find`                whether this process is alone, and how it reaches the others
`meeting`             how the processes of one run tell their messages from those of earlier runs
`rounds`              how the processes exchange messages, and how a failure of one process becomes a failure of all
`plan`                what each process writes, and what all must agree on; `shares`, how it is divided
`replicas`            whether processes that hold the same parts of a tensor hold the same elements
`save`                the steps of a save; `part`, the files of a process other than process 0
`own_values`          what a restore does with values of which each process has saved its own
`problems`            errors as messages
====================  ==============================================================================================

A process that is alone imports only `find` and `own_values`.
"""
