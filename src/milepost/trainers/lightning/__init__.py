"""Runs of Lightning: the callback, and the plugin for its files. The public names are in `milepost.lightning`."""
