"""PyTorch optimizers: their state, their hyperparameters, and learning-rate schedulers.

=============================  ==================================================================================
`adapter`                      per-parameter state as slot variables, and how it is restored
`param_groups`, `late_groups`  hyperparameters; those of a group that is added after the restore
`first_state`, `leaves`        state of special classes before the first step; parameters in the state
`shared_parts`                 whether state has an object in several places
`steps`, `gradients`           what happens before a step; whether one has used the gradients
`schedulers`                   learning-rate schedulers
=============================  ==================================================================================
"""
