"""The benchmark of growth leaves a report when it is interrupted, goes on where it was, and says what it did not run."""

import pytest

from benchmarks import growth, runner, tables
from benchmarks.contenders import RAW


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    monkeypatch.setattr(growth, "NAMES", {"variables": (RAW,), "bytes": (RAW,)})
    (tmp_path / "memory").mkdir()
    (tmp_path / "disk").mkdir()
    parser = runner.arguments("", "growth", rounds=1, tables=growth.BENCHMARK.tables)
    options = parser.parse_args(["--memory", str(tmp_path / "memory"), "--disk", str(tmp_path / "disk")])
    options.variables, options.bytes, options.minutes, options.anew = [10, 20], [1000], 1, False
    return options


def samples(options):
    return tables.samples_of(options.name)


def sample(**other):
    known = {"growing": "bytes", "amount": 10**9, "contender": RAW, "round": 0, "operation": "save"}
    return {**known, "process": 3.0, "seconds": 1.0, "resident": 10**9 + 10**7, "files": 10**9, **other}


def test_an_interrupted_run_leaves_its_report_and_goes_on(options, monkeypatch):
    asked = []
    ask = runner.ask

    def interrupted(module, task, limit):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append((task["growing"], task["amount"]))
        return ask(module, task, limit)

    monkeypatch.setattr(runner, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        growth.measure(options)
    assert "| 10 |" in (runner.RESULTS / "growth.md").read_text()
    before = samples(options)
    assert {(each["growing"], each["amount"]) for each in before} == {("variables", 10), ("variables", 20)}

    asked.clear()
    growth.measure(options)
    assert asked == [("bytes", 1000)]
    assert samples(options)[: len(before)] == before


def test_a_table_that_is_complete_is_kept_while_the_other_goes_on(options, monkeypatch):
    options.table = ["variables"]
    growth.measure(options)
    before = samples(options)
    options.table, options.minutes = ["bytes"], 0
    growth.measure(options)
    assert samples(options) == before

    options.table, options.minutes = None, 1
    growth.measure(options)
    assert samples(options)[: len(before)] == before
    assert {each["growing"] for each in samples(options)} == {"variables", "bytes"}


def test_a_run_that_was_complete_begins_anew(options):
    options.variables, options.bytes = [10], []
    growth.measure(options)
    before = samples(options)
    growth.measure(options)
    assert len(samples(options)) == len(before)
    assert samples(options) != before


def test_nothing_is_started_when_the_minutes_are_over(options, capsys):
    options.minutes = 0
    growth.measure(options)
    assert "The minutes are over" in capsys.readouterr().out
    assert samples(options) == []


def test_what_would_take_too_long_is_not_run():
    known = [sample(seconds=growth.TOO_LONG_S / 9)]
    assert growth.obstacle(known, "bytes", 10**10, RAW, "save") == "not run: would take about 44 s"
    assert growth.obstacle(known, "bytes", 2 * 10**9, RAW, "save") is None
    (cell,) = {
        each["failure"]
        for each in growth.one_process(known, "bytes", 10**10, RAW, 0, None)
        if each["operation"] == "save"
    }
    assert cell == "not run: would take about 44 s"


def test_what_would_not_fit_into_the_memory_is_not_run():
    known = [sample(amount=1000, resident=10**7, seconds=0), sample(seconds=0)]
    too_much = 10**9 * (runner.memory_of_machine() // 10**9)
    assert growth.obstacle(known, "bytes", too_much, RAW, "save").startswith("not run: would need about")
    assert growth.obstacle(known, "bytes", 2 * 10**9, RAW, "save") is None
