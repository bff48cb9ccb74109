"""Checkpoints of ``model.fit`` of Keras 2 and 3. `milepost.keras` and `milepost.tf_keras` are the public modules.

Only `keras3`, `keras2` and `tensorflow_data` import a framework:

- `checkpoints`: what happens when; `runs`: what is saved, and how it is restored; `generations`: what each Keras adds;
- `running`: the call of ``fit()`` that uses the callback; `catching_up`: steps that are not trained again;
- `triggers`: when to save; `best`, `monitored`: which epochs are kept; `facts`, `history`: what is saved as plain data;
- `others`, `portraits`, `averaged`: the state of the other callbacks;
- `arguments`, `compiled`: what is refused before training;
- `resumable`, `feed`: from the data that users pass to a position in it; `sources`, `indexed`, `iterables`, `class_weights`: the kinds
  of data;
- `nested`, `random_state`, `batches`: the rest of the state of a run.
"""
