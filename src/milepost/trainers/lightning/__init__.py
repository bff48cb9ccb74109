"""Runs of Lightning: the callback, and the plugin for its files. The public names are in `milepost.lightning`.

=========  ==========================================================================
`fit`      one run of ``fit()``: when it is saved, and what a resumed one restores
`loaders`  the loaders of a run: their positions, and when they were made
`dicts`    Lightning's own dict of a run, in checkpoints of milepost
=========  ==========================================================================
"""
