"""Checkpoints of ``model.fit`` of Keras 2 and 3. `milepost.keras` and `milepost.tf_keras` are the public modules.

Only `keras3`, `keras2` and `data.tensorflow_data` import a framework. A callback (`checkpoints`) has a `Generation` of Keras and,
in each call of ``fit()``, a `SavedRun`:

- `checkpoints`: when a run is saved and resumed; `triggers`: after how much;
- `fit`: the call of ``fit()`` that uses the callback;
- `runs`: where a run is, what is saved of it, and how it is restored; `facts`, `plain_data`: what is saved as plain data;
- `generations`, `keras2`, `keras3`: what each Keras adds;
- `data`: the data that users pass, and the position in it;
- `catching_up`: steps that are counted and not trained again;
- `monitored`: which epochs are the best;
- `others`, `records`, `averaged`: the state of the other callbacks;
- `arguments`, `compiled`: checks before training.
"""
