"""The parts that the runs of all trainers share. `milepost.lightning`, `transformers`, `accelerate` and `ignite` use them.

==============  ===================================================================================
`whole_state`   the state of a run as one object of plain data, and how it is written and read
`runs`          the manager of a run: when to save, what to keep, what to resume
`loaders`       the position of a ``DataLoader`` of PyTorch in its pass, and how another loader returns to it
`positions`     `DataPosition`: such a position as an object, for training loops without a trainer
`gradients`     gradients that were accumulated and are not used yet
`paths`         checkpoints under the paths that a trainer chooses
==============  ===================================================================================
"""
