"""Numbers, text and None that a program puts into a checkpoint: how they are saved, and the places that hold them."""
