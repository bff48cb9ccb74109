"""Tables of a benchmark that were measured at different times are published together, each with what it was measured on."""

import pytest

from benchmarks import runner, tables

FACTS = {"cores": 2, "cpu": "cpu", "kernel": "6", "python": "3", "packages": {}, "date": "2026-01-01", "load": 0.5}


def title(options):
    return f"## Title, {options.rounds} rounds"


def text(name, samples, _):
    return f"### {name}\n\n{samples[0]['seconds']} s"


BENCHMARK = tables.Benchmark(("memory", "disk"), title, text)


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Makes a report, as a run of its own would."""
    monkeypatch.setattr(runner, "RESULTS", tmp_path)

    def make(*given):
        parser = runner.arguments("", "name", rounds=3, tables=BENCHMARK.tables)
        return tables.Report(BENCHMARK, parser.parse_args(["--memory", str(tmp_path), "--disk", str(tmp_path), *given]))

    return make


def put(report, name, seconds, commit):
    report.put(name, {**FACTS, "commit": commit}, [{"seconds": seconds}])


def test_tables_that_were_measured_together_share_one_line(report):
    whole = report()
    put(whole, "memory", 1, "aaa")
    put(whole, "disk", 2, "aaa")
    assert [line for line in whole.text().splitlines() if line][:5] == [
        "## Title, 3 rounds",
        "### memory",
        "1 s",
        "### disk",
        "2 s",
    ]
    assert whole.text().count("Measured on") == 1


def test_a_table_by_itself_has_a_line_of_its_own_and_the_others_stay(report, tmp_path):
    put(report(), "disk", 2, "aaa")
    put(report("--table", "memory"), "memory", 1, "bbb")
    lines = (tmp_path / "name.md").read_text().splitlines()
    assert [line.partition("; sources at ")[2][:3] for line in lines if line.startswith("Measured")] == ["bbb", "aaa"]
    assert lines.index("### memory") < lines.index("### disk")
    assert tables.samples_of("name") == [{"seconds": 1}, {"seconds": 2}]


def test_tables_of_different_numbers_of_rounds_are_not_published_together(report):
    put(report(), "disk", 2, "aaa")
    with pytest.raises(SystemExit, match="'disk', which was measured with"):
        report("--table", "memory", "--rounds", "1")
    report("--table", "disk", "--rounds", "1")
