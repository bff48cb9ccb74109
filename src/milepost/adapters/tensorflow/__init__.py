"""TensorFlow's own objects, and whatever implements its tracking, as Keras 2 does."""
