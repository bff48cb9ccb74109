"""The format of a bundle: what the bytes of its index and of its data files mean, and how its files are called."""
