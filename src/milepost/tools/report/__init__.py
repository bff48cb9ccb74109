"""The report: one page about one or several checkpoints, which works without a network.

Four steps, one file each::

    survey     reads all values once, piece by piece: statistics, histograms, differences; one tensor: ``measurement``; many small ones: ``small``
    outline    the tree of objects and tensors, with the roles that the object graph gives them
    contents   both as plain data, with as much detail as the page has room for
    page       the page: that data, beside the files in ``page/``

No step trusts a name. Text of a checkpoint passes `milepost.tools.terminal.shown`, reaches the page as compressed data, and is put into it
as text, never as markup; the page's own policy lets it run no script but its own and load nothing.
"""
