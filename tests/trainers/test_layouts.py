"""What transformers 5 converts when it loads a mixture of experts or a GPT, done by steps, and undone by their inverse."""

import pytest

import milepost
from milepost.layouts import Concatenate, Split, Stack, Transpose, inverse

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", minversion="5", reason="transformers 5 is not installed")

models = pytest.importorskip("tests.engine.layouts.torch_models")


def of_experts(above, gate, up, down):
    """Steps from experts apart, as files of transformers have them, to the parameters of its modules."""
    new = above.replace("block_sparse_moe", "mlp")
    return [
        Concatenate([f"{above}/*/{gate}/weight", f"{above}/*/{up}/weight"], f"{above}/*/both"),
        Stack(f"{above}/#/both", f"{new}/gate_up_proj"),
        Stack(f"{above}/#/{down}/weight", f"{new}/down_proj"),
    ]


SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
MIXTURES = {
    "Qwen3Moe": (
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
        of_experts("model/layers/*/mlp/experts", "gate_proj", "up_proj", "down_proj"),
        {},
    ),
    "Mixtral": (
        {"num_local_experts": 4},
        of_experts("model/layers/*/block_sparse_moe/experts", "w1", "w3", "w2"),
        {"model/layers/*/block_sparse_moe": "model/layers/*/mlp"},
    ),
}


def made(name, settings, seed):
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**SIZES, **settings)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def logits(model):
    with torch.no_grad():
        return model(torch.arange(12).reshape(2, 6)).logits


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_of_experts_is_what_from_pretrained_makes(tmp_path, name):
    """Bit for bit; and the steps undone give the file that save_pretrained has written."""
    settings, steps, rename = MIXTURES[name]
    saved = made(name, settings, seed=0)
    saved.save_pretrained(tmp_path / "saved")
    loaded = type(saved).from_pretrained(tmp_path / "saved")
    model = made(name, settings, seed=1)
    status = milepost.Checkpoint(model).read(str(tmp_path / "saved"), convert=steps, rename=rename)
    status.assert_consumed().assert_existing_objects_matched()
    expected = loaded.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())
    assert torch.equal(logits(model), logits(loaded))
    path = milepost.save(str(tmp_path / "state"), model.state_dict())
    apart = milepost.convert(
        milepost.convert(path, tmp_path / "named.safetensors", separator=".").files[0],
        tmp_path / "back.safetensors",
        convert=inverse(steps),
        rename={new: old for old, new in rename.items()},
        separator=".",
    )
    before = milepost.load(str(tmp_path / "saved"), arrays="torch")
    after = milepost.load(str(tmp_path / "back.safetensors"), arrays="torch")
    assert before.keys() == after.keys() == apart.tensors.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_a_mixture_without_the_steps_is_not_said_to_be_restored(tmp_path):
    """A loader that takes the rest and reports success is what this is for."""
    settings, _, _ = MIXTURES["Qwen3Moe"]
    made("Qwen3Moe", settings, seed=0).save_pretrained(tmp_path / "saved")
    status = milepost.Checkpoint(made("Qwen3Moe", settings, seed=1)).read(str(tmp_path / "saved"))
    with pytest.raises(milepost.UnmatchedError):
        status.assert_consumed()
    with pytest.raises(milepost.UnmatchedError):
        status.assert_existing_objects_matched()


def test_a_gpt_of_transposed_kernels_becomes_one_of_linears(tmp_path):
    """The Conv1D of GPT-2 has its kernel as Linear has it transposed, and q, k and v in one."""
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4)
    model = transformers.GPT2Model(config).eval()
    model.save_pretrained(tmp_path / "saved")
    steps = [
        Transpose("h/*/attn/c_attn/weight"),
        Split("h/*/attn/c_attn", ["h/*/attn/q", "h/*/attn/k", "h/*/attn/v"]),
        Transpose("h/*/attn/c_proj/weight", "h/*/attn/out/weight"),
    ]
    blocks = torch.nn.ModuleList(torch.nn.ModuleDict({"attn": models.Linears(32)}) for _ in range(2))
    status = milepost.Checkpoint(h=blocks).read(
        str(tmp_path / "saved"), convert=steps, rename={"h/*/attn/c_proj": "h/*/attn/out"}, only="h/*/attn"
    )
    status.assert_consumed().assert_existing_objects_matched()
    x = torch.randn(2, 5, 32)
    for block, linears in zip(model.h, blocks, strict=True):
        q, k, v = block.attn.c_attn(x).split(32, -1)
        for expected, name in ((q, "q"), (k, "k"), (v, "v")):
            torch.testing.assert_close(getattr(linears["attn"], name)(x), expected)
        torch.testing.assert_close(linears["attn"].out(x), block.attn.c_proj(x))
