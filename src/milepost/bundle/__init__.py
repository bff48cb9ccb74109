"""Named tensors in files: TensorFlow's tensor bundles, and the checkpoints from before them."""

from milepost.bundle.entry import Entry
from milepost.bundle.names import data_path, find_prefixes, index_path, parse_data_path
from milepost.bundle.writer import BundleWriter

__all__ = ["BundleWriter", "Entry", "data_path", "find_prefixes", "index_path", "parse_data_path"]
