"""Named tensors in files: TensorFlow's tensor bundles, and the checkpoints from before them."""

from milepost.bundle.boxes import Boxes
from milepost.bundle.casting import CastingReader, is_castable, may_round
from milepost.bundle.fetch import Fetch, check_all
from milepost.bundle.format.entry import Entry
from milepost.bundle.format.names import data_path, find_prefixes, index_path, parse_data_path
from milepost.bundle.interface import BundleReader
from milepost.bundle.opening import open_bundle, open_whole
from milepost.bundle.parallel import for_each
from milepost.bundle.writer import BundleWriter

__all__ = [
    "Boxes",
    "BundleReader",
    "BundleWriter",
    "CastingReader",
    "Entry",
    "Fetch",
    "check_all",
    "data_path",
    "find_prefixes",
    "for_each",
    "index_path",
    "is_castable",
    "may_round",
    "open_bundle",
    "open_whole",
    "parse_data_path",
]
