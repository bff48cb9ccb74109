"""Files of every kind are restored into programs with other names, other heads and other element types."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, Variable

ENCODER, HEAD = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(5, np.float32)


def saved_by_milepost(path):
    return Checkpoint(encoder=Variable(ENCODER), head=Variable(HEAD)).write(path / "ckpt")


def saved_by_tensorflow(path):
    tf = pytest.importorskip("tensorflow")
    return tf.train.Checkpoint(encoder=tf.Variable(ENCODER), head=tf.Variable(HEAD)).write(str(path / "ckpt"))


def saved_by_name(path):
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.Variable(ENCODER, name="encoder"), tf.compat.v1.Variable(HEAD, name="head")]
        session.run(tf.compat.v1.global_variables_initializer())
        return tf.compat.v1.train.Saver(variables).save(session, str(path / "model"))


def saved_by_torch(path):
    torch = pytest.importorskip("torch")
    torch.save({"encoder": torch.tensor(ENCODER), "head": torch.tensor(HEAD)}, path / "file.pt")
    return path / "file.pt"


def saved_by_torch_distributed(path):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save({"encoder": torch.tensor(ENCODER), "head": torch.tensor(HEAD)}, checkpoint_id=path / "dcp", no_dist=True)
    return path / "dcp"


def saved_as_safetensors(path):
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"encoder": ENCODER, "head": HEAD}, path / "file.safetensors")
    return path / "file.safetensors"


def saved_by_orbax(path):
    ocp = pytest.importorskip("orbax.checkpoint")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path / "orbax", {"encoder": ENCODER, "head": HEAD})
    return path / "orbax"


def saved_as_saved_model(path):
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.encoder, module.head = tf.Variable(ENCODER), tf.Variable(HEAD)
    tf.saved_model.save(module, str(path / "model"))
    return path / "model"


WRITERS = [
    saved_by_milepost,
    saved_by_tensorflow,
    saved_by_name,
    saved_by_torch,
    saved_by_torch_distributed,
    saved_as_safetensors,
    saved_by_orbax,
    saved_as_saved_model,
]


@pytest.fixture(params=WRITERS, ids=lambda writer: writer.__name__)
def path(request, tmp_path):
    return request.param(tmp_path)


def program(dtype=np.float32):
    """A program with another name for the encoder, and another head."""
    return Checkpoint(backbone=Variable(np.zeros((2, 3), dtype)), head=Variable(np.zeros(2, np.float32)))


def test_a_value_is_restored_under_its_new_name_and_the_head_is_left_alone(path):
    live = program()
    status = live.read(path, rename={"encoder": "backbone"}, ignore="head")
    status.assert_existing_objects_matched()
    assert np.array_equal(live.backbone.numpy(), ENCODER)
    assert np.array_equal(live.head.numpy(), np.zeros(2))


def test_the_report_says_what_was_left_out_on_both_sides(path):
    report = program().read(path, rename={"encoder": "backbone"}, ignore="head").report()
    assert sorted((entry.key.partition("/.")[0], entry.saved, entry.live) for entry in report.ignored) == [
        ("head", "", "float32[2]"),
        ("head", "float32[5]", ""),
    ]


@pytest.mark.parametrize(
    "rename",
    [
        [("^enc", "back"), ("oder", "bone")],
        lambda name: {"encoder": "backbone", "head": None}.get(name, name),
    ],
    ids=["expressions", "function"],
)
def test_names_are_given_by_expressions_or_a_function(path, rename):
    live = program()
    live.read(path, rename=rename, ignore="head").assert_existing_objects_matched()
    assert np.array_equal(live.backbone.numpy(), ENCODER)


def test_only_what_is_asked_for_is_restored(path):
    live = Checkpoint(encoder=Variable(np.zeros((2, 3), np.float32)), head=Variable(np.zeros(2, np.float32)))
    live.read(path, only="encoder").assert_consumed()
    assert np.array_equal(live.encoder.numpy(), ENCODER)
    assert np.array_equal(live.head.numpy(), np.zeros(2))


def test_numbers_are_converted_on_demand_and_the_loss_is_said(path):
    live = program(np.float16)
    report = live.read(path, rename={"encoder": "backbone"}, ignore="head", cast=True).report()
    assert np.array_equal(live.backbone.numpy(), ENCODER.astype(np.float16))
    (entry,) = [entry for entry in report.matched if entry.key.startswith("encoder")]
    assert (entry.saved, entry.live, entry.note) == ("float32[2,3]", "float16[2,3]", "converted without a loss")


@pytest.mark.parametrize(
    ("saved", "live"),
    [(0.1, Variable(0.0)), (0.1, np.zeros((), np.float32)), (np.array(0.1), Variable(0.0))],
    ids=["number to variable", "number to array", "array to variable"],
)
def test_what_has_no_dimensions_is_converted_too(path, saved, live):
    program = Checkpoint(x=live)
    status = program.read(Checkpoint(x=saved).write(path), cast=True)
    assert np.asarray(program.x) == np.float32(0.1)
    (entry,) = [entry for entry in status.report() if entry.key.startswith("x/")]
    assert entry.note == "converted; the largest relative error is 1.5e-08"


def test_a_number_that_would_be_lost_is_not_converted(path):
    live = Checkpoint(x=Variable(7.0))
    with pytest.raises(milepost.MismatchError, match="cannot be converted"):
        live.read(Checkpoint(x=1e300).write(path), cast=True)
    assert live.x.numpy() == 7


def test_a_plain_value_takes_the_saved_type_all_the_same(path):
    live = Checkpoint(x=1.5)
    live.read(Checkpoint(x=np.float32(0.1)).write(path), cast=True)
    assert type(live.x) is np.float32


def test_the_error_for_a_number_offers_the_conversion(path):
    saved = Checkpoint(x=0.1).write(path)
    with pytest.raises(milepost.MismatchError, match="cast=True"):
        Checkpoint(x=Variable(0.0)).read(saved)


def test_numbers_are_not_converted_elsewhere(path):
    live = program(np.float16)
    with pytest.raises(milepost.MismatchError, match="cast=True"):
        live.read(path, rename={"encoder": "backbone"}, ignore="head", cast="head")


def test_a_shape_that_does_not_fit_is_refused_with_the_argument_that_leaves_it_alone(path):
    live = program()
    with pytest.raises(milepost.MismatchError, match="ignore='head'"):
        live.read(path, rename={"encoder": "backbone"})
    assert np.array_equal(live.backbone.numpy(), np.zeros((2, 3)))


def test_two_values_of_one_name_are_refused(path):
    live = program()
    with pytest.raises(milepost.UnsupportedError, match="the same name"):
        live.read(path, rename={"encoder": "head"})


def test_an_object_that_is_made_later_gets_the_value_of_its_new_name(path):
    live = Checkpoint()
    live.read(path, rename={"encoder": "backbone"}, ignore="head", cast=True).expect_partial()
    live.backbone = Variable(np.zeros((2, 3), np.float64))
    assert live.backbone.numpy().dtype == np.float64
    assert np.array_equal(live.backbone.numpy(), ENCODER)
    live.head = Variable(np.zeros(5, np.float32))
    assert np.array_equal(live.head.numpy(), np.zeros(5))


def warnings_of(path, **arguments):
    live = Checkpoint(encoder=Variable(np.zeros((2, 3), np.float32)), head=Variable(np.zeros(5, np.float32)))
    with pytest.warns(milepost.UnrestoredWarning) as caught:
        live.read(path, **arguments).expect_partial()
    return [str(each.message) for each in caught if "names " in str(each.message) or "rename" in str(each.message)]


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ({"encoder": "encoder", "haed": "head"}, ["rename has 'haed', which fits no saved name"]),
        ([("encoder", "encoder"), ("^haed", "head")], ["rename has '^haed', which fits no saved name"]),
        (lambda name: name, ["the function given as rename has returned every saved name unchanged"]),
    ],
    ids=["mapping", "expressions", "function"],
)
def test_a_rename_that_names_nothing_in_the_file_is_warned_of(path, rename, said):
    found = warnings_of(path, rename=rename)
    assert [text in message for text, message in zip(said, found, strict=True)] == [True]
    assert "'head'" in found[0]  # the nearest name, or one that there is


def test_other_arguments_that_name_nothing_are_warned_of(path):
    found = warnings_of(path, ignore=["haed", "encoder"], only=["head", "encodr"], cast=["hed", "head"])
    assert [message.partition(": ")[2].partition(";")[0] for message in found] == [
        "ignore names 'haed', and neither a saved value nor a live object has this name",
        "only names 'encodr', and neither a saved value nor a live object has this name",
        "cast names 'hed', and neither a saved value nor a live object has this name",
    ]
    assert [message.partition("did you mean ")[2] for message in found] == ["'head'?", "'encoder'?", "'head'?"]


class TestSeparators:
    """Names with the separators of other libraries lead to the objects that they name."""

    def test_slashes_in_a_flat_file_of_pytorch(self, tmp_path):
        path = milepost.save(tmp_path / "own", {"net": {"w": np.ones(2)}, "list": [np.ones(3)]})
        for ending in ("safetensors", "pt"):
            milepost.convert(path, tmp_path / f"a.{ending}")
            live = milepost.Checkpoint(net={"w": np.zeros(2)}, list=[np.zeros(3)])
            live.read(tmp_path / f"a.{ending}").assert_consumed().assert_existing_objects_matched()
            assert (live.net["w"].tolist(), live.list[0].tolist()) == ([1, 1], [1, 1, 1])

    def test_dots_in_a_file_of_numpy(self, tmp_path):
        np.savez(tmp_path / "a.npz", **{"net.w": np.ones(2), "net.b": np.ones(3)})
        live = milepost.Checkpoint(net={"w": np.zeros(2), "b": np.zeros(3)})
        live.read(tmp_path / "a.npz").assert_consumed().assert_existing_objects_matched()
        assert (live.net["w"].tolist(), live.net["b"].tolist()) == ([1, 1], [1, 1, 1])

    def test_keys_of_a_dict_with_dots_and_slashes(self, tmp_path):
        torch = pytest.importorskip("torch")
        names = ("a.b", "a.c", "d/e", "plain")
        torch.save({"held": {name: torch.ones(2) for name in names}}, tmp_path / "a.pt")
        live = milepost.Checkpoint(held={name: torch.zeros(2) for name in names})
        live.read(tmp_path / "a.pt").assert_consumed().assert_existing_objects_matched()
        assert all(each.tolist() == [1, 1] for each in live.held.values())


@pytest.mark.parametrize("rename", [[(r"^encoder\.", "body.")], [("^encoder/", "body/")], {"encoder": "body"}])
@pytest.mark.parametrize("form", ["own", "pt", "safetensors", "npz"])
def test_a_rename_may_have_either_separator(tmp_path, rename, form):
    path = Checkpoint(encoder=Checkpoint(w=Variable(ENCODER)), head=Variable(HEAD)).write(tmp_path / "own")
    if form != "own":
        separator = "/" if form == "npz" else "."
        milepost.convert(path, path := tmp_path / f"a.{form}", separator=separator)
    live = Checkpoint(body=Checkpoint(w=Variable(np.zeros_like(ENCODER))), head=Variable(np.zeros_like(HEAD)))
    live.read(path, rename=rename).assert_consumed().assert_existing_objects_matched()
    assert live.body.w.numpy().tolist() == ENCODER.tolist()
