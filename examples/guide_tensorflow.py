"""TensorFlow's guide "Training checkpoints", as it stands, with milepost in the place of `tf.train`.

    python guide_tensorflow.py [directory]                          # with Keras 3
    TF_USE_LEGACY_KERAS=1 python guide_tensorflow.py [directory]    # with tf_keras

Cells stand in the order of the guide, those of its older edition before those of its newer one where they differ. Besides
`tf.train`, one call is another: `Model.save_weights`, which writes no TensorFlow checkpoint in Keras 3. What a notebook
shows of itself, a script has to print.
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

net = Net()


# Saving from `tf.keras` training APIs

milepost.save_weights(net, 'easy_checkpoint')


# Writing checkpoints: manual checkpointing

def toy_dataset():
  inputs = tf.range(10.)[:, None]
  labels = inputs * 5. + tf.range(5.)[None, :]
  return tf.data.Dataset.from_tensor_slices(
    dict(x=inputs, y=labels)).repeat().batch(2)

def train_step(net, example, optimizer):
  """Trains `net` on `example` using `optimizer`."""
  with tf.GradientTape() as tape:
    output = net(example['x'])
    loss = tf.reduce_mean(tf.abs(output - example['y']))
  variables = net.trainable_variables
  gradients = tape.gradient(loss, variables)
  optimizer.apply_gradients(zip(gradients, variables))
  return loss


# Create the checkpoint objects

opt = tf.keras.optimizers.Adam(0.1)
dataset = toy_dataset()
iterator = iter(dataset)
ckpt = milepost.Checkpoint(step=tf.Variable(1), optimizer=opt, net=net, iterator=iterator)
manager = milepost.CheckpointManager(ckpt, './tf_ckpts', max_to_keep=3)


# Train and checkpoint the model

def train_and_checkpoint(net, manager):
  ckpt.restore(manager.latest_checkpoint)
  if manager.latest_checkpoint:
    print("Restored from {}".format(manager.latest_checkpoint))
  else:
    print("Initializing from scratch.")

  for _ in range(50):
    example = next(iterator)
    loss = train_step(net, example, opt)
    ckpt.step.assign_add(1)
    if int(ckpt.step) % 10 == 0:
      save_path = manager.save()
      print("Saved checkpoint for step {}: {}".format(int(ckpt.step), save_path))
      print("loss {:1.2f}".format(loss.numpy()))

train_and_checkpoint(net, manager)


# Restore and continue training

opt = tf.keras.optimizers.Adam(0.1)
net = Net()
dataset = toy_dataset()
iterator = iter(dataset)
ckpt = milepost.Checkpoint(step=tf.Variable(1), optimizer=opt, net=net, iterator=iterator)
manager = milepost.CheckpointManager(ckpt, './tf_ckpts', max_to_keep=3)

train_and_checkpoint(net, manager)

print(manager.checkpoints)  # List the three remaining checkpoints

print(*sorted(os.listdir('./tf_ckpts')))


# Loading mechanics

to_restore = tf.Variable(tf.zeros([5]))
print(to_restore.numpy())  # All zeros
fake_layer = milepost.Checkpoint(bias=to_restore)
fake_net = milepost.Checkpoint(l1=fake_layer)
new_root = milepost.Checkpoint(net=fake_net)
status = new_root.restore(milepost.latest_checkpoint('./tf_ckpts/'))
print(to_restore.numpy())  # We get the restored value now

status.assert_existing_objects_matched()


# Delayed restorations (older edition), deferred restorations (newer edition)

delayed_restore = tf.Variable(tf.zeros([1, 5]))
print(delayed_restore.numpy())  # Not restored; still zeros
fake_layer.kernel = delayed_restore
print(delayed_restore.numpy())  # Restored

to_restore = tf.Variable(tf.zeros([5]))
print(to_restore.numpy())  # All zeros
fake_layer = milepost.Checkpoint(bias=to_restore)
fake_net = milepost.Checkpoint(l1=fake_layer)
new_root = milepost.Checkpoint(net=fake_net)
status = new_root.restore(milepost.latest_checkpoint('./tf_ckpts/'))
print(to_restore.numpy())  # This gets the restored value.

status.assert_existing_objects_matched()

deferred_restore = tf.Variable(tf.zeros([1, 5]))
print(deferred_restore.numpy())  # Not restored; still zeros
fake_layer.kernel = deferred_restore
print(deferred_restore.numpy())  # Restored


# Manually inspecting checkpoints

print(milepost.list_variables(milepost.latest_checkpoint('./tf_ckpts/')))

reader = milepost.load_checkpoint('./tf_ckpts/')
shape_from_key = reader.get_variable_to_shape_map()
dtype_from_key = reader.get_variable_to_dtype_map()

print(sorted(shape_from_key.keys()))

key = 'net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE'

print("Shape:", shape_from_key[key])
print("Dtype:", dtype_from_key[key].name)

print(reader.get_tensor(key))


# List and dictionary tracking, object tracking

save = milepost.Checkpoint()
save.listed = [tf.Variable(1.)]
save.listed.append(tf.Variable(2.))
save.mapped = {'one': save.listed[0]}
save.mapped['two'] = save.listed[1]
save_path = save.save('./tf_list_example')

restore = milepost.Checkpoint()
v2 = tf.Variable(0.)
assert 0. == v2.numpy()  # Not restored yet
restore.mapped = {'two': v2}
restore.restore(save_path)
assert 2. == v2.numpy()

restore.listed = []
print(restore.listed)  # ListWrapper([])
v1 = tf.Variable(0.)
restore.listed.append(v1)  # Restores v1, from restore() in the previous cell
assert 1. == v1.numpy()
