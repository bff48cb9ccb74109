"""Checkpoints whose values are laid out otherwise: objects, slot variables, reports, and what else reads them."""

import tempfile

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import milepost
from milepost.engine.layouts.checkpoints import LaidOutReader
from milepost.engine.report import Outcome
from milepost.engine.translation import Translation
from milepost.errors import MismatchError, UnmatchedError, UnsupportedError
from milepost.graph.contract.operation import Operation
from milepost.layouts import Concatenate, Reshape, Split, Transpose, inverse
from milepost.restoring.load import preview
from tests.engine.layouts import test_steps
from tests.engine.layouts.files import flat, reader_of, saved

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
models = pytest.importorskip("tests.engine.layouts.torch_models")
APART, FUSED, STEPS = models.ApartBlock, models.FusedBlock, models.STEPS
OPTIMIZERS = {
    "AdamW": models.adamw,
    "AdamW with amsgrad": lambda parameters: torch.optim.AdamW(parameters, amsgrad=True),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "RMSprop": torch.optim.RMSprop,
    "Adagrad": torch.optim.Adagrad,
}


def written(directory, block, make=models.adamw):
    """A trained model, its optimizer and their checkpoint."""
    model, optimizer = models.trained(block, make)
    path = milepost.Checkpoint(model=model, optimizer=optimizer).write(str(directory / "saved"))
    return model, optimizer, path


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("before", "after", "steps"), [(APART, FUSED, STEPS), (FUSED, APART, inverse(STEPS))])
def test_a_model_and_its_optimizer_train_on_in_another_layout(tmp_path, name, before, after, steps):
    model, optimizer, path = written(tmp_path, before, OPTIMIZERS[name])
    other, its_optimizer = models.made(after, OPTIMIZERS[name], seed=1)
    status = milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=steps)
    status.assert_consumed().assert_existing_objects_matched()
    torch.testing.assert_close(models.output(other), models.output(model))
    for number in (7, 8):
        models.train(model, optimizer, number)
        models.train(other, its_optimizer, number)
    torch.testing.assert_close(models.output(other), models.output(model))


def test_a_conversion_and_the_inverse_give_the_checkpoint_back(tmp_path):
    """Bit for bit, with the state of the optimizer."""
    _, _, path = written(tmp_path, APART)
    milepost.convert(path, tmp_path / "fused", convert=STEPS)
    milepost.convert(tmp_path / "fused", tmp_path / "back", convert=inverse(STEPS))
    before, after = (milepost.load_checkpoint(each) for each in (path, str(tmp_path / "back")))
    assert before.keys() == after.keys()
    for key in before.keys():  # noqa: SIM118 - a reader is not a mapping
        first, second = before.get_tensor(key), after.get_tensor(key)
        assert key == "_CHECKPOINTABLE_OBJECT_GRAPH" or first.tobytes() == second.tobytes()
    other, its_optimizer = models.made(APART, seed=1)
    milepost.Checkpoint(model=other, optimizer=its_optimizer).read(str(tmp_path / "back")).assert_consumed()


class Momentum(milepost.SlotOwner):
    """An optimizer with a moment, and the number of its steps, of each variable."""

    def train(self, variable, random):
        self.add_slot(variable, "m", random.random(variable.shape))
        self.add_slot(variable, "steps", np.int64(3))


@given(test_steps.weights(), st.data())
@settings(max_examples=25)
def test_any_model_and_its_optimizer_come_back_bit_for_bit(values, data):
    """After any steps that fit, and their inverse."""
    chosen = data.draw(test_steps.steps(next(iter(values.values())).ndim))
    random, root = np.random.default_rng(0), milepost.Checkpoint(optimizer=Momentum())
    for name, value in values.items():
        *above, last = name.split("/")
        level = root
        for each in above:
            if not hasattr(level, each):
                setattr(level, each, milepost.Checkpoint())
            level = getattr(level, each)
        setattr(level, last, milepost.Variable(value))
        root.optimizer.train(getattr(level, last), random)
    with tempfile.TemporaryDirectory() as directory:
        path = root.write(f"{directory}/saved")
        try:
            milepost.convert(path, f"{directory}/there", convert=chosen)
        except MismatchError:
            assume(False)  # a length that cannot be divided
        milepost.convert(f"{directory}/there", f"{directory}/back", convert=inverse(chosen))
        before, after = (milepost.load_checkpoint(f"{directory}/{name}") for name in ("saved", "back"))
        assert before.keys() == after.keys()
        assert len(before.keys()) == 3 * len(values) + 1
        for key in set(before.keys()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}:
            assert before.get_tensor(key).tobytes() == after.get_tensor(key).tobytes()


def test_the_report_says_what_a_value_is_made_of(tmp_path):
    _, _, path = written(tmp_path, APART)
    model, optimizer = models.made(FUSED, seed=1)
    report = milepost.Checkpoint(model=model, optimizer=optimizer).read(path, convert=STEPS).report()
    notes = {entry.key: entry.note for entry in report if entry.note}
    above = "model/blocks/0"
    slot = "weight/.OPTIMIZER_SLOT/optimizer/exp_avg"
    assert notes[f"{above}/qkv/weight/.ATTRIBUTES/VARIABLE_VALUE"] == (
        f"made of {above}/q/weight, {above}/k/weight, {above}/v/weight"
    )
    assert notes[f"{above}/qkv/{slot}/.ATTRIBUTES/VARIABLE_VALUE"] == (
        f"made of {above}/q/{slot}, {above}/k/{slot}, {above}/v/{slot}"
    )
    assert not any("head" in key for key in notes)


def test_a_saved_value_that_no_object_takes_is_counted_under_its_new_name(tmp_path):
    _, _, path = written(tmp_path, APART)
    model, _ = models.made(APART)
    status = milepost.Checkpoint(model=model).read(path, convert=STEPS[:1])
    with pytest.raises(UnmatchedError):
        status.assert_consumed()
    deferred = [entry.key for entry in status.report() if entry.outcome is Outcome.DEFERRED]
    assert "model/blocks/0/qkv/weight/.ATTRIBUTES/VARIABLE_VALUE" in deferred
    assert not [key for key in deferred if key.startswith("model/blocks/0/q/")]
    with pytest.raises(UnmatchedError):
        status.assert_existing_objects_matched()
    status.expect_partial()


def test_other_arguments_get_the_names_of_what_is_made(tmp_path):
    model, _, path = written(tmp_path, APART)
    other, _ = models.made(FUSED, seed=1)
    head = other.head.weight.detach().clone()
    status = milepost.Checkpoint(net=other.half()).read(
        path, convert=STEPS, rename={"model": "net"}, only="net", ignore="net/head", cast=True
    )
    status.assert_consumed()
    torch.testing.assert_close(other.float().blocks[0].qkv.weight[:8], model.blocks[0].q.weight, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(other.head.weight, head, rtol=1e-3, atol=1e-3)
    (entry,) = [entry for entry in status.report() if "0/qkv/bias/.ATTR" in entry.key]
    assert entry.note.startswith("made of model/blocks/0/q/bias, ")
    assert "relative error" in entry.note


def test_a_shape_that_does_not_fit_changes_nothing(tmp_path):
    _, _, path = written(tmp_path, APART)
    other, its_optimizer = models.made(FUSED, seed=1)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    wrong = Reshape("model/head/weight", old=(3, 8), new=(8, 3))
    with pytest.raises(MismatchError, match="does not fit the live object"):
        milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=[*STEPS, wrong])
    steps = [Concatenate(STEPS[0].sources, STEPS[0].target, sizes=(8, 4, 3)), *STEPS[1:]]
    with pytest.raises(MismatchError, match="does not fit the saved values"):
        milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=steps)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    assert not its_optimizer.state


def test_state_of_another_shape_is_refused_by_name_and_can_be_left_out(tmp_path):
    model, _, path = written(tmp_path, APART, models.Other)
    other, its_optimizer = models.made(FUSED, models.Other, seed=1)
    models.train(other, its_optimizer, 0)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    checkpoint = milepost.Checkpoint(model=other, optimizer=its_optimizer)
    with pytest.raises(UnsupportedError, match="another shape than its parameter") as caught:
        checkpoint.read(path, convert=STEPS)
    assert caught.value.key.endswith("/.OPTIMIZER_SLOT/optimizer/rows/.ATTRIBUTES/VARIABLE_VALUE")
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    checkpoint.read(path, convert=STEPS, ignore="optimizer").assert_consumed()
    torch.testing.assert_close(models.output(other), models.output(model))


def test_steps_that_differ_are_refused_and_change_nothing(tmp_path):
    model, optimizer = models.trained(APART)
    optimizer.state[model.blocks[0].k.weight]["step"] += 1
    path = milepost.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "saved"))
    other, its_optimizer = models.trained(FUSED, seed=1)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(MismatchError, match="different numbers") as caught:
        milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=STEPS)
    assert "model/blocks/0/q/weight" in caught.value.key
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_state_that_only_some_parameters_have_is_refused(tmp_path):
    model, optimizer = models.trained(APART)
    del optimizer.state[model.blocks[0].k.weight]
    path = milepost.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "saved"))
    other, its_optimizer = models.made(FUSED, seed=1)
    with pytest.raises(UnsupportedError, match="only some") as caught:
        milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=STEPS)
    assert caught.value.expected == "such state of model/blocks/0/k/weight, too"


def test_a_value_with_two_names_is_refused_where_it_becomes_a_part(tmp_path):
    layer, tied = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    tied.weight = layer.weight
    path = milepost.Checkpoint(a=layer, b=torch.nn.Linear(2, 2), t=tied).write(str(tmp_path / "saved"))
    with pytest.raises(UnsupportedError, match="has two names") as caught:
        milepost.load(path, convert=[Concatenate(["a/weight", "b/weight"], "c")])
    assert caught.value.found == "the second name t/weight"


def test_two_attributes_of_one_object_are_one_name(tmp_path):
    layer = torch.nn.Linear(2, 2)
    layer.again = layer.weight
    path = milepost.Checkpoint(a=layer, b=torch.nn.Linear(2, 2)).write(str(tmp_path / "saved"))
    made = milepost.load(path, convert=[Concatenate(["a/weight", "b/weight"], "c")])
    assert made["c"].shape == (4, 2)
    assert made["a"].keys() == {"bias"}


@pytest.fixture
def square(tmp_path):
    """A trained model of Keras 3 with two square kernels, and its checkpoint."""
    keras = pytest.importorskip("keras", reason="Keras is not installed")

    def make(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="a"), keras.layers.Dense(4, name="b")])
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    model = make(0)
    model.fit(np.ones((4, 4)), np.ones((4, 4)), verbose=0)
    path = milepost.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "saved"))
    other = make(1)
    return model, path, other, milepost.Checkpoint(model=other, optimizer=other.optimizer)


KERNEL = Transpose("model/layer_with_weights-0/kernel")


def test_moments_in_lists_are_refused_because_a_list_does_not_say_whose_they_are(square):
    """Otherwise the moments of a square kernel would be restored as they are."""
    model, path, other, checkpoint = square
    before = [np.asarray(each) for each in other.get_weights()]
    with pytest.raises(UnsupportedError, match="in the order of its variables") as caught:
        checkpoint.read(path, convert=[KERNEL])
    assert caught.value.key == "optimizer/_momentums/0/.ATTRIBUTES/VARIABLE_VALUE"
    assert all((first == second).all() for first, second in zip(before, other.get_weights(), strict=True))
    checkpoint.read(path, convert=[KERNEL], ignore="optimizer").assert_consumed()
    assert (other.get_weights()[0] == model.get_weights()[0].T).all()


def test_moments_in_lists_are_converted_by_their_names(square):
    model, path, other, checkpoint = square
    moments = [Transpose(f"optimizer/{name}/0") for name in ("_momentums", "_velocities")]
    checkpoint.read(path, convert=[KERNEL, *moments]).assert_consumed().assert_existing_objects_matched()
    first, second = ([np.asarray(each.value) for each in net.optimizer.variables] for net in (model, other))
    assert any((a.shape == (4, 4) and (a == b.T).all() and (a != b).any()) for a, b in zip(first, second, strict=True))


def test_a_value_with_two_names_keeps_both_where_it_is_transposed(tmp_path):
    layer = torch.nn.Linear(2, 3)
    layer.again = layer.weight
    path = milepost.Checkpoint(a=layer).write(str(tmp_path / "saved"))
    made = milepost.load(path, convert=[Transpose("a/weight", "a/kernel")])
    assert made["a"].keys() == {"kernel", "bias", "again"}
    assert made["a"]["again"].shape == (2, 3)


def test_strides_and_other_hints_of_the_old_layout_do_not_stay(tmp_path):
    weight = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    path = milepost.save(str(tmp_path / "saved"), {"w": weight, "f": np.asfortranarray(np.ones((2, 3)))})
    made = milepost.load(path, arrays="torch", convert=[Transpose("w"), Transpose("f")])
    assert made["w"].tolist() == weight.T.tolist()
    assert made["w"].is_contiguous()


def test_a_name_based_checkpoint_is_laid_out_otherwise(tmp_path):
    path = milepost.save(str(tmp_path / "tree"), {"q": {"w": np.zeros(2)}, "k": {"w": np.ones(2)}})
    milepost.convert(path, tmp_path / "named", format="tensorflow1")
    made = milepost.load(str(tmp_path / "named"), convert=[Concatenate(["q", "k"], "qk")])
    assert {name: value.tolist() for name, value in made.items()} == {"qk/w": [0, 0, 1, 1]}
    variable = milepost.Variable(np.full(4, 9.0), name="qk/w")
    status = milepost.Checkpoint(v=variable).read(str(tmp_path / "named"), convert=[Concatenate(["q", "k"], "qk")])
    status.assert_consumed()
    assert variable.numpy().tolist() == [0, 0, 1, 1]


def test_a_conversion_says_what_values_are_made_of(tmp_path):
    _, _, path = written(tmp_path, APART)
    done = milepost.convert(
        path, tmp_path / "model.pt", convert=STEPS, only="model", rename={"model": ""}, separator="."
    )
    assert done.made_of["blocks.0.qkv.bias"] == [
        f"model/blocks/0/{name}/bias/.ATTRIBUTES/VARIABLE_VALUE" for name in "qkv"
    ]
    assert "head.bias" not in done.made_of
    other, _ = models.made(FUSED)
    other.load_state_dict(torch.load(tmp_path / "model.pt"))


@pytest.mark.parametrize("name", ["model.safetensors", "model.npz", "model.pt"])
def test_values_of_a_converted_file_are_those_of_a_load(tmp_path, name):
    """Each format is written from parts of values, in the order of memory."""
    values = {f"a/{each}": np.random.default_rng(0).random((5, 3, 4)).astype("float32") for each in "qkv"}
    steps = [Concatenate([f"a/{each}" for each in "qkv"], "a/qkv", axis=1), Transpose("a/qkv", axes=(2, 0, 1))]
    path, options = saved(values)
    milepost.convert(path, tmp_path / name, convert=steps, options=options)
    expected = flat(path, options, convert=steps)["a/qkv"]
    written_values = milepost.load(str(tmp_path / name), separator="/")["a/qkv"]
    assert written_values.tobytes() == expected.tobytes()


def test_the_catalogue_has_the_new_values(tmp_path):
    steps = [Split("a", ["b", "c"]), Transpose("d")]
    with reader_of({"a": np.arange(4), "d": np.zeros((2, 3)), "e": np.ones(1)}, steps) as reader:
        assert isinstance(reader, LaidOutReader)
        catalogue = reader.catalogue()
        assert [*catalogue.keys] == reader.keys()
        assert [str(each) for each in catalogue.spec_of_each()] == [str(reader.spec(key)) for key in reader.keys()]  # noqa: SIM118 - a reader is not a mapping
        assert "a/.ATTRIBUTES/VARIABLE_VALUE" not in reader
        with pytest.raises(UnsupportedError, match="made of others"):
            reader.map("b/.ATTRIBUTES/VARIABLE_VALUE")
        reader.verify()


def test_a_preview_shows_the_new_values(tmp_path):
    _, _, path = written(tmp_path, APART)
    other, its_optimizer = models.made(FUSED)
    checkpoint = milepost.Checkpoint(model=other, optimizer=its_optimizer)
    report = preview(path, lambda: Operation(checkpoint), milepost.CheckpointOptions(), Translation(convert=STEPS))
    assert report.counts()["wrong shape"] == report.counts()["unexpected"] == 0


def test_a_preview_of_state_that_cannot_be_converted_says_so(tmp_path):
    _, _, path = written(tmp_path, APART, models.Other)
    other, its_optimizer = models.made(FUSED, models.Other)
    models.train(other, its_optimizer, 0)
    checkpoint = milepost.Checkpoint(model=other, optimizer=its_optimizer)
    with pytest.raises(UnsupportedError, match="another shape than its parameter"):
        preview(path, lambda: Operation(checkpoint), milepost.CheckpointOptions(), Translation(convert=STEPS))
    with pytest.raises(UnsupportedError, match="another shape than its parameter"):
        checkpoint.read(path, convert=STEPS, skip_mismatch=True)


def test_objects_of_another_shape_than_what_is_made_keep_their_values(tmp_path):
    model, _, path = written(tmp_path, APART)
    other, _ = models.made(FUSED, seed=1)
    other.head = torch.nn.Linear(8, 5)
    with pytest.warns(milepost.UnrestoredWarning, match="have other shapes"):
        status = milepost.Checkpoint(model=other).read(path, convert=STEPS, only="model", skip_mismatch=True)
    status.assert_consumed()
    torch.testing.assert_close(other.blocks[0].qkv.weight[:8], model.blocks[0].q.weight)


def test_damage_in_what_a_value_is_made_of_changes_nothing(tmp_path):
    model, _, path = written(tmp_path, APART)
    (file,) = tmp_path.glob("saved.data*")
    data = bytearray(file.read_bytes())
    data[data.index(model.blocks[1].v.weight.detach().numpy().tobytes())] ^= 1
    file.write_bytes(data)
    other, its_optimizer = models.made(FUSED, seed=1)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(milepost.CorruptCheckpointError) as caught:
        milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, convert=STEPS)
    assert caught.value.key == "model/blocks/1/v/weight/.ATTRIBUTES/VARIABLE_VALUE"
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_a_mapped_load_reads_what_is_made_and_maps_the_rest(tmp_path):
    path = milepost.save(str(tmp_path / "saved"), {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(1000)})
    made = milepost.load(path, mapped=True, convert=[Transpose("a")])
    assert made["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert not made["b"].flags.writeable


def test_progress_ends_with_all_bytes(tmp_path):
    _, _, path = written(tmp_path, APART)
    other, its_optimizer = models.made(FUSED, seed=1)
    told = []
    options = milepost.CheckpointOptions(progress=told.append)
    milepost.Checkpoint(model=other, optimizer=its_optimizer).read(path, options, convert=STEPS)
    assert told[-1].bytes_done == told[-1].bytes_total


def test_load_weights_takes_steps(tmp_path):
    model, _ = models.trained(APART)
    path = milepost.save_weights(milepost.Checkpoint(model=model), tmp_path / "weights")
    other, _ = models.made(FUSED, seed=1)
    milepost.load_weights(milepost.Checkpoint(model=other), path, convert=STEPS).assert_consumed()
    torch.testing.assert_close(models.output(other), models.output(model))


def test_objects_that_are_made_later_get_what_is_made(tmp_path):
    model, _, path = written(tmp_path, APART)
    holder = milepost.Checkpoint()
    status = holder.read(path, convert=STEPS, only="model")
    other, _ = models.made(FUSED, seed=1)
    holder.model = other
    status.assert_consumed()
    torch.testing.assert_close(models.output(other), models.output(model))
