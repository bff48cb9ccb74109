"""The object graph of a file: how it is decoded and written, its names, and graphs with other names or parts of it."""
