"""Keras 3, on every backend."""
