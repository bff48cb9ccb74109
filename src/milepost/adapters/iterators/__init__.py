"""Iterators over data and their loaders, one library a file; `any_library` has what they share.

No library is imported: objects are known by the names of their classes.
"""

from milepost.adapters.iterators import accelerate as accelerate  # asked before torchdata's, which it derives from
from milepost.adapters.iterators import any_library as any_library
from milepost.adapters.iterators import hugging_face as hugging_face
from milepost.adapters.iterators import torchdata as torchdata
