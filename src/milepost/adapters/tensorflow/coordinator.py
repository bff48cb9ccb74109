"""A coordinator on the coordination service by which the workers of `tf.distribute.MultiWorkerMirroredStrategy` met."""

from __future__ import annotations

import base64
import inspect
import time
from typing import Any, Final

import tensorflow as tf

from milepost.adapters.coordinators import COORDINATORS
from milepost.adapters.tensorflow.private import eager_context, server_of_workers
from milepost.coordination import Coordinator, StoreCoordinator

_SLICE: Final = 0.5
"""Seconds after which a wait looks whether the program was interrupted."""
_JOBS: Final = ("chief", "worker")
"""The kinds of tasks that all run the training; the chief is process 0."""


class _TensorFlowStore:
    """The store of TensorFlow's coordination service, which holds text and does not overwrite."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def set(self, key: str, value: bytes) -> None:
        text = base64.b64encode(value).decode()
        try:
            self._context.set_config_key_value(key, text)
        except tf.errors.AlreadyExistsError:
            self._context.delete_config_key_value(key)
            self._context.set_config_key_value(key, text)

    def get(self, key: str, timeout: float) -> bytes | None:
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            try:
                text = self._context.get_config_key_value(key, max(int(min(left, _SLICE) * 1000), 1))
                return base64.b64decode(text)
            except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError):
                if left <= 0:
                    return None

    def delete(self, key: str) -> None:
        self._context.delete_config_key_value(key)


_made: tuple[Any, Coordinator] | None = None


def tensorflow_coordinator() -> Coordinator | None:
    """The coordinator, or None if there is one worker, or this TensorFlow cannot wait for a limited time, as before 2.16."""
    global _made
    context = eager_context.context()
    server = server_of_workers()
    if server is None or context.coordination_service is None:
        return None
    tasks = {job.name: sorted(job.tasks) for job in server.cluster.job}
    if not tasks.keys() <= set(_JOBS) or len(inspect.signature(context.get_config_key_value).parameters) < 2:
        return None
    everyone = [(job, task) for job in _JOBS for task in tasks.get(job, ())]
    if len(everyone) < 2:
        return None
    if _made is None or _made[0] is not context:
        rank = everyone.index((server.job_name, server.task_index))
        library = "tf.distribute.MultiWorkerMirroredStrategy"
        _made = context, StoreCoordinator(_TensorFlowStore(context), rank, len(everyone), library)
    return _made[1]


COORDINATORS["tensorflow"] = tensorflow_coordinator
