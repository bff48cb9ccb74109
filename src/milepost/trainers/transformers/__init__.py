"""Runs of Hugging Face's ``Trainer``. The public names are in `milepost.transformers`."""
