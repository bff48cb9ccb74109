"""Trees of values that never change, such as JAX's arrays: their structure, the places in them, and their adapters."""
