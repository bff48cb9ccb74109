"""Conversion: which values of a checkpoint go into a file of another format, and under which names (`conversion`), and one writer for each format."""
