"""`milepost report` writes a page; here it is read without a browser."""

import base64
import hashlib
import html.parser
import itertools
import json
import re
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from milepost.bundle.counting import counted_by
from milepost.graph.keys import is_value
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference
from milepost.tensor import DType
from milepost.tools.cli import main
from milepost.tools.named import open_named
from milepost.tools.report import measurement, survey
from milepost.tools.report import page as page_module
from milepost.tools.report.contents import DETAILS, all_rounded, rounded
from milepost.tools.report.outline import outline_of
from milepost.tools.report.page import page_of
from milepost.tools.values.histogram import Histogram
from milepost.tools.values.tensors import Row, rows_of
from tests.counting import lines_run
from tests.tools.commands import damage, json_of, most_memory, net, output_of, series

HOSTILE = {
    "</script><img src=x onerror=alert(1)>": "script",
    "<svg onload=alert(2)>": "svg",
    "\x1b[2J\x00\x07": "control",
    "\u202egnp.exe": "rtl",
    "{{constructor}}'\"`${1}": "quotes",
    "__proto__": "prototype",
    "@@DATA@@": "template",
    "a/b.c": "path",
}


def safetensors(path, tensors):
    """A file of the names and arrays of float32; no library is needed."""
    header, data, offset = {}, [], 0
    for name, array in tensors.items():
        array = np.asarray(array, np.float32)
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
        data.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))
    return str(path)


NUMBERS = st.floats(-1e100, 1e100).map(lambda number: number if abs(number) > 1e-100 else 0.0)
"""Numbers whose quotients are numbers, too."""


class Parser(html.parser.HTMLParser):
    """Tags with their attributes, and the text in scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.blocks, self._block = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._block = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._block = None

    def handle_data(self, data):
        if self._block:
            self.blocks.append((*self._block, data))


def page(tmp_path, *arguments, status=0):
    """The text of the page that the command writes."""
    output = tmp_path / "report.html"
    assert main(["report", *map(str, arguments), "-o", str(output), "--overwrite"]) == status
    return output.read_text(encoding="utf-8")


def data_of(text):
    """The data in a page."""
    packed = next(text for tag, attributes, text in Parser(text).blocks if attributes.get("id") == "data")
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def names_of(data):
    """The names of all tensors, by their positions."""
    outline, above, found = data["outline"], [], {}
    for place, (depth, name) in enumerate(zip(outline["depth"], outline["name"], strict=True)):
        above[depth:] = [name]
        if outline["tensor"][place] >= 0:
            path = outline["separator"].join(above) + outline["suffix"]
            found[outline["tensor"][place]] = outline["keys"].get(str(place), path)
    return found


@pytest.fixture
def saved(tmp_path):
    values = {"whole": np.arange(6.0, dtype=np.float32).reshape(2, 3), "bad": np.float32([np.nan, np.inf, 0, -4])}
    root = Checkpoint(net=net(2.0, **values), text=Variable("words"), empty=Variable(np.zeros((0, 3))))
    return root.save(tmp_path / "ckpt")


def place_of(data, key):
    return next(place for place, name in names_of(data).items() if name == f"{key}/.ATTRIBUTES/VARIABLE_VALUE")


class TestOneCheckpoint:
    def test_every_tensor_is_there(self, saved, tmp_path, capsys):
        listed = {row["key"] for row in json_of(capsys, "show", saved)["tensors"]}
        assert set(names_of(data_of(page(tmp_path, saved))).values()) == listed

    def test_statistics_are_those_of_show(self, saved, tmp_path, capsys):
        data = data_of(page(tmp_path, saved))
        for name in ("net/whole", "net/bad", "net/w"):
            place, shown = place_of(data, name), json_of(capsys, "show", saved, name)["statistics"]
            found = {key: column[place] for key, column in data["statistics"].items() if isinstance(column, list)}
            assert found == {
                "minimum": shown["min"],
                "maximum": shown["max"],
                "mean": pytest.approx(shown["mean"], rel=1e-5),
                "deviation": pytest.approx(shown["std"], rel=1e-5),
                "norm": pytest.approx(shown["norm"], rel=1e-5),
            }
            for key in ("zeros", "nan", "infinite"):
                assert data["statistics"][key].get(str(place), 0) == shown[key]

    def test_what_has_no_numbers_has_no_statistics(self, saved, tmp_path):
        data = data_of(page(tmp_path, saved))
        for name in ("text", "empty"):
            assert data["statistics"]["norm"][place_of(data, name)] is None

    def test_names_only_reads_no_values(self, saved, tmp_path):
        damage(saved)
        data = data_of(page(tmp_path, saved, "--names-only"))
        assert not data["values"]
        assert set(data["statistics"]["norm"]) == {None}

    def test_a_damaged_tensor_is_named(self, saved, tmp_path, capsys):
        damage(saved, "net/w")
        data = data_of(page(tmp_path, saved, status=1))
        assert list(data["problems"]) == [str(place_of(data, "net/w"))]
        assert "net/w" in capsys.readouterr().err
        assert data["statistics"]["norm"][place_of(data, "net/whole")] is not None

    def test_metrics_and_metadata(self, tmp_path):
        manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path / "run", max_to_keep=1)
        manager.save(metrics={"loss": 0.5}, metadata={"by": "</script>"})
        (found,) = data_of(page(tmp_path, tmp_path / "run"))["checkpoints"]
        assert (found["metrics"], found["metadata"]) == ("loss=0.5", "{'by': '</script>'}")

    def test_what_the_save_has_left_out(self, tmp_path):
        options = CheckpointOptions(ignore="b")
        path = Checkpoint(a=Variable(1.0), b=Variable(2.0)).write(tmp_path / "ckpt", options)
        (found,) = data_of(page(tmp_path, path))["checkpoints"]
        assert found["left_out"] == "1 value was left out when it was saved, by ignore='b'"

    def test_a_file_without_tensors(self, tmp_path):
        data = data_of(page(tmp_path, safetensors(tmp_path / "empty.safetensors", {})))
        assert data["bytes"] == []

    @pytest.mark.parametrize("dtype", [each for each in DType.all() if not each.is_bytes], ids=str)
    def test_every_element_type(self, dtype, tmp_path):
        if dtype.numpy.names is not None:
            pytest.skip("no type that objects have")
        path = tmp_path / "ckpt"
        Checkpoint(v=Variable(np.array([1, 0, 1]).astype(dtype.numpy))).write(path)
        data = data_of(page(tmp_path, path))
        place = place_of(data, "v")
        assert data["statistics"]["mean"][place] == pytest.approx(2 / 3, rel=1e-4)
        assert data["statistics"]["zeros"][str(place)] == 1

    def test_a_tensor_that_several_threads_measure(self, tmp_path, capsys):
        """It has three sections; the last one has few elements."""
        array = np.random.default_rng(0).standard_normal(2 * measurement._SECTION + 1000, dtype=np.float32)
        array[[5, -5]] = np.inf, np.nan
        array[measurement._SECTION] = 0
        path = Checkpoint(v=Variable(array)).write(tmp_path / "ckpt")
        (found,) = [each for each in json_of(capsys, "report", path)["tensors"] if each["name"].startswith("v/")]
        finite = array[np.isfinite(array)].astype(np.float64)
        assert found["statistics"][0] == {
            "count": array.size,
            "finite": array.size - 2,
            "nan": 1,
            "infinite": 1,
            "zeros": 1,
            "min": finite.min(),
            "max": finite.max(),
            "mean": pytest.approx(finite.mean(), rel=1e-9),
            "std": pytest.approx(finite.std(), rel=1e-9),
            "norm": pytest.approx(np.linalg.norm(finite), rel=1e-12),
        }
        damage(path, "v", array.nbytes - 2)
        assert json_of(capsys, "report", path, status=1)["tensors"][0]["problems"][0].startswith(
            "the tensor at byte 0 is damaged"
        )

    def test_a_part_is_counted_in_the_histogram_of_a_large_tensor(self, tmp_path):
        array = np.random.default_rng(0).uniform(0, 1, 1_000_000).astype(np.float32)
        data = data_of(page(tmp_path, Checkpoint(v=Variable(array)).write(tmp_path / "ckpt")))
        start, width, bars, step = data["histograms"][str(place_of(data, "v"))]
        assert (start, width * len(bars), step) == (0, 1, 7)
        heights = [(ord(bar) - 35 - (ord(bar) > 92)) / 90 for bar in bars]
        assert min(heights) > 0.9, "every interval has about as many"

    def test_json_has_the_same_facts(self, saved, capsys):
        found = json_of(capsys, "report", saved)
        (bad,) = [each for each in found["tensors"] if each["name"].startswith("net/bad")]
        assert bad["statistics"][0]["nan"] == 1
        assert found["checkpoints"][0]["path"] == saved

    def test_the_page_is_no_text_for_a_terminal(self, saved, monkeypatch, capsys):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        assert main(["report", saved]) == 3
        assert "-o FILE" in capsys.readouterr().err

    def test_without_a_file_the_page_is_the_output(self, saved, capsys):
        assert output_of(capsys, "report", saved).out.startswith("<!doctype html>")

    def test_what_cannot_be_written_is_an_error(self, saved, tmp_path, capsys):
        assert main(["report", saved, "-o", str(tmp_path / "no" / "r.html")]) == 3
        assert "r.html" in capsys.readouterr().err


class TestSeveral:
    def test_norms_and_differences(self, tmp_path):
        paths = series(tmp_path / "run", [0.5, 0.25, 0.125])
        data = data_of(page(tmp_path, *paths))
        movement, place = data["movement"], place_of(data, "net/w")
        at = movement["tensor"].index(place)
        assert [column[at] for column in movement["norms"]] == pytest.approx([6**0.5, 2 * 6**0.5, 3 * 6**0.5], rel=1e-3)
        assert [(pair["old"], pair["new"]) for pair in data["pairs"]] == [(0, 1), (1, 2), (0, 2)]
        assert [column[at] for column in movement["relative"]] == [1, 0.5, 2]
        assert [column[at] for column in movement["largest"]] == [1, 1, 2]
        assert [column[at] for column in movement["unequal"]] == [6, 6, 6]

    def test_a_series_is_in_the_order_of_its_numbers(self, tmp_path):
        paths = series(tmp_path / "run", [0.5, 0.25])
        for given_paths in (paths, paths[::-1]):
            assert [each["path"] for each in data_of(page(tmp_path, *given_paths))["checkpoints"]] == paths

    def test_others_stay_in_the_order_given(self, tmp_path):
        paths = [safetensors(tmp_path / name, {"w": [1.0]}) for name in ("b.safetensors", "a.safetensors")]
        assert [each["path"] for each in data_of(page(tmp_path, *paths))["checkpoints"]] == paths

    def test_all_of_a_directory(self, tmp_path):
        paths = series(tmp_path / "run", [0.5, 0.25, 0.125])
        assert [each["path"] for each in data_of(page(tmp_path, tmp_path / "run", "--all"))["checkpoints"]] == paths

    def test_a_file_beside_the_checkpoints_of_a_run_is_left_out(self, tmp_path, capsys):
        paths = series(tmp_path / "run", [0.5, 0.25])
        beside = safetensors(tmp_path / "run" / "model.safetensors", {"w": [1.0]})
        found = data_of(page(tmp_path, tmp_path / "run", "--all"))["checkpoints"]
        assert [each["path"] for each in found] == paths
        assert f"left out: {beside}: " in capsys.readouterr().err

    def test_a_damaged_one_of_a_directory_is_left_out(self, tmp_path, capsys):
        paths = series(tmp_path / "run", [0.5, 0.25, 0.125])
        Path(paths[1] + ".index").write_bytes(b"damaged")
        assert main(["report", str(tmp_path / "run"), "--all", "-o", str(tmp_path / "a.html")]) == 1
        assert f"left out: {paths[1]}: " in capsys.readouterr().err
        found = data_of((tmp_path / "a.html").read_text())["checkpoints"]
        assert [each["path"] for each in found] == [paths[0], paths[2]]

    def test_what_was_added_removed_and_reshaped(self, tmp_path, capsys):
        Checkpoint(a=Variable([1.0, 2.0]), b=Variable([1.0]), c=Variable(1.0)).write(tmp_path / "old")
        Checkpoint(a=Variable([1.0, 3.0]), b=Variable([1.0, 2.0]), d=Variable(1.0)).write(tmp_path / "new")
        (pair,) = data_of(page(tmp_path, tmp_path / "old", tmp_path / "new"))["pairs"]
        counts = json_of(capsys, "diff", tmp_path / "old", tmp_path / "new", status=1)["counts"]
        assert pair["counts"] == counts
        assert {(kind, name.partition("/")[0], old, new) for kind, name, old, new, _ in pair["structure"]} == {
            ("removed", "c", "float32[]", ""),
            ("added", "d", "", "float32[]"),
            ("reshaped", "b", "float32[1]", "float32[2]"),
        }

    def test_each_tensor_is_read_once_however_many_are_compared(self, tmp_path):
        model, paths = net(large=np.zeros(10_000)), []
        for number in range(4):
            model.large.assign(np.full(10_000, float(number)))
            paths.append(Checkpoint(net=model).write(tmp_path / f"ckpt-{number}"))
        counted = []
        with counted_by(counted.append):
            page(tmp_path, *paths)
        with open_named(paths[0]) as reader:
            values = sum(row.size for row in rows_of(reader) if is_value(row.key))
        assert 4 * values <= sum(counted) < 5 * values, "the object graphs are read, too"

    def test_a_damaged_one_spoils_no_other(self, tmp_path):
        paths = series(tmp_path / "run", [0.5, 0.25, 0.125])
        damage(paths[1], "net/w")
        data = data_of(page(tmp_path, *paths, status=1))
        assert data["statistics"]["norm"][place_of(data, "net/w")] == pytest.approx(3 * 6**0.5, rel=1e-4)
        assert not data["problems"]

    def test_a_checkpoint_is_compared_with_a_file_of_another_library(self, tmp_path):
        Checkpoint(net=net(1.0)).write(tmp_path / "ckpt")
        other = safetensors(tmp_path / "net.safetensors", {"net.w": np.full((2, 3), 3.0)})
        (pair,) = data_of(page(tmp_path, tmp_path / "ckpt", other))["pairs"]
        assert pair["counts"]["changed"] == 1

    def test_tensors_of_text_are_compared(self, tmp_path):
        for name in ("a", "b"):
            Checkpoint(t=Variable(name)).write(tmp_path / name)
        data = data_of(page(tmp_path, tmp_path / "a", tmp_path / "b"))
        assert data["movement"]["relative"] == [["text"]]


class TestManySmall:
    """Small tensors are measured together."""

    @pytest.fixture
    def two(self, tmp_path):
        random, trees = np.random.default_rng(0), [{}, {}]
        for number in range(400):
            old = random.standard_normal(1 + number % 7)
            if number % 50 == 0:
                old[0] = np.nan
            trees[0][f"a{number:03}"] = old
            trees[1][f"a{number:03}"] = old if number % 3 else (old + 1).astype(np.float32)
        trees[0] |= {"gone": np.ones(3), "reshaped": np.ones(3)}
        trees[1] |= {"new": np.ones(3, bool), "reshaped": np.ones((3, 1)), "large": np.arange(10_000.0)}
        return [milepost.save(tmp_path / name, tree) for name, tree in zip("ab", trees, strict=True)]

    def test_they_are_measured_as_one_by_one(self, two, tmp_path, monkeypatch):
        together = data_of(page(tmp_path, *two))
        monkeypatch.setattr(survey, "measure_small", lambda subjects, *_: list(subjects))
        assert data_of(page(tmp_path, *two)) == together
        assert len(together["movement"]["tensor"]) == 400

    def test_only_the_damaged_one_has_no_statistics(self, two, tmp_path):
        damage(two[1], "a250")
        data = data_of(page(tmp_path, *two, status=1))
        assert list(data["problems"]) == [str(place_of(data, "a250"))]
        assert data["statistics"]["norm"][place_of(data, "a250")] is None
        assert data["statistics"]["norm"][place_of(data, "a251")] is not None

    def test_a_histogram_of_a_small_one(self, tmp_path):
        path = milepost.save(tmp_path / "ckpt", {"v": np.array([0.0, 1.0, 1.0, np.nan])})
        data = data_of(page(tmp_path, path))
        start, width, bars, step = data["histograms"][str(place_of(data, "v"))]
        assert (start, start + width * (len(bars) - 1), step) == (0.0, 1.0, 1)


class TestSafety:
    def test_a_hostile_name_is_no_markup(self, tmp_path):
        Checkpoint(**{name: Variable(float(place)) for place, name in enumerate(HOSTILE)}).write(tmp_path / "ckpt")
        text = page(tmp_path, tmp_path / "ckpt")
        plain = page(tmp_path, safetensors(tmp_path / "a.safetensors", {"w": [1.0]}))
        tags = Parser(text).tags
        assert [tag for tag, _ in Parser(plain).tags if tag == "script"] == [tag for tag, _ in tags if tag == "script"]
        assert not [tag for tag, _ in tags if tag in ("img", "iframe", "object", "link", "base")]
        assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]

    def test_a_hostile_path_is_no_markup(self, tmp_path):
        folder = tmp_path / "<img src=x onerror=alert(1)>\u202e"
        folder.mkdir()
        text = page(tmp_path, safetensors(folder / "a.safetensors", {"w": [1.0]}))
        assert "img" not in [tag for tag, _ in Parser(text).tags]
        assert "\u202e" not in text

    def test_names_have_no_control_characters(self, tmp_path):
        path = safetensors(tmp_path / "a.safetensors", {name: [1.0] for name in HOSTILE})
        names = "".join(names_of(data_of(page(tmp_path, path))).values())
        assert "\\x1b[2J\\x00" in names
        assert all(letter.isprintable() for letter in names)

    def test_nothing_is_loaded_from_elsewhere(self, saved, tmp_path):
        text = page(tmp_path, saved)
        assert not [
            value
            for _, attributes in Parser(text).tags
            for name, value in attributes.items()
            if name in ("src", "data", "srcset") or (name == "href" and not value.startswith("#"))
        ]
        script = re.sub(r"http://www\.w3\.org/2000/svg", "", text)
        assert not re.search(r"https?://|\bfetch\(|XMLHttpRequest|WebSocket|@import|url\((?!#)", script)

    def test_no_text_becomes_markup_in_the_script(self, saved, tmp_path):
        text = page(tmp_path, saved)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)

    def test_the_policy_allows_this_script_and_these_styles_and_nothing_else(self, saved, tmp_path):
        found = Parser(page(tmp_path, saved))
        policy = next(
            each["content"] for tag, each in found.tags if each.get("http-equiv") == "Content-Security-Policy"
        )
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

        def hashes(wanted):
            texts = [text for tag, each, text in found.blocks if tag == wanted and "id" not in each]
            return {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts}

        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
        assert set(rules["script-src"].split()) == hashes("script")
        assert set(rules["style-src"].split()) == hashes("style")
        assert "unsafe" not in policy

    def test_a_graph_that_is_a_long_chain(self):
        """The paths of n objects in a chain would take n * n characters."""
        count = 20_000
        nodes = [Node((Edge("x" * 50, n + 1), Edge("again", n + 1))) for n in range(count - 1)] + [Node()]
        outline = outline_of([], ObjectGraph(tuple(nodes)))
        assert len(outline.rows) == count - 1
        assert sum(len(name) for row in outline.rows for name in row.others) < 200_000_000

    def test_a_graph_that_goes_in_circles(self):
        outline = outline_of([], ObjectGraph((Node((Edge("a", 1),)), Node((Edge("up", 0), Edge("self", 1))))))
        assert [(row.name, row.others) for row in outline.rows] == [("a", ("a/self",))]


class TestOutline:
    def test_roles_and_other_names(self):
        f32 = (
            DType.from_name("float32")
            if hasattr(DType, "from_name")
            else next(d for d in DType.all() if d.name == "float32")
        )
        end = "/.ATTRIBUTES/VARIABLE_VALUE"
        keys = [f"net/k{end}", f"net/k/.OPTIMIZER_SLOT/opt/m{end}"]
        rows = [Row(key, f32, (2,), 8, 0) for key in sorted(keys)]
        slot = (SlotReference(3, "m", 4),)
        graph = ObjectGraph(
            (
                Node((Edge("net", 1), Edge("opt", 2), Edge("model", 1))),
                Node((Edge("k", 3),)),
                Node((), (), slot),
                Node(values=(SavedValue("VARIABLE_VALUE", "", keys[0]),)),
                Node(values=(SavedValue("VARIABLE_VALUE", "", keys[1]),)),
            )
        )
        found = {row.name: row for row in outline_of(rows, graph).rows}
        assert {name: row.role for name, row in found.items()} == {
            "net": "object",
            "k": "variable",
            ".OPTIMIZER_SLOT/opt/m": "slot",
            "opt": "optimizer",
        }
        assert found["net"].others == ("model",)
        assert all(row.key is None for row in found.values()), "the names make the keys"

    def test_a_name_with_slashes_and_dots_is_one_object(self, tmp_path):
        data = data_of(
            page(
                tmp_path,
                Checkpoint(**{"a/b.c": Checkpoint(w=Variable(1.0)), "d.e/": Variable(2.0)}).write(tmp_path / "ckpt"),
            )
        )
        assert data["outline"]["name"] == ["a/b.c", "w", "d.e/", "_CHECKPOINTABLE_OBJECT_GRAPH"]

    def test_two_comes_before_ten(self, tmp_path):
        names = [f"layers.{number}.w" for number in range(12)]
        data = data_of(page(tmp_path, safetensors(tmp_path / "a.safetensors", {name: [1.0] for name in names})))
        assert [name for name in data["outline"]["name"] if name.isdecimal()] == [str(number) for number in range(12)]


class TestSize:
    @pytest.fixture
    def huge(self, tmp_path):
        """100,000 tensors of random values."""
        random = np.random.default_rng(0)
        values = random.standard_normal((100_000, 4)).astype(np.float32)
        names = [f"model.layers.{at // 20}.part_{at % 20}.weight" for at in range(100_000)]
        return safetensors(tmp_path / "a.safetensors", dict(zip(names, values, strict=True)))

    def test_100_000_tensors_take_less_than_three_megabytes(self, huge, tmp_path):
        text = page(tmp_path, huge)
        assert len(text) < 3_000_000
        data = data_of(text)
        assert len(data["bytes"]) == 100_000
        assert data["left_out"] == {"tensors": 0, "bytes": 0}

    def test_the_work_grows_with_the_number_of_tensors(self, tmp_path):
        def lines(count):
            names = {f"model.layers.{at // 20}.part_{at % 20}.weight": [1.0] for at in range(count)}
            path = safetensors(tmp_path / f"{count}.safetensors", names)
            return lines_run(lambda: page(tmp_path, path))

        assert lines(2000) < 2.5 * lines(1000)

    def test_what_does_not_fit_is_left_out_and_counted(self, tmp_path):
        """Names of random letters cannot be compressed."""
        random = np.random.default_rng(0)
        names = [random.bytes(60).hex() for _ in range(40_000)]
        tensors = {name: np.zeros(1 + (place == 7)) for place, name in enumerate(names)}
        text = page(tmp_path, safetensors(tmp_path / "a.safetensors", tensors), "--names-only")
        data = data_of(text)
        assert len(text) < 3_000_000
        assert data["left_out"]["tensors"] + len(data["bytes"]) == 40_000
        assert names[7] in names_of(data).values(), "the largest is listed"

    def test_names_of_any_length_fit(self, tmp_path):
        random = np.random.default_rng(0)
        names = [random.bytes(8_000).hex() for _ in range(300)]
        path = safetensors(tmp_path / "a.safetensors", {name: [1.0] for name in names})
        text = page(tmp_path, path, safetensors(tmp_path / "b.safetensors", {"w": [1.0]}))
        assert len(text) < 3_000_000
        assert data_of(text)["pairs"][0]["counts"]["removed"] == 300

    def test_each_detail_has_less_than_the_one_before(self):
        assert all(all(b <= a for a, b in zip(*pair, strict=True)) for pair in itertools.pairwise(DETAILS))

    def test_memory_does_not_grow_with_a_tensor(self, tmp_path):
        path = Checkpoint(v=Variable(np.zeros(40_000_000, np.float32))).write(tmp_path / "ckpt")
        assert most_memory("report", path, "-o", tmp_path / "r.html") < 100 << 20
        assert most_memory("report", path, path, "-o", tmp_path / "r.html") < 120 << 20


class TestHistogram:
    @given(
        st.lists(arrays.arrays(np.float64, st.integers(1, 9), elements=NUMBERS), min_size=2, max_size=6),
        st.integers(0, 6),
    )
    def test_histograms_that_are_joined_count_what_one_would(self, parts, divided):
        whole, first, second = Histogram(), Histogram(), Histogram()
        for place, part in enumerate(parts):
            for histogram in (whole, first if place < divided else second):
                histogram.add(part, part.min(), part.max())
        first.join(second)
        assert first.bins() == whole.bins()

    @given(
        st.lists(
            arrays.arrays(np.float64, st.integers(1, 9), elements=NUMBERS),
            min_size=1,
            max_size=5,
        ),
        st.integers(2, 64),
    )
    def test_every_number_is_counted_where_it_belongs(self, parts, most):
        histogram = Histogram()
        for part in parts:
            histogram.add(part, part.min(), part.max())
        bins = histogram.bins(most)
        values = np.concatenate(parts)
        assert len(bins.counts) <= most
        assert sum(bins.counts) == values.size
        assert bins.counts[0]
        assert bins.counts[-1]
        with np.errstate(over="ignore"):
            places = np.floor(np.ldexp(values, -int(np.log2(bins.width)))) - np.floor(
                np.ldexp(bins.start, -int(np.log2(bins.width)))
            )
        assert np.bincount(places.astype(int), minlength=len(bins.counts)).tolist() == bins.counts

    def test_the_largest_numbers_have_no_histogram(self, tmp_path):
        """The ends of the intervals would be infinite."""
        Checkpoint(v=Variable(np.array([-1.7e308, 1.7e308]))).write(tmp_path / "ckpt")
        assert data_of(page(tmp_path, tmp_path / "ckpt"))["histograms"] == {}

    def test_float32_is_counted_as_float64(self):
        values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32) * 1e-3 + 5
        both = Histogram(), Histogram()
        for histogram, array in zip(both, (values, values.astype(np.float64)), strict=True):
            for part in np.split(array, 10):
                histogram.add(part, float(part.min()), float(part.max()))
        assert both[0].bins() == both[1].bins()

    def test_numbers_far_from_zero_have_many_intervals(self):
        values = np.linspace(1000, 1001, 500)
        histogram = Histogram()
        histogram.add(values, 1000.0, 1001.0)
        assert len(histogram.bins().counts) > 30

    def test_a_page_of_a_bfloat16(self, tmp_path):
        Checkpoint(v=Variable(np.linspace(-1, 1, 100).astype(ml_dtypes.bfloat16))).write(tmp_path / "ckpt")
        data = data_of(page(tmp_path, tmp_path / "ckpt"))
        start, width, bars, step = data["histograms"][str(place_of(data, "v"))]
        assert (start, start + width * len(bars), step) == (-1.0, pytest.approx(1.0, abs=0.1), 1)


def test_numbers_are_written_shortly():
    assert (
        json.dumps([rounded(0.1 + 0.2, 4), rounded(3.0, 4), rounded(1e300, 3), rounded(float("inf"), 3)])
        == "[0.3, 3, 1e+300, null]"
    )
    assert rounded(1.797e308, 2) == 1.797e308, "1.8e308 would be infinite"


@given(st.lists(st.floats(width=64), max_size=9), st.integers(1, 6))
def test_many_numbers_are_rounded_as_one_by_one(values, digits):
    expected = [rounded(value, digits) for value in values]
    for found, one, value in zip(all_rounded(values, digits), expected, values, strict=True):
        # exactly in the middle of two short numbers, either is as near
        assert found == one or abs(found - value) == pytest.approx(abs(one - value), rel=1e-6)
        assert found is None or found == value or float(f"{found:.{digits}g}") == found


def test_every_file_of_the_page_is_in_it():
    files = {each.name for each in page_module._FILES.iterdir()}
    assert files == {"page.html", "page.css", *page_module._SCRIPTS}


def test_a_part_of_the_page_is_not_taken_for_another():
    """A name that looks like the mark of a part stays what it is."""
    found = page_of(lambda detail: {}, title="@@SCRIPT@@", summary="@@STYLE@@")
    assert "<title>@@SCRIPT@@</title>" in found
    assert ">@@STYLE@@</h1>" in found
