"""The checkpoints of a directory: which there are, which is the latest, and how one is committed, kept and removed.

What is here knows files and their names, and no objects.
"""
