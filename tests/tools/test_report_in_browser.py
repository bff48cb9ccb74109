"""The page of `milepost report` in a real browser: Chromium, without a window and without a network."""

import time

import numpy as np
import pytest

from milepost import Checkpoint, Module, SlotOwner, Variable
from milepost.tools import guide_numpy
from milepost.tools.cli import main
from tests.tools.browser import Browser
from tests.tools.commands import damage, net, series
from tests.tools.test_report import HOSTILE, safetensors


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """A page about three checkpoints of the guide's training."""
    directory = tmp_path_factory.mktemp("guide")
    checkpoint, manager = guide_numpy.create(str(directory / "run"))
    for _ in range(3):
        guide_numpy.train_step(checkpoint.net, next(checkpoint.iterator), checkpoint.optimizer)
        manager.save(metrics={"loss": 0.5})
    assert main(["report", str(directory / "run"), "--all", "-o", str(directory / "r.html")]) == 0
    return directory / "r.html"


@pytest.fixture
def page(browser, tmp_path):
    """Makes and opens the page of some checkpoints."""

    def opened(*arguments, status=0):
        output = tmp_path / "r.html"
        assert main(["report", *map(str, arguments), "-o", str(output), "--overwrite"]) == status
        return shown(browser, output)

    return opened


def shown(browser, path, width=1280, height=900):
    browser.resize(width, height)
    browser.prefer("light")
    browser.requests.clear()
    browser.messages.clear()
    assert browser.open(path) == "yes"
    assert browser.messages == []
    return browser


def texts(browser, selector):
    return browser.run(f"Array.from(document.querySelectorAll({selector!r}), each => each.textContent)")


def tree(browser):
    return texts(browser, "#tree .row .name")


def wait_for(browser, condition):
    """Searches wait a moment for more letters."""
    for _ in range(100):
        if browser.run(condition):
            return
        time.sleep(0.05)
    raise AssertionError(condition)


def colour(browser, selector="body"):
    return browser.run(f"getComputedStyle(document.querySelector({selector!r})).backgroundColor")


class TestContents:
    def test_the_numbers_of_the_checkpoint(self, guide, browser):
        tiles = texts(shown(browser, guide), "#tiles .tile")
        assert tiles[0] == "15tensors"
        assert "17objects in the graph" in tiles

    def test_the_tree_has_every_object_with_its_role(self, guide, browser):
        shown(browser, guide)
        assert tree(browser)[:4] == ["iterator", "py_state", "net", "l1"]
        assert "m (slot of optimizer)" in tree(browser)
        row = "Array.from(document.querySelectorAll('#tree .row')).find(row => row.querySelector('.name').textContent === 'optimizer')"
        assert browser.run(f"getComputedStyle({row}.querySelector('.dot')).backgroundColor") == "rgb(217, 48, 37)"

    def test_a_click_in_the_tree_shows_the_tensor(self, guide, browser):
        shown(browser, guide)
        browser.run(
            "Array.from(document.querySelectorAll('#tree .row')).find(row => row.textContent.includes('kernel')).click()"
        )
        assert texts(browser, "#tensor h2") == ["net/l1/kernel"]
        assert "float32[1,5]" in texts(browser, "#tensor p")[0]
        assert "milepost show" in texts(browser, "#tensor code")[0]
        assert browser.run("document.querySelectorAll('#tensor svg.chart').length") == 3, "histogram, norms, changes"

    def test_a_click_on_an_object_folds_it(self, guide, browser):
        before = tree(shown(browser, guide))
        browser.run(
            "Array.from(document.querySelectorAll('#tree .row')).find(row => row.textContent.startsWith('▾net')).click()"
        )
        slots = ["m (slot of optimizer)", "v (slot of optimizer)"]
        gone = [name for name in before if name not in tree(browser)]
        assert gone == ["l1", "bias", *slots, "kernel", *slots]

    def test_a_search_shows_what_is_found_and_what_is_above(self, guide, browser):
        shown(browser, guide)
        browser.run(
            "const box = document.getElementById('tree-search'); box.value = 'KERN'; box.dispatchEvent(new Event('input'))"
        )
        wait_for(browser, "document.querySelectorAll('#tree .row').length === 5")
        assert tree(browser) == ["net", "l1", "kernel", "m (slot of optimizer)", "v (slot of optimizer)"]

    def test_the_treemap_has_a_box_for_every_tensor(self, guide, browser):
        shown(browser, guide)
        titles = texts(browser, "#treemap .leaf > title")
        assert len(titles) == 13, "all but the object graph and the metadata"
        assert any(title.startswith("net/l1/kernel\nfloat32[1,5], 20 B") for title in titles)

    def test_a_box_of_a_slot_variable_has_its_name_and_size(self, guide, browser):
        labels = texts(shown(browser, guide), "#treemap .leaf.role-s > text")
        assert "m · 20 B" in labels

    def test_how_the_tensors_moved(self, guide, browser):
        shown(browser, guide)
        assert "ckpt-1 with ckpt-3" in texts(browser, "#pair option")[-1]
        rows = texts(browser, "#change-list .row")
        assert any("save_counter" in row and "200 %" in row for row in rows)

    def test_the_table_sorts(self, guide, browser):
        shown(browser, guide)
        browser.run(
            "Array.from(document.querySelectorAll('#tensor-list .head button')).find(each => each.textContent.startsWith('name')).click()"
        )
        names = texts(browser, "#tensor-list .row .name")
        assert names.index("iterator · py_state") < names.index("net/l1/bias") < names.index("optimizer/iter")

    def test_the_picture_is_there(self, guide, browser):
        shown(browser, guide)
        assert browser.run("document.querySelectorAll('#picture svg .node').length") == 17
        fill = "getComputedStyle(document.querySelector('#picture svg .node text')).fill"
        assert browser.run(fill) == "rgb(255, 255, 255)", "its style is allowed"

    def test_nan_and_infinity_are_announced(self, page, tmp_path):
        path = safetensors(tmp_path / "a.safetensors", {"good": [1.0, 2.0], "bad": [np.nan, np.inf, 1.0]})
        browser = page(path)
        assert texts(browser, "#notices .notice") == ["bad 1 NaN, 1 infinite of 3 values"]
        assert texts(browser, "#tensor h2") == ["bad"], "the first to look at"
        browser.run(
            "const filter = document.getElementById('tensor-filter'); filter.value = 'alarm'; filter.dispatchEvent(new Event('change'))"
        )
        assert texts(browser, "#tensor-list .row .name") == ["bad"]

    @pytest.mark.parametrize("arguments", [[], ["--names-only"]])
    def test_a_file_without_tensors(self, page, tmp_path, arguments):
        browser = page(safetensors(tmp_path / "a.safetensors", {}), *arguments)
        assert texts(browser, "#tiles .tile")[0] == "0tensors"

    def test_a_file_without_bytes_says_so_where_the_bytes_are(self, page, tmp_path):
        browser = page(safetensors(tmp_path / "a.safetensors", {}))
        assert texts(browser, "#treemap text") == ["no bytes"]
        assert least_contrast(browser, "#treemap text") >= 4.5

    def test_a_name_of_spaces_is_seen(self, page, tmp_path):
        browser = page(safetensors(tmp_path / "a.safetensors", {" ": [1.0], "b": [1.0]}))
        assert "' '" in tree(browser)

    def test_a_letter_of_two_units_is_not_halved(self, page, tmp_path):
        names = ["\N{GRINNING FACE}" * 200, "a" + "\N{GRINNING FACE}" * 200]
        browser = page(safetensors(tmp_path / "a.safetensors", {name: [1.0] for name in names}))
        labels = texts(browser, "#treemap .leaf > text")
        assert len(labels) == 2
        assert browser.run(
            "Array.from(document.querySelectorAll('#treemap .leaf > text')).every(each => each.textContent.isWellFormed())"
        )

    def test_slot_variables_of_two_optimizers_name_theirs(self, page, tmp_path):
        model, optimizers = net(), (SlotOwner(), SlotOwner())
        for optimizer in optimizers:
            optimizer.add_slot(model.w, "m")
        browser = page(Checkpoint(net=model, first=optimizers[0], second=optimizers[1]).write(tmp_path / "ckpt"))
        names = texts(browser, "#tensor-list .row .name")
        assert {"net/w · m (slot of first)", "net/w · m (slot of second)"} <= set(names)

    def test_added_and_removed(self, page, tmp_path):
        a = safetensors(tmp_path / "a.safetensors", {"old": [1.0], "both": [1.0, 2.0]})
        b = safetensors(tmp_path / "b.safetensors", {"new": [1.0], "both": [1.0, 2.5]})
        browser = page(a, b)
        assert {"1 removed", "1 added", "1 changed", "0 unchanged"} == set(texts(browser, "#change-counts .chip"))
        assert texts(browser, "#structure tbody tr td:first-child") == ["old", "new"]

    def test_a_box_of_many_small_tensors_is_looked_into(self, page, tmp_path):
        names = [f"layers.{at}" for at in range(6000)]
        browser = page(safetensors(tmp_path / "a.safetensors", {name: [1.0] for name in names}))
        boxes = texts(browser, "#treemap .leaf.rest > title")
        assert len(boxes) > 20
        assert sum(int(box.split("\n")[1].split(" ")[0]) for box in boxes) == 6000
        first = next(box for box in boxes if box.startswith("layers: 0 … "))
        script = "Array.from(document.querySelectorAll('#treemap .leaf.rest')).find(each => each.textContent.startsWith('layers: 0 … '))"
        browser.run(f"{script}.dispatchEvent(new MouseEvent('click'))")
        leaves = texts(browser, "#treemap .leaf > title")
        assert len(leaves) == int(first.split("\n")[1].split(" ")[0])
        assert "layers.0\nfloat32[1], 4 B" in leaves
        browser.press("Escape")
        assert texts(browser, "#treemap .leaf.rest > title") == boxes

    def test_a_damaged_tensor_is_announced(self, page, tmp_path):
        path = Checkpoint(net=net(1.0, b=np.ones(3))).write(tmp_path / "ckpt")
        damage(path, "net/w")
        browser = page(path, status=1)
        assert "1damaged" in texts(browser, "#tiles .tile")
        (notice,) = texts(browser, "#notices .notice")
        assert notice.startswith("net/w the tensor at byte ")
        assert notice.endswith("wrong checksum")
        lines = texts(browser, "#tensor .notice")[0].split("\n")
        assert [line.partition(":")[0] for line in lines[1:]] == ["file", "expected", "found"]

    def test_the_object_graph_does_not_count_as_strings(self, guide, browser):
        legend = texts(shown(browser, guide), "#types .legend span")
        assert any(text.startswith("object graph and metadata ") for text in legend)
        assert not any(text.startswith("string ") and "KiB" in text for text in legend)


class TestSafety:
    def test_the_page_asks_for_nothing(self, guide, browser):
        shown(browser, guide)
        assert [each for each in browser.requests if not each.startswith(("file:", "blob:"))] == []
        assert len(browser.requests) == 1

    def test_hostile_names_stay_text(self, page, tmp_path):
        root = Module()
        for name in HOSTILE:
            part = Module()
            part.w = Variable(np.arange(3.0))
            setattr(root, name, part)
        path = Checkpoint(**{"root": root, "<b>x</b>": Variable(1.0)}).write(tmp_path / "<img src=x onerror=alert(1)>")
        browser = page(path, path)
        assert browser.run("document.querySelectorAll('img, iframe, b b').length") == 0
        assert "<svg onload=alert(2)>" in tree(browser)
        assert "\\x1b[2J\\x00\\x07" in tree(browser)
        assert "__proto__" in tree(browser)
        browser.run("Array.from(document.querySelectorAll('#tensor-list .row')).forEach(row => row.click())")
        assert browser.messages == []
        assert len(browser.requests) == 1

    def test_a_tensor_of_another_library_has_the_name_of_the_file(self, page, tmp_path):
        browser = page(safetensors(tmp_path / "a.safetensors", {"a/b.c": [1.0], "d.e.f": [1.0, 2.0]}))
        assert texts(browser, "#tensor-list .row .name") == ["d.e.f", "a/b.c"]

    def test_a_script_that_got_in_would_not_run(self, guide, browser, tmp_path):
        evil = tmp_path / "evil.html"
        text = guide.read_text(encoding="utf-8").replace(
            "<main>", "<main><script>document.title = 'evil'</script><p onclick=\"document.title='evil'\" id=p>", 1
        )
        evil.write_text(text, encoding="utf-8")
        assert browser.open(evil) == "yes"
        browser.run("document.getElementById('p').click()")
        assert "evil" not in browser.run("document.title")


class TestUse:
    def test_light_and_dark_follow_the_system(self, guide, browser):
        shown(browser, guide)
        light = colour(browser)
        browser.prefer("dark")
        assert colour(browser) != light

    @pytest.mark.parametrize("system", ["light", "dark"])
    def test_the_button_changes_to_the_other(self, guide, browser, system):
        shown(browser, guide)
        browser.prefer(system)
        browser.run("localStorage.clear(); delete document.documentElement.dataset.theme")
        before = colour(browser)
        browser.run("document.getElementById('theme').click()")
        changed = colour(browser)
        browser.run("document.getElementById('theme').click()")
        assert changed != before
        assert colour(browser) == before
        browser.run("localStorage.clear(); delete document.documentElement.dataset.theme")

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_has_contrast(self, guide, browser, scheme):
        """At least 4.5 to 1, as WCAG 2 asks for."""
        shown(browser, guide)
        browser.prefer(scheme)
        for selector in (
            "h1",
            "#about",
            "#tensor dt",
            "#tensor dd",
            ".chip",
            "#tensor-list .head button",
            "#tree .spec",
        ):
            assert contrast(browser, selector) >= 4.5, selector

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_on_a_box_has_contrast(self, guide, browser, scheme):
        shown(browser, guide)
        browser.prefer(scheme)
        browser.run("document.getElementById('picture').open = true")
        for selector in ("#treemap .leaf > text", "#treemap .group > text", "#picture .node > text"):
            assert least_contrast(browser, selector) >= 4.5, selector

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_what_a_search_asks_for_has_contrast(self, guide, browser, scheme):
        shown(browser, guide)
        browser.prefer(scheme)
        assert contrast(browser, "#tree-search", part="::placeholder") >= 4.5

    @pytest.mark.parametrize("width", [360, 500, 800, 1280])
    def test_nothing_is_wider_than_the_screen(self, guide, browser, width):
        shown(browser, guide, width=width)
        assert browser.run("document.documentElement.scrollWidth") <= width
        out = "Array.from(document.querySelectorAll('.card, .tile, .list, h1, h2')).filter(each => each.getBoundingClientRect().right > innerWidth + 1).length"
        assert browser.run(out) == 0

    @pytest.mark.parametrize("width", [360, 1280])
    def test_long_names_of_checkpoints_are_not_wider_than_the_screen(self, page, browser, tmp_path, width):
        long = "a_name_without_a_break_" * 7
        paths = [Checkpoint(net=net(value)).write(tmp_path / f"{long}{value}") for value in (1.0, 2.0, 3.0)]
        page(*paths)
        browser.resize(width, 800)
        assert browser.run("document.documentElement.scrollWidth") <= width
        for selector in ("#about", "#pair", "#tensor h2", "#tensor h3"):
            wider = f"Array.from(document.querySelectorAll({selector!r})).filter(each => each.scrollWidth > each.clientWidth + 1).length"
            assert browser.run(wider) == 0, selector
        assert browser.run(
            "document.getElementById('tensor').scrollWidth <= document.getElementById('tensor').clientWidth"
        )

    @pytest.mark.parametrize("width", [360, 1280])
    def test_deep_objects_and_many_dimensions_have_room_in_the_tree(self, page, browser, tmp_path, width):
        root = deepest = Module()
        for _ in range(40):
            deepest.below = Module()
            deepest = deepest.below
        deepest.w = Variable(np.zeros((1,) * 32))
        page(Checkpoint(root=root).write(tmp_path / "ckpt"))
        browser.resize(width, 800)
        browser.run("document.getElementById('unfold').click();" * 45)
        browser.run("document.querySelector('#tree .list').scrollTop = 1e9")
        wait_for(
            browser,
            "document.querySelector('#tree .row:last-child .name').textContent === '_CHECKPOINTABLE_OBJECT_GRAPH'",
        )
        box = "document.querySelector('#tree .list')"
        assert browser.run(f"{box}.scrollWidth <= {box}.clientWidth")
        assert (
            browser.run(
                "Math.min(...Array.from(document.querySelectorAll('#tree .row .name'), each => each.clientWidth))"
            )
            >= 60
        )

    def test_on_a_phone_names_in_a_list_tell_slot_variables_apart(self, guide, browser):
        """The only optimizer is not named in each of them, and no name is cut off."""
        shown(browser, guide, width=360, height=740)
        rows = "Array.from(document.querySelectorAll('#tensor-list .row .name'))"
        names = [name for name in texts(browser, "#tensor-list .row .name") if " · " in name]
        assert "net/l1/kernel · m" in names
        assert browser.run(
            f"{rows}.filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent)"
        ) == ["_CHECKPOINTABLE_OBJECT_GRAPH"]
        assert "net/l1/kernel · m (slot of optimizer)" in browser.run(f"{rows}.map(each => each.title)")

    def test_on_a_phone_names_of_what_moved_are_not_cut_off(self, page, browser, tmp_path):
        names = [f"net.{part}.layer1.kernel" for part in ("encoder", "decoder")]
        files = [safetensors(tmp_path / f"{step}.safetensors", {name: [step] for name in names}) for step in (1.0, 2.0)]
        page(*files)
        browser.resize(360, 740)
        rows = "Array.from(document.querySelectorAll('#change-list .row .name'))"
        assert browser.run(f"{rows}.map(each => each.scrollWidth <= each.clientWidth)") == [True, True]

    def test_on_a_phone_a_tensor_comes_up_and_goes_away(self, guide, browser):
        shown(browser, guide, width=360, height=740)
        is_shown = "getComputedStyle(document.getElementById('tensor')).display !== 'none'"
        assert not browser.run(is_shown)
        browser.run("document.querySelectorAll('#tensor-list .row')[4].click()")
        assert browser.run(is_shown)
        browser.run("document.querySelector('#tensor .close').click()")
        assert not browser.run(is_shown)

    def test_on_a_phone_the_keyboard_goes_to_the_tensor_and_back(self, guide, browser):
        shown(browser, guide, width=360, height=740)
        browser.run("document.querySelector('#tensor-list .list').focus()")
        assert browser.run("document.activeElement.id") == "", "the page does not begin with a tensor over it"
        browser.press("ArrowDown", "Enter")
        assert browser.run("document.activeElement.id") == "tensor"
        browser.press("Escape")
        assert browser.run("getComputedStyle(document.getElementById('tensor')).display") == "none"
        assert browser.run("document.activeElement.parentElement.id") == "tensor-list"

    def test_on_a_wide_screen_the_keyboard_stays_in_the_list(self, guide, browser):
        shown(browser, guide)
        browser.run("document.querySelector('#tensor-list .list').focus()")
        browser.press("ArrowDown", "Enter")
        assert browser.run("document.activeElement.parentElement.id") == "tensor-list"

    def test_the_tree_by_keyboard(self, guide, browser):
        shown(browser, guide)
        browser.run("document.querySelector('#tree .list').focus()")
        active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).querySelector('.name').textContent"
        browser.press("ArrowDown", "ArrowDown")
        assert browser.run(active) == "net"
        browser.press("ArrowLeft")
        assert "l1" not in tree(browser)
        browser.press("ArrowRight", "ArrowRight", "ArrowDown")
        assert browser.run(active) == "bias"
        browser.press("Enter")
        assert texts(browser, "#tensor h2") == ["net/l1/bias"]
        browser.press("End")
        assert browser.run(active) == "_MILEPOST_METADATA"

    def test_the_treemap_by_keyboard(self, guide, browser):
        shown(browser, guide)
        browser.run("document.querySelector('#treemap svg').focus()")
        name = "document.querySelector('#treemap .active > title').textContent.split('\\n')[0]"
        first = browser.run(name)
        browser.press("ArrowRight")
        assert browser.run(name) != first
        assert browser.run(name) == "net/l1"
        browser.press("Enter")
        assert "l1" in texts(browser, "#crumbs button")
        browser.press("ArrowDown", "Enter")
        assert texts(browser, "#tensor h2")[0].startswith("net/l1/")
        browser.press("Escape")
        assert texts(browser, "#crumbs button") == ["all"]

    def test_every_control_is_reached_with_the_tab_key_and_seen(self, guide, browser):
        shown(browser, guide)
        reached = set()
        for _ in range(60):
            browser.press("Tab")
            reached.add(
                browser.run(
                    "(document.activeElement.id || document.activeElement.className.baseVal || document.activeElement.className || document.activeElement.tagName) + ''"
                )
            )
        assert {"theme", "tree-search", "tensor-search", "tensor-filter", "pair", "unfold", "list", "tensor"} <= reached

    def test_a_slash_goes_to_the_search(self, guide, browser):
        shown(browser, guide)
        browser.press("/")
        assert browser.run("document.activeElement.id") == "tensor-search"


class TestSize:
    def test_100_000_tensors_open_quickly_and_scroll(self, browser, tmp_path):
        names = [f"model.layers.{at // 20}.part_{at % 20}.weight" for at in range(100_000)]
        path = safetensors(tmp_path / "a.safetensors", {name: [1.0] for name in names})
        assert main(["report", path, "--names-only", "-o", str(tmp_path / "r.html")]) == 0
        shown(browser, tmp_path / "r.html")
        # the time of the page itself; other programs may keep the machine busy
        assert browser.run("performance.getEntriesByType('navigation')[0].domInteractive") < 2000
        assert browser.run("document.querySelectorAll('*').length") < 5000
        browser.run("document.querySelector('#tensor-list .list').scrollTop = 1e9")
        wait_for(
            browser,
            "document.querySelector('#tensor-list .row:last-child .name').textContent === 'model.layers.4999.part_19.weight'",
        )
        browser.run(
            "const box = document.getElementById('tree-search'); box.value = 'layers.777.part_7.'; box.dispatchEvent(new Event('input'))"
        )
        wait_for(browser, "document.querySelectorAll('#tree .row').length === 5")
        assert tree(browser) == ["model", "layers", "777", "part_7", "weight"]

    def test_many_checkpoints(self, page, tmp_path):
        browser = page(*series(tmp_path / "run", [0.5] * 12))
        assert browser.run("document.querySelectorAll('#checkpoints tbody tr').length") == 12
        assert texts(browser, "#pair option")[-1] == "ckpt-10 with ckpt-120"


def contrast(browser, selector, part=""):
    """The contrast of an element's text, or that of a part of it, with what is behind it."""
    script = """(() => {
      const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(each => each / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const made = document.querySelector(SELECTOR);
      let behind = made;
      while (/rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
      const two = [light(getComputedStyle(made, PART).color), light(getComputedStyle(behind).backgroundColor)].sort((a, b) => b - a);
      return (two[0] + 0.05) / (two[1] + 0.05);
    })()""".replace("SELECTOR", repr(selector)).replace("PART", repr(part))
    return browser.run(script)


def least_contrast(browser, selector):
    """The least contrast of texts in pictures, each with the box that it is in, or else with the page behind the picture."""
    script = """(() => {
      const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(each => each / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ratios = Array.from(document.querySelectorAll(SELECTOR), text => {
        const box = text.parentElement.querySelector(':scope > rect:not(.behind)');
        const behind = box ? getComputedStyle(box).fill : getComputedStyle(text.closest('.card')).backgroundColor;
        const two = [light(getComputedStyle(text).fill), light(behind)].sort((a, b) => b - a);
        return (two[0] + 0.05) / (two[1] + 0.05);
      });
      return Math.min(...ratios);
    })()""".replace("SELECTOR", repr(selector))
    return browser.run(script)


def test_the_own_names_of_layers_are_shown_and_found(page, tmp_path):
    keras = pytest.importorskip("keras")
    inside = keras.Input((3,))
    outside = keras.layers.Dense(2, name="head")(keras.layers.Dense(4, name="<b>body")(inside))
    keras.Model(inside, outside).save_weights(tmp_path / "m.weights.h5")
    opened = page(tmp_path / "m.weights.h5")
    assert {"dense (<b>body)", "dense_1 (head)"} <= {*tree(opened)}
    opened.run("document.getElementById('tree-search').value = 'HEAD'")
    opened.run("document.getElementById('tree-search').dispatchEvent(new Event('input'))")
    wait_for(
        opened,
        "!Array.from(document.querySelectorAll('#tree .row .name')).some(each => each.textContent.startsWith('dense ('))",
    )
    assert "dense_1 (head)" in tree(opened)
