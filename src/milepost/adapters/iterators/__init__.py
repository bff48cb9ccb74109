"""Iterators and loaders of data, one file for each library; `any_library` has what they share.

No library is imported: classes are recognised by their names.
"""

from milepost.adapters.iterators import accelerate as accelerate  # asked before torchdata's adapter, its base class
from milepost.adapters.iterators import any_library as any_library
from milepost.adapters.iterators import hugging_face as hugging_face
from milepost.adapters.iterators import torchdata as torchdata
