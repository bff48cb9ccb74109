"""Where objects meet bytes: plans, saves, restores, commits, and accounts of what happened."""
