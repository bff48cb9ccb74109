"""A model of Flax NNX that JAX trains on one to four processes over several meshes, killed at random and resumed on another mesh.

``python -m tests.several.nnx_training DIRECTORY --seconds 600`` does this for so long, and prints what it has seen.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import milepost
from tests.several.forked import Journal
from tests.several.killed import Run, go_on, run_program

VOCABULARY, WIDTH, LENGTH, BATCH = 12, 24, 6, 12


class Layout(NamedTuple):
    """How a model is spread.

    Attributes:
        size: How many processes.
        devices: How many devices each has.
        mesh: The shape of the mesh: along the data, along the width of the model.
    """

    size: int
    devices: int
    mesh: tuple[int, int]


LAYOUTS = [
    Layout(4, 1, (2, 2)),
    Layout(2, 2, (4, 1)),
    Layout(1, 4, (1, 4)),
    Layout(3, 1, (3, 1)),
    Layout(4, 1, (1, 4)),
    Layout(2, 1, (1, 2)),
    Layout(1, 1, (1, 1)),
    Layout(2, 2, (2, 2)),
]


class Model(nnx.Module):
    """Attention over all tokens, and a feed-forward part, with dropout."""

    def __init__(self, dropout: float, rngs: nnx.Rngs) -> None:
        self.tokens = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.query, self.value = (nnx.Linear(WIDTH, WIDTH, use_bias=False, rngs=rngs) for _ in range(2))
        self.up, self.down = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs), nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.scale = nnx.Param(jnp.ones(5, jnp.float32))  # nothing divides it, so all devices have it

    def __call__(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        y = self.norm(x)
        weights = jax.nn.softmax(jnp.einsum("btd,bsd->bts", self.query(y), y) / WIDTH**0.5)
        x = x + self.dropout(jnp.einsum("bts,bsd->btd", weights, self.value(y)))
        x = x + self.dropout(self.down(jax.nn.gelu(self.up(x))))
        return self.tokens.attend(x) * self.scale[...].mean()


@nnx.jit  # type: ignore[untyped-decorator]  # which is untyped
def train_step(model: Any, optimizer: Any, tokens: Any) -> Any:
    def loss_of(model: Any) -> Any:
        expected = (tokens + jnp.roll(tokens, 1, 1)) % VOCABULARY
        return optax.softmax_cross_entropy_with_integer_labels(model(tokens), expected).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


class Training:
    """What one process trains, and what it knows of its state."""

    def __init__(self, run: Run, layout: Layout, rank: int, launch: int) -> None:
        self.run, self.layout, self.rank, self.launch = run, layout, rank, launch
        self.mesh = Mesh(np.array(jax.devices()).reshape(layout.mesh), ("data", "width"))
        replicated = NamedSharding(self.mesh, PartitionSpec())
        self.gather = jax.jit(lambda each: each, out_shardings=replicated)
        # Nothing of a launch is as it should be until it is restored, or initialized.
        self.model, self.optimizer = self.build(100 + launch)
        self.checkpoint: Any = milepost.Checkpoint(model=self.model, optimizer=self.optimizer, step=0, launch=launch)
        self.order = np.random.default_rng(100 + launch)
        self.checkpoint.order = self.order
        self.manager = milepost.CheckpointManager(
            self.checkpoint, run.saved, max_to_keep=3, init_fn=self.initialize, options=run.options()
        )

    def build(self, seed: int) -> tuple[Any, Any]:
        """A model and its optimizer, spread over the mesh."""
        model = Model(self.run.dropout, nnx.Rngs(seed))
        schedule = optax.warmup_cosine_decay_schedule(0.0, 0.02, 4, self.run.steps + 1)
        chain = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(schedule))
        optimizer = nnx.Optimizer(model, chain, wrt=nnx.Param)
        for each in (model, optimizer):
            nnx.update(each, jax.tree.map(self.spread, nnx.state(each)))
        return model, optimizer

    def spread(self, array: Any) -> Any:
        """An array over the mesh: rows along the data, columns along the width, where the mesh divides them."""
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        plain = np.asarray(jax.random.key_data(array) if is_key else array)
        rows, columns = self.layout.mesh
        spec = PartitionSpec("data", "width") if plain.ndim == 2 and not is_key else PartitionSpec()
        if plain.ndim == 1 and not is_key and plain.shape[0] % (rows * columns) == 0:
            spec = PartitionSpec("width")
        whole = jax.make_array_from_callback(plain.shape, NamedSharding(self.mesh, spec), lambda index: plain[index])
        return jax.random.wrap_key_data(whole) if is_key else whole

    def initialize(self) -> None:
        """Gives everything its first values, the same in every launch."""
        for present, fresh in zip((self.model, self.optimizer), self.build(0), strict=True):
            nnx.update(present, nnx.state(fresh))
        self.order.bit_generator.state = np.random.default_rng(3).bit_generator.state

    def step(self) -> float:
        tokens = self.order.integers(0, VOCABULARY, (BATCH, LENGTH))
        spread = NamedSharding(self.mesh, PartitionSpec("data"))
        tokens = jax.make_array_from_callback(tokens.shape, spread, lambda index: tokens[index])
        loss = train_step(self.model, self.optimizer, tokens)
        self.checkpoint.step += 1
        return float(loss.addressable_data(0))

    def whole(self) -> dict[str, Any]:
        """All arrays as wholes, gathered by JAX, under the names of their keys."""
        state = nnx.to_pure_dict(nnx.state((self.model, self.optimizer)))
        leaves = jax.tree_util.tree_leaves_with_path(state)
        words = [
            jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for _, leaf in leaves
        ]
        gathered = self.gather(words)
        names = ["/".join(str(getattr(key, "key", key)) for key in path) for path, _ in leaves]
        return {name: np.asarray(each.addressable_data(0)) for name, each in zip(names, gathered, strict=True)}

    def portrait(self) -> dict[str, Any]:
        """All of the state, each array as a checksum of the whole."""
        arrays = {name: zlib.crc32(value.tobytes()) for name, value in self.whole().items()}
        return {"arrays": arrays, "order": str(self.order.bit_generator.state), "step": self.checkpoint.step}

    def compare(self, path: str) -> dict[str, bool]:
        """Compares the restored state with the file, and with what was written down when it was saved."""
        reader = milepost.load_checkpoint(path)
        in_file = sorted(
            (array.shape, array.tobytes())
            for key in reader.get_variable_to_shape_map()
            if key.startswith(("model/", "optimizer/")) and key.endswith("VARIABLE_VALUE")
            for array in [np.asarray(reader.get_tensor(key))]
        )
        found = sorted((array.shape, array.tobytes()) for array in self.whole().values())
        return {"the file": in_file == found}


def train(run: Run, layout: Layout, rank: int, launch: int, port: int, journal: Journal) -> None:
    """One process of one launch."""
    jax.config.update("jax_num_cpu_devices", layout.devices)
    if layout.size > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", layout.size, rank, heartbeat_timeout_seconds=40)
    go_on(Training(run, layout, rank, launch), journal)
    if layout.size > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    run_program(train, LAYOUTS)
