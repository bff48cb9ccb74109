"""Checkpoints of ``model.fit`` of either generation of Keras: `milepost.keras` and `milepost.tf_keras` are the ways in.

What is here knows no framework but for `keras3`, `keras2` and `tensorflow_data`:

- `checkpoints`: what is saved, and how a run is taken up again; `triggers`: when; `best`: which epochs are kept;
- `resumable`, `feed`: from what users pass to a place in it; `sources`, `indexed`, `iterables`: the kinds of data;
- `nested`, `random_state`, `batches`: what else a run's state is made of.
"""
