"""The values of files: lists of their tensors, statistics and comparison."""
