"""The kinds of data that runs of ``fit()`` read, all in one table."""

from tests.zoo_fit import arrays as arrays

from tests.zoo_fit import loaders as loaders  # isort: skip
from tests.zoo_fit import iterables as iterables  # isort: skip
from tests.zoo_fit.kinds import BATCHES as BATCHES
from tests.zoo_fit.kinds import DATA as DATA
from tests.zoo_fit.kinds import EPOCHS as EPOCHS
from tests.zoo_fit.kinds import X as X
from tests.zoo_fit.kinds import Y as Y
