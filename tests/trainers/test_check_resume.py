"""`milepost check-resume` names what a model in a trainer holds, which no variable of the program leads to."""

import sys

import pytest

from milepost.tools.cli import main

TRAIN = """
import lightning.pytorch as pl
import milepost.lightning
import torch

pl.seed_everything(0)


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        self.noise = torch.Generator().manual_seed(1)

    def training_step(self, batch, index):
        loss = self.net(batch[0] + torch.randn(4, generator=self.noise)).pow(2).mean()
        print("step", self.global_step, "loss", loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(16, 4)), batch_size=4, shuffle=True)
settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
checkpoints = milepost.lightning.CheckpointCallback("./run", every_steps=3)
pl.Trainer(max_epochs=2, callbacks=[checkpoints], **settings).fit(Model(), loader)
"""


def test_a_generator_of_the_model_is_named_alone(tmp_path, monkeypatch, capsys):
    pytest.importorskip("lightning")
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    assert main(["check-resume", "--kill-at", "1", "--", sys.executable, "train.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "different: the program wrote another line when it was started again"
    assert lines[lines.index("what the program did not hold as at the save:") + 1 :] == [
        "  Model.noise (Generator): one state at the save, another state after the restore; put it into the Checkpoint"
    ]
