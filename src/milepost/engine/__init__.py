"""What saves and restores share: options, names, plans, reports, turns, progress."""
