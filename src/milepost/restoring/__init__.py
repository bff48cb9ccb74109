"""Restores: match, check, deliver, and report."""
