"""Checkpoints of ``model.fit`` of either generation of Keras: `milepost.keras` and `milepost.tf_keras` are the ways in.

What is here imports no framework but for `keras3`, `keras2` and `tensorflow_data`:

- `checkpoints`: what happens when; `runs`: what is saved, and how it is restored; `generations`: what each Keras adds;
- `running`: the call of ``fit()`` that is served; `catching_up`: steps that are not trained again;
- `triggers`: when to save; `best`, `monitored`: which epochs are kept; `facts`, `history`: what is no object;
- `others`, `portraits`, `averaged`: the state of the other callbacks;
- `arguments`, `compiled`: what is refused before training;
- `resumable`, `feed`: from what users pass to a place in it; `sources`, `indexed`, `iterables`, `class_weights`: the kinds
  of data;
- `nested`, `random_state`, `batches`: what else a run's state is made of.
"""
