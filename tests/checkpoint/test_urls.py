"""URLs of object stores and of files, wherever a program passes a path."""

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import milepost
from milepost.errors import CheckpointExistsError, CheckpointNotFoundError, StorageError, UnsupportedError
from milepost.storage import ObjectStorage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.testing.faulty_bucket import FaultyBucket
from milepost.tools.cli import main
from tests import stores
from tests.stores import storage_of


@pytest.fixture
def folder(request):
    """A folder of a store that lives as long as this process, and of no other test."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return f"memory://{name}/run"


@pytest.fixture
def store(seaweed, monkeypatch):
    """A folder of a server of S3, which the environment describes."""
    for name, value in seaweed.environment.items():
        monkeypatch.setenv(name, value)
    DEFAULT_STORAGE._of_buckets.clear()
    yield seaweed.url()
    DEFAULT_STORAGE._of_buckets.clear()


def checkpoint(value=0.0):
    return milepost.Checkpoint(v=milepost.Variable(np.full(3, float(value))))


def manager_of(folder, value=0.0, keep=2, **arguments):
    return milepost.CheckpointManager(checkpoint(value), folder, max_to_keep=keep, **arguments)


def value_of(path):
    return float(milepost.load_variable(path, "v")[0])


class TestSaving:
    def test_a_checkpoint_is_saved_and_restored(self, folder):
        path = checkpoint(1.5).save(f"{folder}/ckpt")
        assert path == f"{folder}/ckpt-1"
        assert milepost.latest_checkpoint(folder) == path
        restored = checkpoint()
        restored.restore(path).assert_consumed()
        assert restored.v.numpy().tolist() == [1.5] * 3

    def test_only_the_checkpoint_and_the_list_are_there(self, folder):
        checkpoint(1.5).save(f"{folder}/ckpt")
        names = DEFAULT_STORAGE.list(folder)
        assert [name.partition("-of-")[0] for name in names] == ["checkpoint", "ckpt-1.data-00000", "ckpt-1.index"]
        assert 10_000 <= int(names[1].partition("-of-")[2]) <= 99_999

    def test_one_path_is_written_again_and_again(self, folder):
        for value in range(3):
            checkpoint(value).write(f"{folder}/model")
            assert value_of(f"{folder}/model") == value
        assert len(DEFAULT_STORAGE.list(folder)) == 2

    def test_a_save_in_the_background(self, folder):
        options = milepost.CheckpointOptions(enable_async=True)
        saved = checkpoint(2)
        path = saved.save(f"{folder}/ckpt", options)
        saved.sync()
        assert value_of(path) == 2

    def test_a_tree_is_saved_and_loaded(self, folder):
        path = milepost.save(f"{folder}/tree", {"a": np.arange(3)})
        assert milepost.load(path)["a"].tolist() == [0, 1, 2]

    def test_an_incremental_save_writes_everything(self, folder):
        manager = manager_of(folder, 1, options=milepost.CheckpointOptions(incremental=True))
        paths = [manager.save() for _ in range(2)]
        assert [value_of(path) for path in paths] == [1, 1]

    def test_a_file_url_is_a_path_of_this_machine(self, tmp_path):
        path = checkpoint(3).save(f"file://{tmp_path}/run/ckpt")
        assert path == f"file://{tmp_path}/run/ckpt-1"
        assert value_of(f"{tmp_path}/run/ckpt-1") == 3
        assert milepost.latest_checkpoint(f"file://{tmp_path}/run") == path
        manager = manager_of(f"file://{tmp_path}/run", 4)
        assert manager.restore_or_initialize() == path
        assert value_of(manager.save()) == 3

    def test_another_run_is_refused(self, folder):
        checkpoint(1).save(f"{folder}/ckpt")
        with pytest.raises(CheckpointExistsError):
            checkpoint(2).save(f"{folder}/ckpt")
        assert value_of(f"{folder}/ckpt-1") == 1

    def test_several_processes_are_refused_by_name(self, folder, tmp_path):
        from milepost.coordination import FileCoordinator

        options = milepost.CheckpointOptions(coordinator=FileCoordinator(str(tmp_path), 0, 2))
        with pytest.raises(UnsupportedError, match="several processes cannot save together to an object store yet"):
            checkpoint(1).save(f"{folder}/ckpt", options)
        assert DEFAULT_STORAGE.list(folder) == []


class TestManager:
    def test_old_checkpoints_are_deleted(self, folder):
        manager = manager_of(folder)
        for value in range(5):
            manager.checkpoint.v.assign(np.full(3, float(value)))
            manager.save()
        assert manager.checkpoints == [f"{folder}/ckpt-4", f"{folder}/ckpt-5"]
        assert len(DEFAULT_STORAGE.list(folder)) == 5
        assert value_of(manager.latest_checkpoint) == 4

    def test_the_next_run_continues(self, folder):
        first = manager_of(folder, 7)
        first.save(metrics={"loss": 0.5}, metadata={"a": 1})
        second = manager_of(folder)
        assert second.restore_or_initialize() == f"{folder}/ckpt-1"
        assert second.checkpoint.v.numpy()[0] == 7
        assert second.metrics(1) == {"loss": 0.5}
        assert second.save() == f"{folder}/ckpt-2"

    def test_a_pinned_checkpoint_stays_and_an_unpinned_one_goes(self, folder):
        manager = manager_of(folder, keep=1)
        manager.save()
        manager.pin(1)
        for _ in range(2):
            manager.save()
        assert value_of(f"{folder}/ckpt-1") == 0
        manager.unpin(1)
        manager.save()
        with pytest.raises(CheckpointNotFoundError):
            value_of(f"{folder}/ckpt-1")

    def test_a_checkpoint_is_deleted_by_number(self, folder):
        manager = manager_of(folder, keep=None)
        for _ in range(3):
            manager.save()
        manager.delete(2)
        assert manager.steps == [1, 3]
        assert manager_of(folder).steps == [1, 3]

    def test_a_run_that_another_one_has_overtaken_stops(self, folder):
        """It saves nothing, and the list is that of the other run."""
        first = manager_of(folder, 1)
        first.save()
        second = manager_of(folder, 2)
        second.restore_or_initialize()
        second.save()
        with pytest.raises(StorageError, match="another run saves to this series"):
            first.save()
        assert milepost.latest_checkpoint(folder) == f"{folder}/ckpt-2"
        assert value_of(f"{folder}/ckpt-2") == 1
        second.save()
        assert second.steps == [2, 3]

    def test_a_run_that_is_overtaken_within_its_save_says_so_and_loses_nothing(self):
        """Whatever is between two requests of one run, the list has every checkpoint that a run has said to be listed."""
        outcomes = set()
        for number in itertools.count():
            bucket = FaultyBucket()

            def run(value, bucket=bucket):
                storage = storage_of(bucket)
                return manager_of("run", value, keep=None, options=milepost.CheckpointOptions(storage=storage))

            first = run(1)
            first.save()
            second = run(0)
            second.restore_or_initialize()
            start = len(bucket.requests)

            overtaken = []

            def overtake(at, at_request=start + number, bucket=bucket, second=second, overtaken=overtaken):
                if at == at_request:
                    bucket.before = lambda _: None
                    with contextlib.suppress(StorageError):  # the first has listed its checkpoint already
                        second.save(7)
                        overtaken.append(True)

            bucket.before = overtake
            try:
                first.save(5)
                outcome = "saved"
            except milepost.AfterCommitError:
                outcome = "not listed"
            except StorageError:
                outcome = "refused"
            if bucket.before is overtake:
                break
            outcomes.add(outcome)
            bucket.before = lambda _: None
            files = [key for key in bucket.objects if key.endswith(".index")]
            assert ("run/ckpt-7.index" in files) == bool(overtaken)
            assert ("run/ckpt-5.index" in files) == (outcome != "refused"), (number, outcome)
            storage = storage_of(bucket)
            state = milepost.get_checkpoint_state("run", options=milepost.CheckpointOptions(storage=storage))
            listed = [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths]
            assert ("7" in listed, "1" in listed) == (bool(overtaken), True), (number, outcome, listed)
            assert overtaken or outcome == "saved"
            assert outcome != "saved" or "5" in listed, (number, listed)
        assert outcomes == {"saved", "not listed", "refused"}

    def test_a_damaged_checkpoint_is_skipped(self, folder):
        manager = manager_of(folder, 1)
        manager.save()
        manager.save()
        name = next(each for each in DEFAULT_STORAGE.list(folder) if each.startswith("ckpt-2.data"))
        bucket = DEFAULT_STORAGE.of(folder).bucket
        bucket.put(f"run/{name}", bytes(len(bucket.objects[f"run/{name}"].data)))
        with pytest.warns(milepost.SkippedCheckpointWarning):
            assert milepost.latest_checkpoint(folder) == f"{folder}/ckpt-1"

    def test_the_run_is_noted_as_complete(self, folder):
        manager = manager_of(folder)
        manager.save()
        manager.complete()
        assert manager_of(folder).is_complete


class TestCommands:
    def test_the_commands_take_urls(self, folder, capsys):
        manager = manager_of(folder, 3, keep=None)
        for _ in range(3):
            manager.save()
        assert main(["verify", folder]) == 0
        assert main(["ls", folder]) == 0
        assert "ckpt-3" in capsys.readouterr().out
        assert main(["show", f"{folder}/ckpt-3"]) == 0
        assert "v" in capsys.readouterr().out
        assert main(["diff", f"{folder}/ckpt-1", f"{folder}/ckpt-2"]) == 1  # the counters of saves
        assert main(["prune", folder, "--keep", "1", "--delete"]) == 0
        assert milepost.get_checkpoint_state(folder).all_model_checkpoint_paths == [f"{folder}/ckpt-3"]

    def test_checkpoints_are_pinned_and_removed_by_name(self, folder, capsys):
        manager = manager_of(folder, 3, keep=None)
        for _ in range(3):
            manager.save()
        assert main(["pin", f"{folder}/ckpt-1"]) == 0
        assert main(["rm", f"{folder}/ckpt-1"]) != 0
        assert main(["rm", f"{folder}/ckpt-2"]) == 0
        assert main(["unpin", f"{folder}/ckpt-1"]) == 0
        state = milepost.get_checkpoint_state(folder)
        assert state.all_model_checkpoint_paths == [f"{folder}/ckpt-1", f"{folder}/ckpt-3"]
        assert len(DEFAULT_STORAGE.list(folder)) == 5

    def test_a_conversion_reads_urls_and_writes_none(self, folder, tmp_path, capsys):
        path = checkpoint(2).write(f"{folder}/model")
        assert main(["convert", path, str(tmp_path / "out.npz")]) == 0
        assert np.load(tmp_path / "out.npz")["v"].tolist() == [2] * 3
        assert main(["convert", path, f"{folder}/out.npz"]) == 3
        assert "files of this machine only" in capsys.readouterr().err

    def test_a_lost_list_is_repaired(self, folder, capsys):
        manager = manager_of(folder, 3)
        manager.save()
        manager.save()
        DEFAULT_STORAGE.remove(f"{folder}/checkpoint")
        assert main(["repair", folder]) == 0
        assert milepost.latest_checkpoint(folder) == f"{folder}/ckpt-2"


def test_what_to_install_is_said_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UnsupportedError, match="a library for object stores is not installed") as caught:
        checkpoint().save("s3://a-bucket-of-nobody/run/ckpt")
    assert "milepost[cloud]" in caught.value.remedy


class TestSecrets:
    def test_no_text_has_them(self):
        pytest.importorskip("obstore")
        options = {"access_key_id": "some-key", "secret_access_key": "some-secret", "endpoint": "http://127.0.0.1:9"}
        storage = ObjectStorage("s3://bucket/run", options, patience=0.0)
        storage.bucket._stores[30, False] = storage.bucket._made(1, once=True)
        with pytest.raises(StorageError) as caught:
            storage.open("ckpt.index")
        texts = [repr(storage), repr(storage.bucket), str(caught.value), repr(caught.value.__cause__)]
        with pytest.raises(UnsupportedError) as caught:
            pickle.dumps(storage)
        with pytest.raises(UnsupportedError) as wrong:
            ObjectStorage("s3://bucket/run", {**options, "no such option": "some-secret"}).open("ckpt.index")
        texts += [str(caught.value), str(wrong.value)]
        assert not [text for text in texts if "secret" in text.replace("secret_access_key", "")]

    def test_a_bucket_of_another_storage_is_refused(self):
        storage = ObjectStorage("memory://one")
        with pytest.raises(UnsupportedError, match="this path is not in the bucket"):
            storage.open("memory://two/ckpt.index")


class Ignoring(FaultyBucket):
    """A store that ignores the conditions of requests."""

    def create(self, key, data):
        self.put(key, data)

    def exchange(self, key, data, version):
        self.put(key, data)


class TestStoresThatIgnoreConditions:
    def test_they_are_refused_at_the_first_write(self):
        storage = storage_of(Ignoring(), probe=True)
        with pytest.raises(UnsupportedError, match="ignores the conditions"):
            checkpoint().save("run/ckpt", milepost.CheckpointOptions(storage=storage))
        assert storage.bucket.objects == {}

    def test_one_that_ignores_only_replacements_is_refused_too(self):
        bucket = FaultyBucket()
        bucket.exchange = lambda key, data, version: bucket.put(key, data)
        storage = storage_of(bucket, probe=True)
        with pytest.raises(UnsupportedError, match="ignores the conditions"):
            checkpoint().save("run/ckpt", milepost.CheckpointOptions(storage=storage))
        assert bucket.objects == {}

    def test_a_server_that_does_so_is_refused(self, tmp_path):
        for server in stores.ignoring(tmp_path):
            storage = ObjectStorage(server.url(), server.options, patience=5.0)
            with pytest.raises(UnsupportedError, match="ignores the conditions"):
                checkpoint().save("run/ckpt", milepost.CheckpointOptions(storage=storage))
            assert storage.list("run") == []

    def test_a_program_may_use_them_all_the_same(self):
        storage = storage_of(Ignoring())
        options = milepost.CheckpointOptions(storage=storage)
        path = checkpoint(2).save("run/ckpt", options)
        assert milepost.load_variable(path, "v", options)[0] == 2


class TestServer:
    """With a server of S3 on this machine."""

    def test_a_run_saves_and_another_continues(self, store):
        manager = manager_of(store, 3)
        for _ in range(3):
            manager.save()
        assert len(DEFAULT_STORAGE.list(store)) == 5
        DEFAULT_STORAGE._of_buckets.clear()
        second = manager_of(store)
        assert second.restore_or_initialize() == f"{store}/ckpt-3"
        assert second.checkpoint.v.numpy()[0] == 3
        assert main(["verify", store]) == 0

    def test_a_large_tensor_is_sent_in_parts(self, store):
        array = np.arange(5 << 20, dtype=np.float64)
        path = milepost.save(f"{store}/tree", {"a": array, "b": np.arange(3)})
        loaded = milepost.load(path)
        assert np.array_equal(loaded["a"], array)
        assert loaded["b"].tolist() == [0, 1, 2]

    def test_a_plain_copy_to_a_disk_is_read_by_tensorflow(self, store, tmp_path):
        tf = pytest.importorskip("tensorflow")
        path = checkpoint(4).save(f"{store}/ckpt")
        for name in DEFAULT_STORAGE.list(store):
            file = DEFAULT_STORAGE.open(f"{store}/{name}")
            (tmp_path / name).write_bytes(file.read(0, file.size))
        latest = tf.train.latest_checkpoint(str(tmp_path))
        assert latest == f"{tmp_path}/{os.path.basename(path)}"
        variable = tf.Variable(np.zeros(3))
        tf.train.Checkpoint(v=variable).restore(latest).assert_consumed()
        assert variable.numpy().tolist() == [4] * 3
        assert value_of(str(tmp_path / "ckpt-1")) == 4
        assert main(["verify", str(tmp_path)]) == 0

    def test_a_plain_copy_to_a_store_is_restored_from_there(self, store, tmp_path):
        checkpoint(5).save(tmp_path / "ckpt")
        bucket = DEFAULT_STORAGE.of(store).bucket
        for each in tmp_path.iterdir():
            bucket.put(f"{store.rpartition('/')[2]}/{each.name}", each.read_bytes())
        manager = manager_of(store)
        assert manager.restore_or_initialize() == f"{store}/ckpt-1"
        assert manager.checkpoint.v.numpy()[0] == 5
        manager.save()
        assert value_of(f"{store}/ckpt-1") == value_of(f"{store}/ckpt-2") == 5

    def test_a_run_that_is_killed_loses_nothing(self, store, tmp_path):
        """Each number is written down when its save has returned. The next run restores it or a later one, and removes what was left."""
        program = textwrap.dedent(
            f"""
            import sys, numpy as np, milepost
            from milepost.storage import ObjectStorage
            options = milepost.CheckpointOptions(storage=ObjectStorage({store!r}, lease=0.5))
            checkpoint = milepost.Checkpoint(step=milepost.Variable(0), w=milepost.Variable(np.zeros(100000)))
            manager = milepost.CheckpointManager(checkpoint, "run", max_to_keep=2, options=options)
            manager.restore_or_initialize()
            assert (checkpoint.w.numpy() == checkpoint.step.numpy()).all()
            print("restored", int(checkpoint.step.numpy()), flush=True)
            for number in range(int(checkpoint.step.numpy()) + 1, 10**6):
                checkpoint.step.assign(number)
                checkpoint.w.assign(np.full(100000, float(number)))
                manager.save(number)
                print("saved", number, flush=True)
            """
        )
        saved = 0
        for lines in (2, 3, 2, 4):
            process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
            restored = int(process.stdout.readline().split()[1])
            assert restored >= saved
            for _ in range(lines):
                saved = int(process.stdout.readline().split()[1])
            process.send_signal(signal.SIGKILL)
            process.stdout.close()
            process.wait()
        options = milepost.CheckpointOptions(storage=ObjectStorage(store, lease=-1.0))
        manager = milepost.CheckpointManager(
            milepost.Checkpoint(step=milepost.Variable(0)), "run", max_to_keep=2, options=options
        )
        manager.restore_or_initialize()
        assert manager.latest_step >= saved
        kinds = {name.rpartition(".")[2].partition("-of-")[0] for name in options.storage.list("run")}
        assert kinds == {"checkpoint", "index", "data-00000"}
