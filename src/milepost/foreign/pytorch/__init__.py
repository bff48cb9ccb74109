"""Files of PyTorch, and directories of its module for distributed checkpoints."""
