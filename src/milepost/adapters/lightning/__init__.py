"""The private names of Lightning that `milepost.lightning` uses."""
