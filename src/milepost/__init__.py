"""milepost: training checkpoints for every framework."""
