"""Encodings in files: varints, checksums, ordered keys, Snappy, protocol buffer messages."""
