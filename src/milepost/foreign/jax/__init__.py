"""Files of Flax, and directories of Orbax."""
