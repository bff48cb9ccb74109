"""PyTorch modules: what is saved of them, and what fits what."""

import copy
import pickle

import pytest

import milepost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = pytest.importorskip("torch.nn")
prune = pytest.importorskip("torch.nn.utils.prune")


def saved(directory, **children):
    return milepost.Checkpoint(**children).write(directory / "c")


def restored(path, **children):
    return milepost.Checkpoint(**children).read(path)


def names(path):
    keys = [key for key, _ in milepost.list_variables(path)]
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    return {key.removesuffix(suffix) for key in keys} - {"_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter"}


class Net(nn.Module):  # type: ignore[name-defined]
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])
        self.heads = nn.ModuleDict({"a": nn.Linear(2, 1)})
        self.scales = nn.ParameterList([torch.randn(2), torch.randn(3)])
        self.named = nn.ParameterDict({"w": torch.randn(2)})
        self.register_buffer("cache", torch.randn(2), persistent=False)

    def forward(self, x):
        x = self.norm(self.l1(x))
        for block in self.blocks:
            x = block(x)
        return self.heads["a"](x)


def same(one, other):
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_keys_are_the_names_of_the_state_dict_with_slashes(tmp_path):
    net = Net()
    assert names(saved(tmp_path, net=net)) == {"net/" + name.replace(".", "/") for name in net.state_dict()}


def test_everything_in_the_state_dict_comes_back(tmp_path):
    net, fresh = Net(), Net()
    restored(saved(tmp_path, net=net), net=fresh).assert_consumed()
    assert same(fresh, net)


def test_buffers_that_are_not_persistent_are_not_saved(tmp_path):
    net, fresh = Net(), Net()
    before = fresh.cache.clone()
    restored(saved(tmp_path, net=net), net=fresh)
    assert torch.equal(fresh.cache, before)


def test_tied_weights_are_one_value_and_stay_tied(tmp_path):
    def make():
        net = nn.ModuleDict({"embed": nn.Embedding(5, 3), "out": nn.Linear(3, 5, bias=False)})
        net["out"].weight = net["embed"].weight
        return net

    net, fresh = make(), make()
    path = saved(tmp_path, net=net)
    assert names(path) == {"net/embed/weight"}
    restored(path, net=fresh).assert_consumed()
    assert fresh["out"].weight is fresh["embed"].weight
    assert same(fresh, net)


def test_a_module_in_two_places_is_one(tmp_path):
    shared = nn.Linear(2, 2)
    path = saved(tmp_path, net=nn.Sequential(shared, nn.ReLU(), shared))
    assert names(path) == {"net/0/weight", "net/0/bias"}


def test_tied_weights_are_found_through_the_name_that_was_not_first(tmp_path):
    net = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    net["b"].weight = net["a"].weight
    path = saved(tmp_path, net=net)
    fresh = nn.ModuleDict({"b": nn.Linear(3, 3)})
    restored(path, net=fresh)
    assert torch.equal(fresh["b"].weight, net["a"].weight)


class Tied(nn.Module):  # type: ignore[name-defined]
    """Has two names for one layer, and another one for its weight."""

    def __init__(self, tied):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2))
        self.again = self.inner if tied else nn.Sequential(nn.Linear(2, 2))
        self.z = nn.Linear(2, 2)
        if tied:
            self.z.weight = self.inner[0].weight


@pytest.mark.parametrize("kind", ["pt", "safetensors", "checkpoint"])
def test_a_tied_model_takes_the_last_of_values_that_differ_as_load_state_dict_does(tmp_path, kind):
    model, tied, loaded = Tied(tied=False), Tied(tied=True), Tied(tied=True)
    path = tmp_path / f"m.{kind}"
    if kind == "pt":
        torch.save(model.state_dict(), path)
    elif kind == "safetensors":
        pytest.importorskip("safetensors.torch").save_file(model.state_dict(), path)
    else:
        path = milepost.Checkpoint(model).write(path)
    loaded.load_state_dict(model.state_dict())
    status = milepost.Checkpoint(tied).read(path)
    assert all(map(torch.equal, tied.state_dict().values(), loaded.state_dict().values()))
    with pytest.raises(AssertionError, match=r"inner.0.weight.*took the value of z.weight"):
        status.assert_consumed()


def test_a_buffer_that_forward_exchanges_stays_restored(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x):
            self.seen = self.seen + x
            return self.seen

    net, fresh = Counting(), Counting()
    net(torch.ones(2))
    status = restored(saved(tmp_path, net=net), net=fresh)
    fresh(torch.ones(2))
    status.assert_consumed()


def test_parametrized_weights_are_saved_by_what_they_are_computed_from(tmp_path):
    def make():
        return torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))

    net, fresh = make(), make()
    path = saved(tmp_path, net=net)
    assert "net/parametrizations/weight/original0" in names(path)
    restored(path, net=fresh).assert_consumed()
    assert torch.equal(fresh.weight, net.weight)


def test_pruned_weights_keep_their_masks(tmp_path):
    def make(amount):
        return prune.random_unstructured(nn.Linear(6, 6), "weight", amount)

    net, fresh = make(0.5), make(0.25)
    restored(saved(tmp_path, net=net), net=fresh).assert_consumed()
    assert torch.equal(fresh(torch.ones(1, 6)), net(torch.ones(1, 6)))


class WithExtra(nn.Module):  # type: ignore[name-defined]
    def __init__(self, extra):
        super().__init__()
        self.extra = extra

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


@pytest.mark.parametrize("extra", [{"seen": 3, "names": ("a", "b"), "t": torch.arange(3)}, torch.ones(2), None, 7, []])
def test_extra_state_is_saved_and_restored(tmp_path, extra):
    fresh = WithExtra(object())
    restored(saved(tmp_path, net=WithExtra(extra)), net=fresh).assert_consumed()
    if isinstance(extra, dict):
        assert torch.equal(fresh.extra.pop("t"), torch.arange(3))
        extra = {name: value for name, value in extra.items() if name != "t"}
    if isinstance(extra, torch.Tensor):
        assert torch.equal(fresh.extra, extra)
    else:
        assert fresh.extra == extra


def test_extra_state_that_is_no_plain_data_is_refused_by_name(tmp_path):
    with pytest.raises(milepost.UnsupportedError, match="the extra state of WithExtra"):
        saved(tmp_path, net=WithExtra(object()))


def test_extra_state_that_the_module_refuses_changes_nothing(tmp_path):
    class Picky(WithExtra):
        def __init__(self, extra):
            super().__init__(extra)
            self.w = nn.Parameter(torch.zeros(1))

        def set_extra_state(self, state):
            raise KeyError("no such thing")

    path = saved(tmp_path, net=WithExtra(3))
    fresh = Picky(4)
    with pytest.raises(milepost.MismatchError, match="no such thing"):
        restored(path, net=fresh)
    assert fresh.extra == 4


def test_generators_and_other_state_in_attributes_are_saved(tmp_path):
    class Noisy(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.noise = torch.Generator().manual_seed(seed)
            self.seen = milepost.Variable(seed)

    fresh = Noisy(0)
    restored(saved(tmp_path, net=Noisy(5)), net=fresh).assert_consumed()
    assert fresh.noise.initial_seed() == 5
    assert int(fresh.seen) == 5


def test_modules_in_a_plain_list_are_complained_of(tmp_path):
    class Forgetful(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]

    with pytest.warns(milepost.UntrackedWarning, match=r"net/layers.*ModuleList"):
        saved(tmp_path, net=Forgetful())


def test_modules_that_are_registered_elsewhere_may_be_in_a_list(tmp_path, recwarn):
    net = Net()
    net.order = [net.blocks[0], net.l1]
    saved(tmp_path, net=net)
    assert not [each for each in recwarn if issubclass(each.category, milepost.UntrackedWarning)]


def test_a_module_in_a_list_is_not_complained_of_if_another_object_of_the_checkpoint_holds_it(tmp_path):
    strict = milepost.CheckpointOptions(strict=True)
    net, average = Net(), Net()
    average.followed = [net]
    milepost.Checkpoint(average=average, net=net).write(tmp_path / "both", strict)
    with pytest.raises(milepost.UntrackableError, match="average/followed"):
        milepost.Checkpoint(average=average).write(tmp_path / "one", strict)


def checkpointed(net):
    """A model whose activations are computed again in the backward pass: of the whole, and of its parts."""
    wrapper = pytest.importorskip("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
    wrapper.apply_activation_checkpointing(net)
    return wrapper.checkpoint_wrapper(net)


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda net: torch.compile(net, backend="eager"), checkpointed])
def test_a_wrapped_module_and_its_plain_twin_fit_each_other(tmp_path, wrap):
    net = Net()
    plain = milepost.Checkpoint(net=net).write(tmp_path / "p")
    wrapped = milepost.Checkpoint(net=wrap(net)).write(tmp_path / "w")
    assert names(plain) == names(wrapped)
    for path, fresh in ((plain, wrap(Net())), (wrapped, Net()), (wrapped, wrap(Net()))):
        restored(path, net=fresh).assert_consumed()
        assert same(getattr(fresh, "module", getattr(fresh, "_orig_mod", fresh)), net)


def test_distributed_data_parallel_fits_its_plain_twin(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        net, fresh = Net(), nn.parallel.DistributedDataParallel(Net())
        restored(saved(tmp_path, net=net), net=fresh).assert_consumed()
        assert same(fresh.module, net)
    finally:
        torch.distributed.destroy_process_group()


def test_values_that_come_late_reach_a_wrapped_module(tmp_path):
    path = saved(tmp_path, net=nn.Sequential(nn.Linear(3, 2)))
    net = nn.Sequential(nn.LazyLinear(2))
    status = restored(path, net=nn.DataParallel(net))
    net(torch.ones(1, 3))
    status.assert_consumed()


def test_an_averaged_model_comes_back_with_its_count(tmp_path):
    def make():
        return torch.optim.swa_utils.AveragedModel(Net())

    averaged = make()
    averaged.update_parameters(Net())
    fresh = make()
    path = saved(tmp_path, ema=averaged)
    restored(path, ema=fresh).assert_consumed()
    assert {"ema/n_averaged", "ema/module/l1/weight"} <= names(path)
    assert same(fresh, averaged)


def test_a_scripted_module_fits_its_plain_twin(tmp_path):
    net, fresh = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    restored(saved(tmp_path, net=net), net=torch.jit.script(fresh)).assert_consumed()
    assert same(fresh, net)


def test_a_meta_module_is_materialised(tmp_path):
    net = Net().eval()
    with torch.device("meta"):
        fresh = Net().eval()
    restored(saved(tmp_path, net=net), net=fresh).assert_consumed()
    assert torch.equal(fresh(torch.ones(1, 3)), net(torch.ones(1, 3)))


def test_tied_weights_on_the_meta_device_stay_tied(tmp_path):
    with torch.device("meta"):
        fresh = nn.ModuleDict({"embed": nn.Embedding(5, 3), "out": nn.Linear(3, 5)})
        fresh["out"].weight = fresh["embed"].weight
    net = nn.ModuleDict({"embed": nn.Embedding(5, 3), "out": nn.Linear(3, 5)})
    net["out"].weight = net["embed"].weight
    restored(saved(tmp_path, net=net), net=fresh).assert_consumed()
    assert fresh["out"].weight is fresh["embed"].weight


def test_a_recurrent_module_on_the_meta_device_is_materialised(tmp_path):
    net = nn.LSTM(3, 4)
    with torch.device("meta"):
        fresh = nn.LSTM(3, 4)
    restored(saved(tmp_path, net=net), net=fresh).assert_consumed()
    assert torch.equal(fresh(torch.ones(2, 3))[0], net(torch.ones(2, 3))[0])


def test_weights_that_are_computed_from_meta_tensors_are_materialised(tmp_path):
    def make():
        return prune.l1_unstructured(nn.Linear(6, 6), "weight", 0.5)

    net = make()
    fresh = nn.Linear(6, 6, device="meta")
    prune.identity(fresh, "weight")
    restored(saved(tmp_path, net=net), net=fresh).assert_consumed()
    assert torch.equal(fresh(torch.ones(1, 6)), net(torch.ones(1, 6)))


def test_a_buffer_on_the_meta_device_is_named_if_its_module_has_nothing_else(tmp_path):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(4.0), persistent=False)

    net = nn.Sequential(nn.Linear(3, 2), Table())
    own, pickled = milepost.Checkpoint(net).write(tmp_path / "w"), tmp_path / "w.pt"
    torch.save(net.state_dict(), pickled)
    for path in (own, pickled):
        with torch.device("meta"):
            fresh = nn.Sequential(nn.Linear(3, 2), Table())
        with pytest.warns(milepost.UnrestoredWarning, match="'table' of a Table") as warned:
            milepost.Checkpoint(fresh).read(path)
        assert len(warned) == 1


def test_a_buffer_that_stays_on_the_meta_device_is_named(tmp_path):
    with torch.device("meta"):
        fresh = Net()
    with pytest.warns(milepost.UnrestoredWarning, match="'cache' of a Net is still on the meta device"):
        restored(saved(tmp_path, net=Net()), net=fresh)


def test_sixteen_layers_from_a_file_of_twelve_report_what_is_missing(tmp_path):
    def make(layers):
        return nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))

    status = restored(saved(tmp_path, net=make(12)), net=make(16))
    report = status.report()
    assert sorted(entry.key for entry in report.missing) == sorted(
        f"net/{layer}/{name}/.ATTRIBUTES/VARIABLE_VALUE" for layer in range(12, 16) for name in ("weight", "bias")
    )
    assert not report.unexpected
    with pytest.raises(AssertionError, match="net/12/bias"):
        status.assert_existing_objects_matched()


def test_a_renamed_layer_is_reported_under_both_names(tmp_path):
    path = saved(tmp_path, net=nn.ModuleDict({"a": nn.Linear(2, 2), "old": nn.Linear(2, 2, bias=False)}))
    status = restored(path, net=nn.ModuleDict({"a": nn.Linear(2, 2), "new": nn.Linear(2, 2, bias=False)}))
    report = status.report()
    assert [entry.key for entry in report.missing] == ["net/new/weight/.ATTRIBUTES/VARIABLE_VALUE"]
    assert [entry.key for entry in report.deferred] == ["net/old/weight/.ATTRIBUTES/VARIABLE_VALUE"]
    with pytest.raises(AssertionError, match="net/old/weight"):
        status.assert_consumed()


def test_a_module_on_which_values_wait_can_be_pickled_and_copied(tmp_path):
    path = saved(tmp_path, net=nn.Sequential(nn.Linear(3, 2)))
    net = nn.Sequential(nn.LazyLinear(2))
    restored(path, net=net)
    pickle.loads(pickle.dumps(net))(torch.ones(1, 3))
    copy.deepcopy(net)(torch.ones(1, 3))


def test_tensorflow_reads_the_file(tmp_path):
    tf = pytest.importorskip("tensorflow")
    net = Net()
    reader = tf.train.load_checkpoint(saved(tmp_path, net=net))
    assert reader.get_tensor("net/l1/weight/.ATTRIBUTES/VARIABLE_VALUE").tolist() == net.l1.weight.tolist()
