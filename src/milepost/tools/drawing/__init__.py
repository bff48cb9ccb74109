"""Draws the object graph of objects or of a file: `graph` has the steps."""
