"""A part of a training state is restored: what is selected of slot variables, and of objects with several names."""

import warnings

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")


def made(classes=4):
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, classes))
    return net, torch.optim.Adam(net.parameters(), lr=0.05)


@pytest.fixture(params=["own", "torch.save"])
def saved(request, tmp_path):
    """A training state after one step."""
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    if request.param == "own":
        return milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    return str(tmp_path / "c.pt")


def names_of_state(net, optimizer):
    names = {parameter: name for name, parameter in net.named_parameters()}
    return {names[parameter]: sorted(state) for parameter, state in optimizer.state.items()}


@pytest.mark.parametrize(
    "ignore", ["optimizer/param_groups", "optimizer/param_groups/*", "*/lr", "optimizer/param_groups/0"]
)
def test_to_leave_out_hyperparameters_leaves_out_no_slot_variable(saved, ignore):
    net, optimizer = made()
    optimizer.param_groups[0]["lr"] = 0.5
    milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore=ignore).assert_consumed()
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert names_of_state(net, optimizer).keys() == dict(net.named_parameters()).keys()


@pytest.mark.parametrize("ignore", ["optimizer/state", "optimizer/*", "optimizer", "*exp_avg*"])
def test_to_leave_out_the_state_leaves_out_slot_variables(saved, ignore):
    net, optimizer = made()
    milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore=ignore).assert_consumed()
    left = {} if ignore != "*exp_avg*" else {key: ["step"] for key, _ in net.named_parameters()}
    assert names_of_state(net, optimizer) == left


def test_one_slot_variable_of_each_parameter_is_left_out(saved):
    net, optimizer = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore="*exp_avg_sq").assert_consumed()
    assert set(map(tuple, names_of_state(net, optimizer).values())) == {("exp_avg", "step")}


def test_a_name_of_a_slot_variable_with_a_typing_error_is_told(saved):
    net, optimizer = made()
    with pytest.warns(milepost.UnrestoredWarning, match=r"ignore names '\*exp_agv_sq'"):
        milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore="*exp_agv_sq")


@pytest.mark.parametrize("classes", [4, 7])
def test_slot_variables_are_left_out_with_their_variable(saved, classes):
    net, optimizer = made(classes)
    milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, ignore="net/1").assert_consumed()
    assert names_of_state(net, optimizer).keys() == {"0.weight", "0.bias"}
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def test_the_state_of_an_optimizer_alone_is_restored(saved):
    net, optimizer = made()
    before = net[0].weight.detach().clone()
    status = milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, only="optimizer")
    status.assert_consumed().assert_existing_objects_matched()
    assert names_of_state(net, optimizer).keys() == dict(net.named_parameters()).keys()
    assert torch.equal(net[0].weight, before)


def test_state_of_a_parameter_of_another_shape_is_refused(saved):
    net, optimizer = made(7)
    optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(milepost.MismatchError, match=r"nothing was changed(.|\n)*ignore"):
        milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, only="optimizer")
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_state_in_a_file_without_the_model_is_refused_if_its_shape_does_not_fit(tmp_path):
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    net, optimizer = made(7)
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    with pytest.raises(milepost.MismatchError, match=r"shape \(4, 2\) of 'exp_avg' of parameter 2 of group 0"):
        checkpoint.read(str(tmp_path / "optimizer.pt"), rename={"": "optimizer"})
    assert not optimizer.state


class Shared(nn.Module):  # type: ignore[name-defined]
    """One embedding under three names, as some transformers have it."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(5, 3)
        for name in ("encoder", "decoder"):
            part = nn.Module()
            part.embedding, part.linear = self.shared, nn.Linear(3, 3)
            setattr(self, name, part)


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        ({"only": "net/encoder"}, {"shared", "encoder"}),
        ({"only": "net/shared"}, {"shared"}),
        ({"ignore": "net/decoder"}, {"shared", "encoder"}),
        ({"ignore": "net/shared"}, {"encoder", "decoder"}),
    ],
)
def test_a_shared_module_is_selected_by_its_names(tmp_path, selection, taken):
    saved, live = Shared(), Shared()
    path = milepost.Checkpoint(net=saved).write(tmp_path / "c")
    milepost.Checkpoint(net=live).read(path, **selection).assert_consumed()
    weights = {
        "shared": (live.shared.weight, saved.shared.weight),
        "encoder": (live.encoder.linear.weight, saved.encoder.linear.weight),
        "decoder": (live.decoder.linear.weight, saved.decoder.linear.weight),
    }
    assert {name for name, pair in weights.items() if torch.equal(*pair)} == taken


def but(left_out):
    """A function that leaves out what is below a name."""
    return lambda name: None if name.startswith(left_out) else name


@pytest.mark.parametrize(
    ("selection", "parts"),
    [
        ({"only": "optimizer"}, {"rate", "moments of 0", "moments of 1"}),
        ({"only": "net"}, {"0", "1"}),
        ({"ignore": "net/1"}, {"0", "rate", "moments of 0"}),
        ({"ignore": "optimizer/param_groups"}, {"0", "1", "moments of 0", "moments of 1"}),
        ({"ignore": "optimizer"}, {"0", "1"}),
        ({"ignore": "optimizer/state"}, {"0", "1", "rate"}),
        ({"only": "*exp_avg"}, {"moments of 0", "moments of 1"}),
        ({"rename": but("optimizer")}, {"0", "1"}),
        ({"rename": but("net/1")}, {"0", "rate", "moments of 0"}),
        ({"rename": but("optimizer/param_groups/0/lr")}, {"0", "1", "moments of 0", "moments of 1"}),
        ({"rename": but("nothing"), "only": "optimizer/state"}, {"moments of 0", "moments of 1"}),
    ],
)
@pytest.mark.parametrize("by", ["load", "npz", "ckpt"])
@pytest.mark.filterwarnings("ignore:.*renames nothing:milepost.UnrestoredWarning")
def test_a_tree_and_a_converted_file_have_what_a_restore_takes(tmp_path, selection, parts, by):
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    if by == "load":
        names = set(milepost.load(path, separator="/", **selection))
        slot = "optimizer/.OPTIMIZER_SLOT/exp_avg/net/{}/weight"
    else:
        milepost.convert(path, tmp_path / f"c.{by}", **selection)
        names = {
            name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
            for name, _ in milepost.list_variables(str(tmp_path / f"c.{by}"))
        }
        slot = "net/{}/weight/.OPTIMIZER_SLOT/optimizer/exp_avg"
    wanted = {"0": "net/0/weight", "1": "net/1/weight", "rate": "optimizer/param_groups/0/lr"}
    wanted |= {f"moments of {number}": slot.format(number) for number in "01"}
    assert {part for part, name in wanted.items() if name in names} == parts


def test_a_tree_of_slot_variables_alone_has_no_empty_model(tmp_path):
    net, optimizer = made()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(tmp_path / "c")
    assert milepost.load(path, only="optimizer").keys() == {"optimizer"}


def stepped(net, optimizer):
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return net, optimizer


def both(directory, **objects):
    """The paths of milepost's own file and of one of torch.save."""
    own = milepost.Checkpoint(**objects).write(directory / "own")
    torch.save({name: each.state_dict() for name, each in objects.items()}, directory / "c.pt")
    return own, str(directory / "c.pt")


@pytest.mark.parametrize("only", ["optimizer/state/exp_avg", "*exp_avg"])
def test_slot_variables_are_selected_below_their_optimizer(saved, only):
    net, optimizer = made()
    milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, only=only).assert_consumed()
    assert set(map(tuple, names_of_state(net, optimizer).values())) == {("exp_avg",)}


def test_state_in_a_file_of_torch_save_may_be_named_by_its_number(tmp_path):
    _, path = both(tmp_path, **dict(zip(("net", "optimizer"), stepped(*made()), strict=True)))
    net, optimizer = made()
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path, only="optimizer/state/1/exp_avg").assert_consumed()
    assert names_of_state(net, optimizer) == {"0.bias": ["exp_avg"]}


@pytest.mark.parametrize("only", ["*betas", "optimizer/param_groups/0/betas"])
def test_one_hyperparameter_is_restored(saved, only):
    net, optimizer = made()
    optimizer.param_groups[0].update(betas=(0.5, 0.5), lr=0.5)
    status = milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, only=only)
    status.assert_consumed().assert_existing_objects_matched()
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert not optimizer.state


@pytest.mark.parametrize("argument", ["only", "ignore"])
@pytest.mark.parametrize("name", [["net", ""], ["/"]])
def test_an_empty_name_is_refused(saved, argument, name):
    with pytest.raises(milepost.UnsupportedError, match="a name, or a list of names"):
        milepost.Checkpoint(net=made()[0]).read(saved, **{argument: name})


@pytest.mark.parametrize("kind", [0, 1], ids=["own", "torch.save"])
def test_state_that_was_made_since_is_removed_if_the_optimizer_alone_is_restored(tmp_path, kind):
    net, optimizer = made()
    path = both(tmp_path, net=net, optimizer=optimizer)[kind]
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    stepped(net, optimizer)
    checkpoint.read(path, only="optimizer").assert_consumed().assert_existing_objects_matched()
    assert not optimizer.state


@pytest.mark.parametrize("kind", [0, 1], ids=["own", "torch.save"])
def test_state_that_was_made_since_is_removed_beside_state_that_is_ignored(tmp_path, kind):
    path = both(tmp_path, **dict(zip(("net", "optimizer"), stepped(*made()), strict=True)))[kind]
    net, _ = made()
    optimizer = torch.optim.Adam(net.parameters(), amsgrad=True)
    stepped(net, optimizer)
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path, ignore="*exp_avg").assert_consumed()
    assert set(map(tuple, names_of_state(net, optimizer).values())) == {("exp_avg", "exp_avg_sq", "step")}


@pytest.mark.parametrize(
    "arguments",
    [
        {"only": "optimizer"},
        {"rename": {"net": "elsewhere"}},
        {"rename": lambda name: None if name.startswith("net") else name},
    ],
    ids=["only", "rename", "function"],
)
def test_state_stays_if_the_saved_state_is_of_parameters_that_were_not_found(tmp_path, arguments):
    path, _ = both(tmp_path, **dict(zip(("net", "optimizer"), stepped(*made()), strict=True)))
    net, optimizer = stepped(*made())
    before = [optimizer.state[each]["exp_avg"].clone() for each in net.parameters()]
    status = milepost.Checkpoint(model=net, optimizer=optimizer).read(path, **arguments).expect_partial()
    for each, moment in zip(net.parameters(), before, strict=True):
        assert torch.equal(optimizer.state[each]["exp_avg"], moment)
    with pytest.raises(milepost.UnmatchedError, match="exp_avg"):
        status.assert_existing_objects_matched()


def test_state_of_an_optimizer_alone_waits_for_a_model_that_is_made_later(tmp_path):
    path, _ = both(tmp_path, **dict(zip(("net", "optimizer"), stepped(*made()), strict=True)))
    checkpoint = milepost.Checkpoint()
    status = checkpoint.read(path, only="optimizer")
    net, optimizer = made()
    before = net[0].weight.detach().clone()
    checkpoint.net, checkpoint.optimizer = net, optimizer
    status.assert_consumed()
    assert names_of_state(net, optimizer).keys() == dict(net.named_parameters()).keys()
    assert torch.equal(net[0].weight, before)


@pytest.mark.parametrize("kind", [0, 1], ids=["own", "torch.save"])
def test_a_shared_module_that_is_ignored_takes_nothing_by_its_other_names(tmp_path, kind):
    path, live = both(tmp_path, net=Shared())[kind], Shared()
    before = live.shared.weight.detach().clone()
    milepost.Checkpoint(net=live).read(path, ignore="net/shared").assert_consumed()
    assert torch.equal(live.shared.weight, before)


@pytest.mark.parametrize("kind", [0, 1], ids=["own", "torch.save"])
def test_slot_variables_go_with_a_variable_that_rename_leaves_out(tmp_path, kind):
    path = both(tmp_path, **dict(zip(("net", "optimizer"), stepped(*made()), strict=True)))[kind]
    net, optimizer = made()
    status = milepost.Checkpoint(net=net, optimizer=optimizer).read(
        path, rename=lambda name: None if name.startswith("net/1") else name
    )
    status.expect_partial()
    assert names_of_state(net, optimizer).keys() == {"0.weight", "0.bias"}


@pytest.mark.parametrize("kind", [0, 1], ids=["own", "torch.save"])
@pytest.mark.parametrize(
    ("selection", "is_taken"), [({"only": "*lr"}, False), ({"ignore": "*lr"}, True), ({"only": "scheduler"}, True)]
)
def test_plain_state_is_taken_as_a_whole_or_not_at_all(tmp_path, kind, selection, is_taken):
    def program():
        net, optimizer = made()
        return {"net": net, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}

    objects = program()
    stepped(objects["net"], objects["optimizer"])
    objects["scheduler"].step()
    path = both(tmp_path, **objects)[kind]
    live = program()
    fresh = live["scheduler"].state_dict()
    milepost.Checkpoint(**live).read(path, **selection).assert_consumed()
    assert live["scheduler"].state_dict() == (objects["scheduler"].state_dict() if is_taken else fresh)


def test_a_part_of_plain_state_names_nothing(tmp_path):
    _, optimizer = made()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for path in both(tmp_path, scheduler=scheduler):
        with pytest.warns(milepost.UnrestoredWarning, match="only names 'scheduler/last_epoch'"):
            status = milepost.Checkpoint(scheduler=scheduler).read(path, only="scheduler/last_epoch")
        with pytest.raises(milepost.UnmatchedError):
            status.assert_consumed()


def test_the_names_of_a_wrapper_are_those_of_the_module_in_it(tmp_path):
    saved, _ = made()
    torch.save({"net": nn.DataParallel(saved).state_dict()}, tmp_path / "c.pt")
    for selection, expected in (({"only": "net/0"}, [True, False]), ({"ignore": "net/0"}, [False, True])):
        live, _ = made()
        milepost.Checkpoint(net=live).read(str(tmp_path / "c.pt"), **selection).assert_consumed()
        assert [torch.equal(live[number].weight, saved[number].weight) for number in (0, 1)] == expected


def test_the_names_of_a_file_with_levels_of_a_wrapper_ignore_state_too(tmp_path):
    saved, optimizer = stepped(*made())
    torch.save({"net": nn.DataParallel(saved).state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    live, other = made()
    status = milepost.Checkpoint(net=live, optimizer=other).read(str(tmp_path / "c.pt"), ignore="net/module/0")
    status.assert_consumed().assert_existing_objects_matched()
    assert names_of_state(live, other).keys() == {"1.weight", "1.bias"}


@pytest.mark.parametrize("name", ["net/0", "net/module/0"])
def test_cast_has_either_name_of_a_value_below_a_wrapper(tmp_path, name):
    saved, _ = made()
    torch.save({"net": nn.DataParallel(saved).state_dict()}, tmp_path / "c.pt")
    live = made()[0].double()
    milepost.Checkpoint(net=live).read(str(tmp_path / "c.pt"), only=name, cast=name).assert_consumed()
    assert torch.equal(live[0].weight, saved[0].weight.double())


def test_a_member_of_a_hyperparameter_names_nothing(saved):
    net, optimizer = made()
    with pytest.warns(milepost.UnrestoredWarning, match="only names 'optimizer/param_groups/0/betas/0'"):
        status = milepost.Checkpoint(net=net, optimizer=optimizer).read(saved, only="optimizer/param_groups/0/betas/0")
    with pytest.raises(milepost.UnmatchedError):
        status.assert_consumed()


def test_the_remedy_for_another_shape_keeps_what_is_ignored_already(tmp_path):
    path, _ = both(tmp_path, net=made()[0])
    with pytest.raises(milepost.MismatchError, match=r"ignore=\['net/1/weight', 'net/1/bias'\]"):
        milepost.Checkpoint(net=made(7)[0]).read(path, ignore="net/1/weight")


def test_state_for_a_parameter_without_a_shape_is_deferred(tmp_path):
    _, path = both(tmp_path, **dict(zip(("net", "optimizer"), stepped(*made()), strict=True)))
    net = nn.Sequential(nn.LazyLinear(2), nn.Linear(2, 4))
    optimizer = torch.optim.Adam(net.parameters())
    milepost.Checkpoint(net=net, optimizer=optimizer).read(path).expect_partial()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_tree_has_what_is_named_by_another_name(tmp_path):
    path = milepost.Checkpoint(net=Shared()).write(tmp_path / "c")
    assert milepost.load(path, only="net/decoder", separator=".").keys() == {
        "net.decoder.embedding.weight",
        "net.decoder.linear.weight",
        "net.decoder.linear.bias",
    }


@pytest.mark.parametrize("left_out", ["lr", "betas/0", "maximize"])
@pytest.mark.parametrize("form", ["own", "numbers", "names", "flat"])
def test_a_function_that_leaves_out_a_hyperparameter_leaves_out_no_state(tmp_path, form, left_out):
    distributed = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    saved, optimizer = stepped(*made())
    if form == "own":
        path = milepost.Checkpoint(net=saved, optimizer=optimizer).write(tmp_path / "own")
        left_out = left_out.partition("/")[0]  # there, the pair is one value
    else:
        options = distributed.StateDictOptions(flatten_optimizer_state_dict=form == "flat")
        named = distributed.get_optimizer_state_dict(saved, optimizer, options=options)
        state = optimizer.state_dict() if form == "numbers" else named
        torch.save({"net": saved.state_dict(), "optimizer": state}, tmp_path / "c.pt")
        path = str(tmp_path / "c.pt")
    net, live = made()
    own = {"lr": 0.5, "betas": (0.5, 0.5), "maximize": True}
    live.param_groups[0].update(own)
    milepost.Checkpoint(net=net, renamed=live).read(
        path,
        rename=lambda name: None if name.endswith(left_out) else name.replace("optimizer", "renamed"),
    ).expect_partial()
    kept = left_out.partition("/")[0]
    assert live.param_groups[0][kept] == own[kept]
    for name in own.keys() - {kept}:
        assert live.param_groups[0][name] == optimizer.param_groups[0][name]
    for one, other in zip(saved.parameters(), net.parameters(), strict=True):
        assert torch.equal(optimizer.state[one]["exp_avg"], live.state[other]["exp_avg"])
