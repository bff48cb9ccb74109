"""Runs of trainers that are killed at every moment, in many set-ups, and compared with runs without milepost.

==============  ==================================================================
`trace`         what a run has computed, written while it runs; and where it dies
`data`          data that depends on random numbers and on counters
`lightning`     the set-ups of Lightning
`transformers`  the set-ups of Hugging Face's ``Trainer``
`ignite`        the set-ups of ignite
`loops`         the set-ups of loops with `milepost.accelerate`
`verdicts`      what became of a set-up
`table`         the page
==============  ==================================================================
"""
