"""Saves: from the plan, by one process or by several together, to the commit."""
