"""``skip_mismatch=True``: live objects keep their values if the saved ones have other shapes."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, MismatchError, UnrestoredWarning, UnsupportedError, Variable


def net(classes, value=0.0):
    return Checkpoint(
        body=Variable(np.full((3, 4), value, np.float32)),
        head=Checkpoint(w=Variable(np.full((4, classes), value, np.float32)), b=Variable(np.full(classes, value))),
    )


def test_objects_of_another_shape_keep_their_values(tmp_path):
    path = Checkpoint(net=net(2, 1.0)).write(tmp_path / "ckpt")
    live = Checkpoint(net=net(5))
    with pytest.raises(MismatchError):
        live.read(path)
    with pytest.warns(UnrestoredWarning, match="2 saved values have other shapes") as caught:
        status = live.read(path, skip_mismatch=True)
    assert "net/head/w" in str(caught[0].message)
    assert live.net.body.numpy().min() == 1
    assert live.net.head.w.numpy().max() == live.net.head.b.numpy().max() == 0
    status.assert_consumed().assert_existing_objects_matched()
    assert status.report().counts()["ignored"] >= 2


def test_nothing_is_said_if_all_fits(tmp_path, recwarn):
    path = Checkpoint(net=net(2, 1.0)).save(tmp_path / "ckpt")
    live = Checkpoint(net=net(2))
    live.restore(path, skip_mismatch=True).assert_consumed()
    assert live.net.head.w.numpy().min() == 1
    assert not recwarn.list


def test_another_type_is_still_an_error(tmp_path):
    path = Checkpoint(v=np.zeros(3, np.float32)).write(tmp_path / "ckpt")
    with pytest.raises(MismatchError):
        Checkpoint(v=np.zeros(3, np.float64)).read(path, skip_mismatch=True)


def test_it_works_with_rename_and_ignore(tmp_path):
    path = Checkpoint(old=net(2, 1.0)).write(tmp_path / "ckpt")
    live = Checkpoint(new=net(5))
    with pytest.warns(UnrestoredWarning, match="1 saved value has another shape"):
        live.read(path, rename={"old": "new"}, ignore="new/head/w", skip_mismatch=True).assert_consumed()
    assert live.new.body.numpy().min() == 1
    assert live.new.head.b.numpy().max() == 0


def test_another_value_of_the_argument_is_refused(tmp_path):
    path = Checkpoint(v=np.zeros(3)).write(tmp_path / "ckpt")
    with pytest.raises(UnsupportedError) as caught:
        Checkpoint(v=np.zeros(3)).read(path, skip_mismatch="v")
    assert caught.value.key == "skip_mismatch"


def torch_state(classes):
    torch = pytest.importorskip("torch")
    torch.manual_seed(classes)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, classes))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("form", ["own", "pt", "safetensors"])
def test_a_new_head_of_pytorch(tmp_path, form):
    torch = pytest.importorskip("torch")
    saved, optimizer = torch_state(2)
    live, live_optimizer = torch_state(5)
    path = Checkpoint(model=saved, optimizer=optimizer).write(tmp_path / "ckpt")
    if form == "pt":
        torch.save({"model": saved.state_dict()}, path := tmp_path / "a.pt")
    elif form == "safetensors":
        milepost.convert(path, path := tmp_path / "a.safetensors", only="model")
    head = live[1].weight.detach().clone()
    moments = live_optimizer.state[live[1].weight]["exp_avg"].clone()
    with pytest.warns(UnrestoredWarning, match="2 saved values have other shapes"):
        status = Checkpoint(model=live, optimizer=live_optimizer).read(path, skip_mismatch=True)
    status.expect_partial()
    assert live[0].weight.equal(saved[0].weight)
    assert live[1].weight.equal(head)
    assert live_optimizer.state[live[1].weight]["exp_avg"].equal(moments)
    if form == "own":
        kept = live_optimizer.state[live[0].weight]["exp_avg"]
        assert kept.equal(optimizer.state[saved[0].weight]["exp_avg"])


@pytest.mark.parametrize("form", ["own", "pt"])
@pytest.mark.parametrize("selection", [{"only": "optimizer"}, {"ignore": "model/1/weight"}])
def test_a_new_head_keeps_its_state_if_its_values_are_not_asked_for(tmp_path, form, selection):
    torch = pytest.importorskip("torch")
    saved, optimizer = torch_state(2)
    live, live_optimizer = torch_state(5)
    path = Checkpoint(model=saved, optimizer=optimizer).write(tmp_path / "ckpt")
    if form == "pt":
        torch.save({"model": saved.state_dict(), "optimizer": optimizer.state_dict()}, path := tmp_path / "a.pt")
    moments = [live_optimizer.state[each]["exp_avg"].clone() for each in live[1].parameters()]
    with pytest.warns(UnrestoredWarning, match="than the live object"):
        status = Checkpoint(model=live, optimizer=live_optimizer).read(path, skip_mismatch=True, **selection)
    status.assert_consumed().assert_existing_objects_matched()
    for parameter, moment in zip(live[1].parameters(), moments, strict=True):
        assert live_optimizer.state[parameter]["exp_avg"].equal(moment)
    assert live_optimizer.state[live[0].weight]["exp_avg"].equal(optimizer.state[saved[0].weight]["exp_avg"])


def test_weights_of_keras(tmp_path):
    keras = pytest.importorskip("keras")

    def model(classes):
        keras.utils.set_random_seed(classes)
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(classes)])

    saved, live, theirs = model(2), model(5), model(5)
    saved.save_weights(tmp_path / "a.weights.h5")
    with pytest.warns(UserWarning, match="could not be loaded"):
        theirs.load_weights(tmp_path / "a.weights.h5", skip_mismatch=True)
    with pytest.warns(UnrestoredWarning, match="other shapes"):
        milepost.Checkpoint(live).read(tmp_path / "a.weights.h5", skip_mismatch=True).assert_existing_objects_matched()
    for found, expected in zip(live.variables, theirs.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
