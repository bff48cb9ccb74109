"""The guide's section on Estimators, as it stands, with milepost in the place of `tf.train`: needs TensorFlow 2.15.

    python guide_estimator.py [directory]

Estimators save by the names of variables unless they are given a saver. Given a checkpoint, they save by objects, so that
what an Estimator trained is restored outside of it. What a notebook shows of itself, a script has to print.
"""
# The code is the guide's, and so is its style.
# fmt: off
# ruff: noqa

import os
import sys
import tempfile

import milepost

directory = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
os.makedirs(directory, exist_ok=True)
os.chdir(directory)


# Setup

import tensorflow as tf

class Net(tf.keras.Model):
  """A simple linear model."""

  def __init__(self):
    super(Net, self).__init__()
    self.l1 = tf.keras.layers.Dense(5)

  def call(self, x):
    return self.l1(x)

def toy_dataset():
  inputs = tf.range(10.)[:, None]
  labels = inputs * 5. + tf.range(5.)[None, :]
  return tf.data.Dataset.from_tensor_slices(
    dict(x=inputs, y=labels)).repeat().batch(2)


# Saving object-based checkpoints with Estimator

import tensorflow.compat.v1 as tf_compat

def model_fn(features, labels, mode):
  net = Net()
  opt = tf.keras.optimizers.Adam(0.1)
  ckpt = milepost.Checkpoint(step=tf_compat.train.get_global_step(),
                             optimizer=opt, net=net)
  with tf.GradientTape() as tape:
    output = net(features['x'])
    loss = tf.reduce_mean(tf.abs(output - features['y']))
  variables = net.trainable_variables
  gradients = tape.gradient(loss, variables)
  return tf.estimator.EstimatorSpec(
    mode,
    loss=loss,
    train_op=tf.group(opt.apply_gradients(zip(gradients, variables)),
                      ckpt.step.assign_add(1)),
    # Tell the Estimator to save "ckpt" in an object-based format.
    scaffold=tf_compat.train.Scaffold(saver=ckpt))

tf.keras.backend.clear_session()
est = tf.estimator.Estimator(model_fn, './tf_estimator_example/')
est.train(toy_dataset, steps=10)

# A checkpoint can then load the Estimator's checkpoints from its model_dir

opt = tf.keras.optimizers.Adam(0.1)
net = Net()
ckpt = milepost.Checkpoint(
  step=tf.Variable(1, dtype=tf.int64), optimizer=opt, net=net)
ckpt.restore(milepost.latest_checkpoint('./tf_estimator_example/'))
print(ckpt.step.numpy())  # From est.train(..., steps=10)
