"""The command line, pictures of object graphs, and the demo."""
