"""Hugging Face transformers: what `milepost.transformers` needs of it beyond its documented interface."""
