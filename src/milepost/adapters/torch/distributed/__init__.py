"""Tensors and modules of PyTorch that several processes hold together."""
