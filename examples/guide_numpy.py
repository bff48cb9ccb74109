"""TensorFlow's guide "Training checkpoints", section by section, in NumPy.

    python guide_numpy.py [directory]

Its code comes with milepost, in `src/milepost/tools/guide_numpy.py`, because `milepost demo` trains the same model.
"""

from milepost.tools import guide_numpy

if __name__ == "__main__":
    guide_numpy.main()
