"""The private names of Accelerate that `milepost.accelerate` uses."""
