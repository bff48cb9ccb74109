"""The part of a save that each of several processes plans for itself."""

import numpy as np

from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import PlannedWrite
from milepost.graph.saved.object_graph import Node, ObjectGraph
from milepost.saving.distributed_plan import checksum, plan_share
from milepost.saving.save import LiveState, Member
from milepost.tensor import DType, Shard, ShardedArray

FLOAT = DType.of("float32")


def share_of(array, rank, size):
    state = LiveState(ObjectGraph((Node(),)), [PlannedWrite("v", 0, FLOAT, array.shape)], [array])
    return plan_share(state, Member(rank, size), CheckpointOptions())[0]


def sharded(*holders, start=(2,)):
    return ShardedArray(FLOAT.numpy, (4,), [Shard(start, np.ones(2, np.float32), holders)], "halves")


def test_what_several_processes_hold_is_compared_by_its_box():
    assert share_of(sharded(1, 3), 1, 4).replicas == {"1, 3": {"v at (2,)": checksum(np.ones(2, np.float32), FLOAT)}}


def test_what_one_process_holds_is_compared_with_nothing():
    assert share_of(sharded(1), 1, 2).replicas == {}


def test_a_small_sharded_tensor_is_given_to_process_0():
    share = share_of(sharded(1), 1, 2)
    assert [(piece.key, piece.box) for piece in share.small] == [("v", ((2, 4),))]
    assert not share.writes


def test_what_all_hold_alike_is_written_once():
    shares = [share_of(np.zeros(3, np.float32), rank, 2) for rank in range(2)]
    assert sum(len(share.writes) for share in shares) == 1
    assert shares[0].checksums == shares[1].checksums
