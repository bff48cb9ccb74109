"""Checkpoints of ``model.fit`` of either generation of Keras: `milepost.keras` and `milepost.tf_keras` are the ways in.

What is here knows no framework but for `keras3`, `keras2` and `tensorflow_data`: `checkpoints`, what is saved and how a run
is taken up again; `triggers`, when to save; `best`, which checkpoints are better; `feed` and `sources`, where in the data a
run is; `nested`, `random_state`, what else a run's state is made of.
"""
