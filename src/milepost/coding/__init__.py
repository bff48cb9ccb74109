"""Encodings that files are made of: varints, checksums, ordered keys, snappy, protocol buffer messages."""
