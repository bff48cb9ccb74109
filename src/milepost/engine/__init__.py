"""Saves and restores: plans, matches, commits, reports. This is the layer that knows both objects and files."""
