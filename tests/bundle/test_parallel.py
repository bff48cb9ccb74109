import threading
import time

import pytest

from milepost.bundle import parallel
from milepost.bundle.parallel import for_each
from milepost.threads import ThreadCall


@pytest.mark.parametrize("threads", [1, 2, 5])
class TestForEach:
    def test_does_everything_once(self, threads):
        """No item is left out or done twice."""
        done = []
        for_each(done.append, iter(range(1000)), threads=threads)
        assert sorted(done) == list(range(1000))

    def test_begins_in_order(self, threads):
        """Items are taken one after the other, so files grow from their beginning."""
        taken = []
        for_each(lambda _: None, (taken.append(n) or n for n in range(100)), threads=threads)
        assert taken == list(range(100))

    def test_raises_the_failure(self, threads):
        """A failure comes out in the thread that asked, and no thread stays behind."""
        before = threading.active_count()

        def work(item):
            if item == 10:
                raise KeyError(item)

        with pytest.raises(KeyError):
            for_each(work, range(1000), threads=threads)
        end = time.monotonic() + 30
        while (
            threading.active_count() > before and time.monotonic() < end
        ):  # a thread that has told its end goes at once
            time.sleep(0.001)
        assert threading.active_count() <= before

    def test_stops_at_a_failure(self, threads):
        """What was not begun is not done."""
        done = []

        def work(item):
            done.append(item)
            if item == 0:
                raise KeyError(item)
            time.sleep(0.001)

        with pytest.raises(KeyError):
            for_each(work, range(1000), threads=threads)
        assert len(done) < 100

    def test_a_failure_to_give_an_item(self, threads):
        """Items may themselves fail to come."""

        def items():
            yield 1
            raise OSError("no more")

        with pytest.raises(OSError, match="no more"):
            for_each(lambda _: None, items(), threads=threads)


def test_works_on_several_threads():
    """Two items are under way at once."""
    meeting = threading.Barrier(2, timeout=30)
    for_each(lambda _: meeting.wait(), range(2), threads=2)


class InterruptedOnce(ThreadCall):
    has_waited = False

    def wait(self):
        if not self.has_waited:
            self.has_waited = True
            raise KeyboardInterrupt
        return super().wait()


def test_an_interrupt_during_the_wait_for_threads_is_raised_after_it(monkeypatch):
    monkeypatch.setattr(parallel, "ThreadCall", InterruptedOnce)
    before = threading.active_count()
    done = []
    with pytest.raises(KeyboardInterrupt):
        for_each(done.append, range(10), threads=2)
    assert len(done) == 10
    assert threading.active_count() <= before
