"""The signals that ask a run to end: which are caught, and what a second one and a deadline do."""
