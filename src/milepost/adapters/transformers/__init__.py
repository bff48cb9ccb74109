"""The private names of Hugging Face transformers that `milepost.transformers` uses."""
