"""Directories that `from_pretrained` opens, made of checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

import milepost  # noqa: E402 - frameworks first

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
MAKERS = {
    "tied": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=32)
    ),
    "untied": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SIZES, intermediate_size=32, num_key_value_heads=1)
    ),
    "experts": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(
            **SIZES, intermediate_size=32, num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2
        )
    ),
    "classifier": lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
        )
    ),
}
OPENED = """
import sys, torch, transformers
name, directory, target = sys.argv[1:]
model, info = getattr(transformers, name).from_pretrained(directory, local_files_only=True, output_loading_info=True)
assert not any(info.values()), info
model.eval()
inputs = torch.load(target + ".inputs")
with torch.no_grad():
    torch.save(model(inputs).logits, target)
"""


def trained(kind, seed=0):
    torch.manual_seed(seed)
    return MAKERS[kind]().eval()


def inputs_of(model):
    if hasattr(model.config, "image_size"):
        return torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8)
    return torch.arange(7)[None]


def opened(directory, model, tmp_path):
    """What the model says that another process opens offline."""
    torch.save(inputs_of(model), tmp_path / "logits.inputs")
    command = [sys.executable, "-c", OPENED, type(model).__name__, str(directory), str(tmp_path / "logits")]
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    return torch.load(tmp_path / "logits")


@pytest.mark.parametrize("kind", MAKERS)
def test_another_process_opens_it_and_computes_the_same(tmp_path, kind):
    model = trained(kind)
    optimizer = torch.optim.AdamW(model.parameters())
    path = milepost.Checkpoint(model=model, optimizer=optimizer, step=3).write(tmp_path / "ckpt")
    milepost.export_hf(path, tmp_path / "served", model=trained(kind, seed=1))
    with torch.no_grad():
        assert torch.equal(opened(tmp_path / "served", model, tmp_path), model(inputs_of(model)).logits)


@pytest.mark.parametrize("kind", ["tied", "experts"])
def test_the_files_are_those_of_the_library(tmp_path, kind):
    """Byte for byte, names included."""
    model = trained(kind)
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    files = milepost.export_hf(path, tmp_path / "served", model=model)
    model.save_pretrained(tmp_path / "theirs")
    assert files == sorted(os.listdir(tmp_path / "theirs"))
    for name in files:
        assert (tmp_path / "served" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name


def test_the_model_is_found_and_does_not_change(tmp_path):
    path = milepost.Checkpoint(run={"nets": [trained("untied")]}, step=3).write(tmp_path / "ckpt")
    live = trained("untied", seed=1)
    before = {name: value.clone() for name, value in live.state_dict().items()}
    milepost.export_hf(path, tmp_path / "served", model=live)
    assert all(torch.equal(value, before[name]) for name, value in live.state_dict().items())


def test_two_models_of_one_kind_need_a_name(tmp_path):
    model, average = trained("untied"), trained("untied", seed=1)
    path = milepost.Checkpoint(model=model, average=average).write(tmp_path / "ckpt")
    with pytest.raises(milepost.UnmatchedError, match=r"(?s)2 such objects: average, model.*name='model'"):
        milepost.export_hf(path, tmp_path / "served", model=model)
    milepost.export_hf(path, tmp_path / "served", model=model, name="average")
    with torch.no_grad():
        assert torch.equal(opened(tmp_path / "served", model, tmp_path), average(inputs_of(model)).logits)


def test_another_element_type(tmp_path):
    model = trained("untied")
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    milepost.export_hf(path, tmp_path / "served", model=model, cast="bfloat16")
    assert json.loads((tmp_path / "served" / "config.json").read_text())["dtype"] == "bfloat16"
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "served", dtype="auto")
    assert {value.dtype for value in again.parameters()} == {torch.bfloat16}


def test_exact_names(tmp_path):
    model = trained("experts")
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    milepost.export_hf(path, tmp_path / "served", model=model, exact_names=True)
    names = milepost.load(tmp_path / "served" / "model.safetensors").keys()
    assert set(names) == set(model.state_dict())


def test_several_files(tmp_path):
    model = trained("untied")
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    files = milepost.export_hf(path, tmp_path / "served", model=model, max_shard_size=8192)
    assert len([name for name in files if name.endswith(".safetensors")]) > 1
    with torch.no_grad():
        assert torch.equal(opened(tmp_path / "served", model, tmp_path), model(inputs_of(model)).logits)


def test_a_model_without_memory(tmp_path):
    model = trained("untied")
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    with torch.device("meta"):
        empty = MAKERS["untied"]()
    milepost.export_hf(path, tmp_path / "served", model=empty)
    with torch.no_grad():
        assert torch.equal(opened(tmp_path / "served", model, tmp_path), model(inputs_of(model)).logits)


def test_what_belongs_to_it(tmp_path):
    """An object that saves itself, and a directory of files."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "vocabulary.txt").write_text("a\nb\n")
    model = trained("untied")
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    files = milepost.export_hf(path, tmp_path / "served", model=model, tokenizer=[tokenizer, tmp_path / "files"])
    assert {"vocabulary.txt", "tokenizer.json"} <= set(files)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "served").vocab == {"a": 0, "b": 1, "?": 2}


def test_a_tokenizer_that_was_saved_with_the_checkpoint_belongs_to_it(tmp_path):
    model = trained("untied")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(tmp_path / "made")
    manager = milepost.CheckpointManager(milepost.Checkpoint(model=model), tmp_path / "run", 1)
    path = manager.save(1, files={"tokenizer": tmp_path / "made", "notes": b"not served"})
    files = milepost.export_hf(path, tmp_path / "served", model=model)
    assert "tokenizer.json" in files
    assert "notes" not in files
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "served").vocab == {"a": 0, "b": 1, "?": 2}


class TestFrozenBase:
    """The base is not in the checkpoint, and comes from the model."""

    @pytest.fixture
    def model(self):
        model = trained("tied")
        model.transformer.h.requires_grad_(False)
        return model

    @pytest.fixture
    def path(self, model, tmp_path):
        return milepost.Checkpoint(model=model).write(tmp_path / "ckpt", milepost.CheckpointOptions(base="hub/base"))

    @pytest.fixture
    def live(self, model):
        """The base, and other values of what was trained."""
        live = trained("tied", seed=1)
        live.transformer.h.load_state_dict(model.transformer.h.state_dict())
        return live

    @pytest.mark.parametrize("options", [None, milepost.CheckpointOptions(base="hub/base")])
    def test_the_directory_holds_all_of_the_model(self, model, path, live, options, tmp_path):
        milepost.export_hf(path, tmp_path / "served", model=live, options=options)
        saved = milepost.load(tmp_path / "served" / "model.safetensors")
        assert {name: value.tolist() for name, value in saved.items()} == {
            name: value.tolist() for name, value in model.state_dict().items() if name in saved
        }
        assert len(saved) >= len(list(model.parameters()))

    def test_another_base_is_refused_by_name(self, path, live, tmp_path):
        live.transformer.h[0].mlp.c_proj.weight.data[0, 0] += 1
        with pytest.raises(milepost.MismatchError, match="the base of the model is another one") as caught:
            milepost.export_hf(path, tmp_path / "served", model=live)
        assert caught.value.key == "transformer.h.0.mlp.c_proj.weight"
        assert "hub/base" in caught.value.remedy
        assert not (tmp_path / "served").exists()

    def test_values_of_the_base_are_cast_too(self, path, live, tmp_path):
        milepost.export_hf(path, tmp_path / "served", model=live, cast="bfloat16")
        saved = milepost.load(tmp_path / "served" / "model.safetensors")
        assert {value.dtype.name for value in saved.values()} == {"bfloat16"}

    def test_a_number_of_the_base_that_is_lost_is_refused(self, model, live, tmp_path):
        for each in (model, live):
            each.transformer.h[0].mlp.c_proj.weight.data[0, 0] = 1e30
        path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt", milepost.CheckpointOptions(base="hub/base"))
        with pytest.raises(milepost.MismatchError, match="cannot be converted"):
            milepost.export_hf(path, tmp_path / "served", model=live, cast="float16")

    def test_a_model_without_values_needs_its_base(self, path, tmp_path):
        with torch.device("meta"):
            empty = type(trained("tied"))(trained("tied").config)
        with pytest.raises(milepost.UnsupportedError) as caught:
            milepost.export_hf(path, tmp_path / "served", model=empty)
        assert caught.value.remedy == "load the base 'hub/base' into the model before you export it"

    def test_exact_names_need_all_values(self, path, live, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="cannot be used"):
            milepost.export_hf(path, tmp_path / "served", model=live, exact_names=True)

    def test_adapters_are_found_and_written_alone(self, tmp_path):
        peft = pytest.importorskip("peft")

        def adapted(seed):
            torch.manual_seed(seed)
            config = peft.LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False)
            return peft.get_peft_model(trained("tied"), config)

        path = milepost.Checkpoint(model=adapted(1)).write(
            tmp_path / "ckpt", milepost.CheckpointOptions(base="hub/base")
        )
        assert "adapter_model.safetensors" in milepost.export_hf(path, tmp_path / "served", model=adapted(2))
        opened = peft.PeftModel.from_pretrained(trained("tied"), tmp_path / "served")
        with torch.no_grad():
            assert torch.equal(opened(torch.arange(7)[None]).logits, adapted(1)(torch.arange(7)[None]).logits)


class TestErrors:
    def test_values_that_the_checkpoint_lacks(self, tmp_path):
        path = milepost.Checkpoint(model=trained("untied").model).write(tmp_path / "ckpt")
        with pytest.raises(milepost.UnmatchedError, match="lm_head"):
            milepost.export_hf(path, tmp_path / "served", model=trained("untied"))
        assert os.listdir(tmp_path) == ["ckpt.index", "ckpt.data-00000-of-00001"] or not (tmp_path / "served").exists()

    def test_another_shape(self, tmp_path):
        path = milepost.Checkpoint(model=trained("untied")).write(tmp_path / "ckpt")
        wider = transformers.LlamaConfig(**{**SIZES, "vocab_size": 51}, intermediate_size=32, num_key_value_heads=1)
        with pytest.raises(milepost.MismatchError, match=r"(?s)embed_tokens.*51"):
            milepost.export_hf(path, tmp_path / "served", model=transformers.LlamaForCausalLM(wider))
        assert not (tmp_path / "served").exists()

    def test_what_is_there_stays(self, tmp_path):
        (tmp_path / "served").mkdir()
        (tmp_path / "served" / "notes").write_text("mine")
        model = trained("untied")
        path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
        for overwrite in (False, True):
            with pytest.raises(milepost.CheckpointExistsError):
                milepost.export_hf(path, tmp_path / "served", model=model, overwrite=overwrite)
        assert (tmp_path / "served" / "notes").read_text() == "mine"

    def test_one_of_the_same_kind_is_replaced_if_asked(self, tmp_path):
        model = trained("untied")
        path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
        milepost.export_hf(path, tmp_path / "served", model=model)
        (tmp_path / "served" / "old").write_text("")
        milepost.export_hf(path, tmp_path / "served", model=model, overwrite=True)
        assert not (tmp_path / "served" / "old").exists()

    @pytest.mark.parametrize("model", [None, torch.nn.Linear(1, 1)])
    def test_a_model_that_cannot_save_itself(self, tmp_path, model):
        path = milepost.Checkpoint(model=trained("untied")).write(tmp_path / "ckpt")
        with pytest.raises(milepost.UnsupportedError, match="save_pretrained"):
            milepost.export_hf(path, tmp_path / "served", model=model)


def test_nothing_is_left_beside_it(tmp_path):
    model = trained("untied")
    path = milepost.Checkpoint(model=model).write(tmp_path / "run" / "ckpt")
    milepost.export_hf(path, tmp_path / "out", model=model)
    assert [each.name for each in Path(tmp_path).iterdir() if each.name.startswith(".")] == []
