"""Accelerate: what `milepost.accelerate` needs of it beyond its documented interface."""
