"""Objects that many tests build."""

from milepost import Module


def module(**attributes):
    """A module with these attributes, in this order."""
    made = Module()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made
