"""What the runs of trainers have in common: `milepost.lightning`, `transformers`, `accelerate` and `ignite` are made of it.

==============  ===================================================================================
`whole_state`   the state of a run as one object of plain data, and how it is written and read
`runs`          the manager of a run: when to save, what to keep, what to resume
`loaders`       where a ``DataLoader`` of PyTorch is in its pass, and how another one gets there
`gradients`     gradients that were accumulated and are not used yet
==============  ===================================================================================
"""
