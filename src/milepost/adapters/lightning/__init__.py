"""Lightning: what `milepost.lightning` needs of it beyond its documented interface."""
