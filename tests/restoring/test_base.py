"""`CheckpointOptions(base=)`: frozen values are left out of a save, and a restore compares them with the base that the checkpoint names."""

import os
import warnings

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, MismatchError, UnmatchedError, UnsupportedError
from milepost.engine import digests
from milepost.errors import UntrackableError
from tests.tools.commands import json_of, output_of

BASE = CheckpointOptions(base="hub://example/base")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def adapted(torch, base, rank=2):
    """A linear layer with a frozen base and two trained factors."""

    class Adapted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down = torch.nn.Linear(base.in_features, rank, bias=False)
            self.up = torch.nn.Linear(rank, base.out_features, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    return Adapted()


def training(torch, seed, base=0, steps=1):
    torch.manual_seed(base)
    layers = [torch.nn.Linear(300, 400), torch.nn.Linear(400, 200)]
    torch.manual_seed(seed)
    model = torch.nn.Sequential(*(adapted(torch, each) for each in layers), torch.nn.BatchNorm1d(200))
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad])
    checkpoint = Checkpoint(model=model, optimizer=optimizer, epoch=seed)
    for _ in range(steps):
        step(torch, checkpoint)
    return checkpoint


def step(torch, checkpoint):
    checkpoint.optimizer.zero_grad()
    checkpoint.model(torch.linspace(-1, 1, 900).reshape(3, 300)).square().sum().backward()
    checkpoint.optimizer.step()


def state(checkpoint):
    return {key: array.copy() for key, array in checkpoint.state_dict().items() if not isinstance(array, bytes)}


def names(path):
    return {key.partition("/.ATT")[0] for key, _ in milepost.list_variables(path) if not key.startswith("_")}


@pytest.fixture
def counted(monkeypatch):
    """The element counts of the values of which a digest is computed."""
    sizes = []
    compute = digests.digest_of
    monkeypatch.setattr(digests, "digest_of", lambda array, dtype: (sizes.append(array.size), compute(array, dtype))[1])
    return sizes


def test_a_run_goes_on_from_its_adapters_and_the_base(torch, tmp_path):
    """Bit for bit, as from a whole checkpoint."""
    run = training(torch, 1, steps=3)
    path = run.save(tmp_path / "ckpt", BASE)
    resumed = training(torch, 2)
    resumed.restore(path).assert_consumed().assert_existing_objects_matched()
    for _ in range(2):
        step(torch, run)
        step(torch, resumed)
    assert all(torch.equal(*pair) for pair in zip(run.model.parameters(), resumed.model.parameters(), strict=True))


def test_the_files_have_the_size_of_what_is_trained(torch, tmp_path):
    run = training(torch, 1)
    run.save(tmp_path / "ckpt", BASE)
    size = sum(each.stat().st_size for each in tmp_path.iterdir())
    trained = sum(each.nbytes for each in run.model.parameters() if each.requires_grad)
    frozen = sum(each.nbytes for each in run.model.parameters() if not each.requires_grad)
    assert size < 3 * trained + 20_000 < frozen / 10  # with two moments, names, and statistics


def test_buffers_are_saved(torch, tmp_path):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    assert {"model/2/running_mean", "model/2/running_var"} <= names(path)
    assert not [name for name in names(path) if "base" in name]


def test_another_base_is_refused_by_name_before_anything_changes(torch, tmp_path):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    other = training(torch, 2, base=5)
    before = state(other)
    with pytest.raises(MismatchError, match="4 of 4 values differ; nothing was changed") as caught:
        other.restore(path)
    assert caught.value.key == "model/0/base/weight/.ATTRIBUTES/VARIABLE_VALUE"
    assert "hub://example/base" in str(caught.value.expected)
    assert "hub://example/base" in caught.value.remedy
    after = state(other)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_one_changed_element_is_enough(torch, tmp_path):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    other = training(torch, 2)
    with torch.no_grad():
        other.model[1].base.weight[7, 11] += 1e-3
    with pytest.raises(MismatchError, match="1 of 4 values") as caught:
        other.restore(path)
    assert caught.value.key == "model/1/base/weight/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_base_of_another_type_is_refused(torch, tmp_path):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    other = training(torch, 2)
    for layer in other.model[:2]:
        layer.base.to(torch.bfloat16)
    with pytest.raises(MismatchError) as caught:
        other.restore(path)
    assert "bfloat16[400,300]" in caught.value.found
    assert "float32[400,300]" in caught.value.expected


def test_a_base_that_is_not_loaded_is_refused_by_name(torch, tmp_path):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    with torch.device("meta"):
        other = training(torch, 2, steps=0)
    with pytest.raises(UnsupportedError, match="meta device") as caught:
        other.restore(path)
    assert caught.value.key == "model/0/base/weight/.ATTRIBUTES/VARIABLE_VALUE"
    assert caught.value.remedy == "load the base 'hub://example/base' before you restore"


def test_what_the_restore_ignores_is_not_compared(torch, tmp_path):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    other = training(torch, 2, base=5)
    status = other.restore(path, ignore="model/*/base")
    status.assert_consumed()
    assert len([entry for entry in status.report().ignored if "/base/" in entry.key]) == 4


def test_renamed_layers_are_compared(torch, tmp_path):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    for base, matches in ((0, True), (5, False)):
        old = training(torch, 2, base=base)
        live = Checkpoint(net=old.model, optimizer=old.optimizer, epoch=0)
        if matches:
            live.restore(path, rename={"model": "net"}).assert_consumed()
            continue
        with pytest.raises(MismatchError) as caught:
            live.restore(path, rename={"model": "net"})
        assert caught.value.key.startswith("net/0/base/weight")


def test_later_saves_compute_only_what_was_written_to(torch, tmp_path, counted):
    run = training(torch, 1)
    run.save(tmp_path / "ckpt", BASE)
    assert sorted(counted) == [200, 400, 80_000, 120_000]
    counted.clear()
    step(torch, run)
    run.save(tmp_path / "ckpt", BASE)
    assert counted == []
    with torch.no_grad():
        run.model[0].base.bias.copy_(run.model[0].base.bias.clone())
    run.save(tmp_path / "ckpt", BASE)
    assert counted == [400]


def test_a_restore_spares_the_next_save_the_work(torch, tmp_path, counted):
    path = training(torch, 1).save(tmp_path / "ckpt", BASE)
    resumed = training(torch, 2)
    resumed.restore(path).assert_consumed()
    counted.clear()
    resumed.save(tmp_path / "ckpt", BASE)
    assert counted == []


@pytest.mark.parametrize("through", ["the tensor", "data", "new data", "NumPy"])
def test_a_frozen_value_that_changes_all_the_same_fails_the_save(torch, tmp_path, through):
    """Such as the weights of a teacher that follows its student, which nothing trains."""
    run = training(torch, 1)
    run.save(tmp_path / "ckpt", BASE)
    weight = run.model[1].base.weight
    if through == "the tensor":
        with torch.no_grad():
            weight.mul_(0.99)
    elif through == "data":
        weight.data.mul_(0.99)
    elif through == "new data":
        weight.data = weight.data * 0.99
    else:
        weight.detach().numpy()[...] *= 0.99
    with pytest.raises(UntrackableError, match="changed since an earlier save or restore") as caught:
        run.save(tmp_path / "ckpt", BASE)
    assert caught.value.key == "model/1/base/weight/.ATTRIBUTES/VARIABLE_VALUE"
    assert milepost.latest_checkpoint(tmp_path).endswith("ckpt-1")


def test_the_names_of_frozen_values(torch, tmp_path):
    run = training(torch, 1)
    path = run.save(tmp_path / "ckpt", CheckpointOptions(base="b", frozen="model/0/base"))
    assert {name for name in names(path) if "base" in name} == {"model/1/base/weight", "model/1/base/bias"}
    training(torch, 2, base=0).restore(path).assert_consumed()


def test_a_name_of_frozen_values_that_names_nothing(torch, tmp_path):
    with pytest.raises(UnsupportedError, match="frozen names 'modle/0', and no live object has this name"):
        training(torch, 1).save(tmp_path / "ckpt", CheckpointOptions(base="b", frozen=["model/0", "modle/0"]))


def test_a_base_where_nothing_is_frozen_is_refused(torch, tmp_path):
    with pytest.raises(UnsupportedError, match="nothing is; nothing was saved"):
        Checkpoint(model=torch.nn.Linear(2, 2)).save(tmp_path / "ckpt", BASE)
    assert not list(tmp_path.iterdir())


def test_a_path_may_be_the_base(tmp_path):
    assert CheckpointOptions(base=tmp_path).base == os.fspath(tmp_path)


def test_a_dry_run_compares_the_base_and_changes_nothing(torch, tmp_path, monkeypatch, capsys):
    run = training(torch, 1)
    run.save(tmp_path / "ckpt", BASE)
    (tmp_path / "program.py").write_text(
        "from tests.restoring.test_base import training\nimport torch\n"
        "same, other = training(torch, 2), training(torch, 2, base=5)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, status, left_out in (("same", 0, 0), ("other", 1, 4)):
        report = json_of(capsys, "match", tmp_path / "ckpt-1", f"program:{name}", status=status)
        assert report["counts"]["left out"] == left_out


@pytest.mark.parametrize("options", [{"base": ""}, {"base": 3}, {"frozen": "w"}, {"base": "b", "frozen": 3}])
def test_other_arguments_are_refused(options):
    with pytest.raises(UnsupportedError):
        CheckpointOptions(**options)


def test_ignored_values_are_no_part_of_the_base(torch, tmp_path):
    """They are left out and not compared, so a restore of the rest does not pass over them in silence."""
    path = training(torch, 1).save(tmp_path / "ckpt", CheckpointOptions(base="b", ignore="optimizer"))
    status = training(torch, 2).restore(path)
    with pytest.raises(UnmatchedError, match="by ignore='optimizer'"):
        status.assert_consumed()
    assert {
        entry.key.startswith("optimizer") or "OPTIMIZER_SLOT" in entry.key for entry in status.report().left_out
    } == {True}


def test_state_of_frozen_parameters_is_left_out(torch, tmp_path):
    """As of a run that has trained everything first, and then freezes a part."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    checkpoint = Checkpoint(model=model, optimizer=torch.optim.Adam(model.parameters()))
    model(torch.ones(1, 3)).sum().backward()
    checkpoint.optimizer.step()
    model[0].requires_grad_(False)
    assert not [name for name in names(checkpoint.write(tmp_path / "ckpt", BASE)) if name.startswith("model/0")]


def test_a_manager_and_asynchronous_saves(torch, tmp_path):
    options = CheckpointOptions(base="b", enable_async=True)
    run = training(torch, 1)
    manager = CheckpointManager(run, tmp_path, max_to_keep=2, options=options)
    for _ in range(3):
        step(torch, run)
        manager.save(metrics={"loss": 1.0})
    manager.sync()
    resumed = training(torch, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CheckpointManager(resumed, tmp_path, max_to_keep=2, options=options).restore_or_initialize()
    assert all(torch.equal(*pair) for pair in zip(run.model.parameters(), resumed.model.parameters(), strict=True))
    other = CheckpointManager(training(torch, 2, base=5), tmp_path, max_to_keep=2, options=options)
    with pytest.raises(MismatchError, match="the base is another one"):
        other.restore_or_initialize()


def test_show_and_diff_say_what_was_left_out(torch, tmp_path, capsys):
    run = training(torch, 1)
    whole = run.write(tmp_path / "whole")
    part = run.write(tmp_path / "part", CheckpointOptions(base="hub://b", ignore="epoch"))
    shown = output_of(capsys, "show", part).out
    assert "4 values were left out when it was saved, because the base 'hub://b' has it" in shown
    assert "1 value was left out when it was saved, by ignore='epoch'" in shown
    assert json_of(capsys, "show", part)["left_out"]["base"] == "hub://b"
    assert json_of(capsys, "show", whole)["left_out"] is None
    assert f"{part}: 4 values were left out" in output_of(capsys, "diff", whole, part, status=1).err


def test_a_frozen_layer_of_keras(tmp_path):
    keras = pytest.importorskip("keras")

    def made(seed, base=0):
        keras.utils.set_random_seed(base)
        backbone = keras.Sequential([keras.Input((30,)), keras.layers.Dense(400), keras.layers.BatchNormalization()])
        keras.utils.set_random_seed(seed)
        backbone.trainable = False
        model = keras.Sequential([backbone, keras.layers.Dense(2)])
        model.build((None, 30))
        return Checkpoint(model=model)

    path = made(1).write(tmp_path / "ckpt", BASE)
    arrays = {name: np.asarray(each) for name, each in milepost.load(path, separator="/").items()}
    assert max(each.size for each in arrays.values()) == 800
    assert [name for name in arrays if "moving_mean" in name]
    live = made(2)
    live.read(path).assert_consumed()
    with pytest.raises(MismatchError, match="1 of 4 values"):
        made(2, base=5).read(path)


def test_a_layer_of_keras_with_lora(tmp_path):
    """`enable_lora` of Keras freezes the kernel, and leaves it among the variables that could be trained."""
    keras = pytest.importorskip("keras")

    def made(seed, base=0):
        keras.utils.set_random_seed(base)
        model = keras.Sequential([keras.Input((30,)), keras.layers.Dense(400), keras.layers.Dense(2)])
        keras.utils.set_random_seed(seed)
        model.layers[0].enable_lora(2)
        return model

    saved, live = made(1), made(2)
    path = Checkpoint(model=saved).write(tmp_path / "ckpt", BASE)
    layer = "model/layer_with_weights-0"
    assert {name for name in names(path) if name.startswith(layer)} == {
        f"{layer}/{name}" for name in ("bias", "lora_kernel_a", "lora_kernel_b")
    }
    Checkpoint(model=live).read(path).assert_consumed()
    batch = np.linspace(-1, 1, 90).reshape(3, 30)
    assert np.array_equal(saved(batch), live(batch))
    with pytest.raises(MismatchError) as caught:
        Checkpoint(model=made(2, base=5)).read(path)
    assert caught.value.key == f"{layer}/kernel/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_frozen_layer_of_tf_keras(tmp_path):
    tf_keras = pytest.importorskip("tf_keras")

    def made(seed, base=0):
        tf_keras.utils.set_random_seed(base)
        backbone = tf_keras.layers.Dense(400, name="backbone")
        backbone.build((None, 30))
        tf_keras.utils.set_random_seed(seed)
        backbone.trainable = False
        model = tf_keras.Sequential([backbone, tf_keras.layers.Dense(2, name="head")])
        model.build((None, 30))
        return Checkpoint(model=model)

    path = made(1).write(tmp_path / "ckpt", BASE)
    assert max(np.size(each) for each in milepost.load(path, separator="/").values()) == 800
    made(2).read(path).assert_consumed()
    with pytest.raises(MismatchError, match="the base is another one"):
        made(2, base=5).read(path)


def test_a_tree_of_jax(tmp_path):
    jnp = pytest.importorskip("jax.numpy")
    import milepost.jax

    def made(seed, base=0):
        return {"base": jnp.full((300, 300), float(base)), "adapter": jnp.full(3, float(seed))}

    path = milepost.jax.save(tmp_path / "ckpt", made(1), options=CheckpointOptions(base="b", frozen="base"))
    assert names(path) == {"adapter"}
    restored, status = milepost.jax.restore(path, made(2))
    status.assert_consumed()
    assert restored["adapter"].tolist() == [1, 1, 1]
    with pytest.raises(MismatchError) as caught:
        milepost.jax.restore(path, made(2, base=5))
    assert caught.value.key.startswith("base/")


def test_a_filter_of_nnx(tmp_path):
    nnx = pytest.importorskip("flax.nnx")

    def made(seed, base=0):
        model = nnx.LoRALinear(30, 40, lora_rank=2, rngs=nnx.Rngs(seed))
        model.kernel[...] = nnx.Linear(30, 40, rngs=nnx.Rngs(base)).kernel[...]
        return Checkpoint(model=model)

    frozen = nnx.filterlib.to_predicate(nnx.All(nnx.Param, nnx.Not(nnx.LoRAParam)))
    path = made(1).write(tmp_path / "ckpt", CheckpointOptions(base="b", frozen=frozen))
    assert names(path) == {"model/lora/lora_a", "model/lora/lora_b"}
    made(2).read(path).assert_consumed()
    with pytest.raises(MismatchError) as caught:
        made(2, base=5).read(path)
    assert caught.value.key.startswith("model/kernel")


def test_a_model_of_peft(torch, tmp_path):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4
    )

    def made(seed, base=0):
        torch.manual_seed(base)
        model = transformers.LlamaForCausalLM(config)
        torch.manual_seed(seed)
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01)
        return Checkpoint(model=model, optimizer=optimizer)

    def train(checkpoint):
        tokens = torch.arange(16).reshape(2, 8)
        checkpoint.optimizer.zero_grad()
        loss = checkpoint.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        checkpoint.optimizer.step()
        return loss.item()

    run = made(1)
    train(run)
    path = run.save(tmp_path / "ckpt", BASE)
    parameters = [name for name in names(path) if name.startswith("model/") and "OPTIMIZER_SLOT" not in name]
    assert parameters
    assert [name for name in parameters if "lora_" not in name] == []
    size = sum(os.path.getsize(each) for each in tmp_path.iterdir())
    assert size < sum(each.nbytes for each in run.model.parameters()) / 3
    resumed = made(2)
    resumed.restore(path).assert_consumed()
    assert [train(run) for _ in range(2)] == [train(resumed) for _ in range(2)]
    with pytest.raises(MismatchError, match="the base is another one"):
        made(2, base=5).restore(path)
