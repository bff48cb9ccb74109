"""Plain values (numbers, text and None) that a program puts into a checkpoint, and the places that hold them."""
