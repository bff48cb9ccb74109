"""The data of a run of ``fit()``, and how it returns to a saved position:

- `resumable`: what a user passes becomes a `feed`, which gives the trainer batches, or an observed dataset of `tensorflow_data`;
- `sources`: what a feed reads; `indexed`, `iterables`, `class_weights`: the kinds of it;
- `own_state`, `reachable`, `fingerprints`: state of data that has no methods for it;
- `batches`: values and checksums of batches.
"""
