"""Measures what the guide's loop does after a restore, with TensorFlow's checkpoint and with milepost's.

``python docs/images/guide_resumes.py`` needs TensorFlow 2.16 or later with Keras 3. It writes ``guide_resumes.md``, a table
of losses, and ``guide_resumes.svg``, a chart of them, beside itself.
"""

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

import milepost

HERE = Path(__file__).resolve().parent
STEPS, STOP = 100, 50
Losses = list[float]
LINES = {"never stopped": ("#ccd1d9", 9), "tf.train.Checkpoint": ("#d1495b", 4), "milepost": ("#14603f", 1.8)}
"""Colour and width of each line. A line is narrower than those below it, so that equal losses hide none."""


class Net(tf.keras.Model):
    """The guide's model."""

    def __init__(self) -> None:
        super().__init__()
        self.l1 = tf.keras.layers.Dense(5)

    def call(self, x: Any) -> Any:
        return self.l1(x)


class Training:
    """The guide's objects, all of them fresh, and a checkpoint of one library."""

    def __init__(self, library: Any, seed: int) -> None:
        keras.utils.set_random_seed(seed)
        inputs = tf.range(10.0)[:, None]
        data = tf.data.Dataset.from_tensor_slices({"x": inputs, "y": inputs * 5.0 + tf.range(5.0)[None, :]})
        self.batches = iter(data.repeat().batch(2))
        self.net, self.optimizer = Net(), tf.keras.optimizers.Adam(0.1)
        self.checkpoint = library.Checkpoint(
            step=tf.Variable(1), optimizer=self.optimizer, net=self.net, iterator=self.batches
        )

    def step(self) -> float:
        """The guide's training step."""
        example = next(self.batches)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(self.net(example["x"]) - example["y"]))
        variables = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return float(loss)


def resumed(library: Any) -> Losses:
    """Losses of a training that stops half-way and goes on with fresh objects."""
    path = os.path.join(tempfile.mkdtemp(), "ckpt")
    training = Training(library, seed=1)
    losses = [training.step() for _ in range(STOP)]
    saved = training.checkpoint.save(path)
    training = Training(library, seed=2)
    training.checkpoint.restore(saved)
    return losses + [training.step() for _ in range(STEPS - STOP)]


def uninterrupted() -> Losses:
    """Losses of the same training in one go."""
    training = Training(milepost, seed=1)
    return [training.step() for _ in range(STEPS)]


def measure() -> dict[str, Losses]:
    """The losses of every step, by who saved and restored."""
    runs: dict[str, Callable[[], Losses]] = {
        "never stopped": uninterrupted,
        "tf.train.Checkpoint": lambda: resumed(tf.train),
        "milepost": lambda: resumed(milepost),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: run() for name, run in runs.items()}


def table(losses: dict[str, Losses]) -> str:
    """A table of every tenth loss, and of the first after the restore."""
    lines = [f"| step | {' | '.join(losses)} |", "|---|" + "---|" * len(losses)]
    lines += [
        f"| {step} | {' | '.join(f'{each[step - 1]:.4f}' for each in losses.values())} |"
        for step in sorted({*range(10, STEPS + 1, 10), STOP + 1})
    ]
    return "\n".join(lines) + "\n"


def chart(losses: dict[str, Losses]) -> str:
    """The same as a picture."""
    width, height, left, right, bottom = 720, 300, 50, 20, 40
    top = max(max(each) for each in losses.values())

    def point(step: int, loss: float) -> str:
        x = left + (width - left - right) * step / STEPS
        return f"{x:.1f},{(height - bottom) - (height - bottom - 30) * loss / top:.1f}"

    stop = point(STOP, 0).split(",")[0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<path d="M{left} 20V{height - bottom}H{width - right}" fill="none" stroke="#444"/>',
        f'<path d="M{stop} 20V{height - bottom}" stroke="#bbb" stroke-dasharray="4 4"/>',
        f'<text x="{stop}" y="16" text-anchor="middle" fill="#444">restored into fresh objects</text>',
        f'<text x="{left - 6}" y="24" text-anchor="end" fill="#444">{top:.0f}</text>',
        f'<text x="{left - 6}" y="{height - bottom}" text-anchor="end" fill="#444">0</text>',
        f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})" text-anchor="middle">loss</text>',
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle" fill="#444">step</text>',
    ]
    for tick in range(0, STEPS + 1, 25):
        x = point(tick, 0).split(",")[0]
        parts.append(f'<text x="{x}" y="{height - bottom + 16}" text-anchor="middle" fill="#444">{tick}</text>')
    for number, (name, each) in enumerate(losses.items()):
        points = " ".join(point(step, loss) for step, loss in enumerate(each, 1))
        colour, thickness = LINES[name]
        style = f'fill="none" stroke="{colour}" stroke-width="{thickness}"'
        parts.append(f'<polyline points="{points}" {style} stroke-linejoin="round"/>')
        left_end, y = width - 180, 40 + 18 * number
        parts.append(f'<path d="M{left_end} {y - 4}h30" {style}/>')
        parts.append(f'<text x="{left_end + 40}" y="{y}" fill="#444">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    found = measure()
    (HERE / "guide_resumes.md").write_text(table(found))
    (HERE / "guide_resumes.svg").write_text(chart(found))
    print(table(found), end="")
