"""Checkpoints of ``model.fit`` of Keras 2 and 3. `milepost.keras` and `milepost.tf_keras` are the public modules.

Only `keras3`, `keras2` and `tensorflow_data` import a framework:

- `checkpoints`: when a run is saved and resumed; `runs`: what is saved, and how it is restored; `generations`: what each Keras adds;
- `running`: the call of ``fit()`` that uses the callback; `catching_up`: steps that are counted and not trained again;
- `triggers`: when to save; `best`, `monitored`: which epochs are kept; `facts`, `history`: what is saved as plain data;
- `others`, `records`, `averaged`: the state of the other callbacks;
- `arguments`, `compiled`: checks before training;
- `resumable`, `feed`: the data that users pass, and the position in it; `sources`, `indexed`, `iterables`,
  `class_weights`: the kinds of data;
- `nested`, `random_state`, `batches`: the rest of the state of a run.
"""
