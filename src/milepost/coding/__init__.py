"""Encodings in files: varints, checksums, ordered keys, text, Snappy, protocol buffer messages, the beginning of MessagePack."""
