"""The private names of Lightning that `milepost.lightning` uses.

=============  ===========================================================================
`private`      the dict of a run, its files, and what single parts of the trainer hold
`steps`        the moments of ``fit()`` for which Lightning has no hook
`loaders`      the loaders and iterators of a run
`results`      what ``self.log()`` has gathered
`averaging`    ``StochasticWeightAveraging``, which sets itself up when an epoch begins
=============  ===========================================================================
"""
