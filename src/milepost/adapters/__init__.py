"""One framework a file. Only these modules import a framework, and only when the user has."""

from milepost.adapters import numpy as numpy  # always there: milepost depends on it
