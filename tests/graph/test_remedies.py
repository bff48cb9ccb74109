"""What is proposed for values that cannot be saved."""

from milepost.graph.remedies import remedy_for


def of(name, module):
    return type(name, (), {"__module__": module})()


def test_the_values_of_a_tensor_of_tensorflow_go_to_a_variable():
    assert "tf.Variable" in remedy_for(of("SparseTensor", "tensorflow.python.framework"))


def test_other_classes_of_tensorflow_and_other_tensors_do_not():
    for value in (of("Server", "tensorflow.python.training"), of("MyTensor", "program"), of("ATensor", "tensorflowx")):
        assert "tf.Variable" not in remedy_for(value)
