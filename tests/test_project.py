"""The project's own rules: layers, names, sizes, public surface, documentation that runs, packages that build."""

from __future__ import annotations

import ast
import doctest
import enum
import importlib
import importlib.util
import inspect
import json
import logging
import os
import pkgutil
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import SkipTest

import pytest
import sybil
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports
from sybil.evaluators.doctest import NUMBER
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

import milepost
from milepost.graph import adapter

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "milepost"
SOURCES = sorted(PACKAGE.rglob("*.py"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(milepost.__path__, "milepost.")
    if not module.name.endswith(".__main__")
)
PUBLIC: list[str] = vars(milepost).get("__all__", [])
PUBLIC_MODULES = [
    "milepost",
    *(
        f"milepost.{name}"
        for name in ("adapters", "coordination", "layouts", "retention", "storage", "tensorflow1", "testing")
    ),
]
FRAMEWORK_MODULES = [
    f"milepost.{name}" for name in ("accelerate", "ignite", "jax", "keras", "lightning", "tf_keras", "transformers")
]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {contract["id"]: contract for contract in CONFIGURATION["tool"]["importlinter"]["contracts"]}
PROTOCOLS = [
    milepost.storage.Storage,
    milepost.storage.LinkingStorage,
    milepost.storage.ConditionalStorage,
    milepost.coordination.Coordinator,
]
REFERENCES = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md")))
FRAMEWORKS = set(CONTRACTS["frameworks"]["forbidden_modules"])
SHIPPED = {".py", ".typed", ".js", ".css", ".html", ".svg", ".txt"}
DOCTEST_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | NUMBER


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def public_names(module: str) -> list[str]:
    """`__all__` of a module, which may need a framework that is not installed."""
    if module == "milepost":
        return PUBLIC
    path = ROOT / "src" / module.replace(".", "/")
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    for statement in ast.parse(source.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    raise AssertionError(f"{module} has no __all__")


def is_documented(name: str, value: Any) -> bool:
    """Whether a public name has a docstring, and so have its public methods.

    A method may be described by a public protocol or by a base class of a framework that has it too. A constant is described below it.
    """
    if not inspect.isroutine(value) and not inspect.isclass(value):
        below = re.compile(rf'^{name}(: [^=\n]+)? = .*\n"""', re.MULTILINE)
        return name == "__version__" or any(below.search(source.read_text()) for source in SOURCES)
    if not (value.__doc__ or "").strip():
        return False
    if not inspect.isclass(value):
        return True
    elsewhere = [*PROTOCOLS, *(base for base in value.__mro__ if not base.__module__.startswith("milepost"))]
    return not [
        attribute
        for base in value.__mro__
        if base.__module__.startswith("milepost")
        for attribute, member in vars(base).items()
        if attribute[0] != "_" and (inspect.isroutine(member) or isinstance(member, property))
        if not inspect.getdoc(getattr(value, attribute)) and not any(hasattr(other, attribute) for other in elsewhere)
    ]


def undocumented_arguments(name: str, value: Any) -> list[str]:
    """The arguments that a docstring does not name. `MilepostError` describes those of all errors."""
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        return []
    if inspect.isclass(value) and (getattr(value, "_is_protocol", False) or issubclass(value, (Exception, enum.Enum))):
        return []
    described = str(inspect.getdoc(value))
    if other := re.search(r"Arguments and behaviour are those of `milepost\.(\w+)\.(\w+)`", described):
        described += str(inspect.getdoc(getattr(load(f"milepost.{other[1]}"), other[2])))
    arguments = [each for each in inspect.signature(value).parameters if each not in ("args", "kwargs")]
    return [f"{name}({each})" for each in arguments if not re.search(rf"\b{each}\b", described)]


def load(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in FRAMEWORKS:
            pytest.skip(f"{error.name} is not installed")
        raise


@contextmanager
def adapters_of_examples() -> Iterator[None]:
    """Takes back the adapters that examples register; those of frameworks, which are imported meanwhile, stay."""
    before = adapter.registry.adapters
    try:
        yield
    finally:
        for each in [each for each in adapter.registry.adapters if each not in before]:
            if not hasattr(sys.modules.get(type(each).__module__), type(each).__name__):
                adapter.unregister(each)


class TestEnvironment:
    @pytest.mark.skipif(os.environ.get("MILEPOST_TESTS") == "core", reason="make test-core goes without TensorFlow")
    @pytest.mark.skipif(sys.version_info >= (3, 14), reason="TensorFlow has no release for this Python yet")
    def test_tensorflow_is_there_to_compare_with(self) -> None:
        """A complete run of the tests does not skip the comparisons with TensorFlow."""
        assert importlib.util.find_spec("tensorflow"), "use `make test`, or set MILEPOST_TESTS=core to go without"


class TestSources:
    def test_imports_follow_the_layers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The contracts in pyproject.toml hold: for the layers, the frameworks, and the package as a whole."""
        monkeypatch.chdir(ROOT)
        loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
        before = [logger.disabled for logger in loggers]
        try:
            assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS
        finally:  # the linter disables all loggers that there are, and later tests look at milepost's
            for logger, disabled in zip(loggers, before, strict=True):
                logger.disabled = disabled

    def test_all_modules_are_under_the_contracts(self) -> None:
        """No module may import a framework, or the package as a whole, but for those that a contract names."""
        assert {name: CONTRACTS[name]["source_modules"] for name in ("frameworks", "whole")} == {
            "frameworks": ["milepost.**"],
            "whole": ["milepost.**"],
        }

    def test_importing_milepost_imports_no_framework(self) -> None:
        """A program that uses no framework does not pay for one."""
        code = f"import sys; from milepost import *; print(*sorted({FRAMEWORKS} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == []

    def test_no_file_is_a_symbolic_link(self) -> None:
        """Git on Windows makes a text file of one."""
        tops = [
            path for path in ROOT.iterdir() if not path.name.startswith((".venv", ".git")) or path.name == ".github"
        ]
        links = [path for top in tops for path in (top, *top.rglob("*")) if path.is_symlink()]
        assert [relative(path) for path in links] == []

    def test_no_file_is_a_drawer_for_everything(self) -> None:
        """Every module's name says what is in it."""
        drawers = {"utils", "util", "common", "helpers", "helper", "types", "core", "misc"}
        assert [relative(source) for source in SOURCES if {source.stem, *source.parent.parts} & drawers] == []


class TestPublicSurface:
    def test_all_is_what_there_is(self) -> None:
        """`__all__` names what a reader finds in the package, once, and nothing else."""
        shown = [name for name in dir(milepost) if name[0] != "_"]
        reality = {name for name in shown if not inspect.ismodule(getattr(milepost, name))}
        assert sorted(set(PUBLIC) - {"__version__"}) == sorted(reality)
        assert len(set(PUBLIC)) == len(PUBLIC)

    @pytest.mark.parametrize("module", [*PUBLIC_MODULES, *FRAMEWORK_MODULES])
    def test_public_names_are_documented(self, module: str) -> None:
        """A public name, and each public method of a public class, has a docstring."""
        found = load(module)
        assert [name for name in found.__all__ if not is_documented(name, getattr(found, name))] == []

    @pytest.mark.parametrize("module", [*PUBLIC_MODULES, *FRAMEWORK_MODULES])
    def test_every_argument_is_documented(self, module: str) -> None:
        """The docstring of a public function, and of a class that programs make, names each of its arguments."""
        found = load(module)
        assert [text for name in found.__all__ for text in undocumented_arguments(name, getattr(found, name))] == []

    @pytest.mark.parametrize("module", [*PUBLIC_MODULES, *FRAMEWORK_MODULES])
    def test_the_reference_has_every_public_name_once(self, module: str) -> None:
        described = re.findall(rf"^\.\. auto\w+:: {re.escape(module)}\.(\w+)$", REFERENCES, re.MULTILINE)
        names = public_names(module)
        assert sorted(described) == sorted(set(names) - {"__version__"})
        listed = re.findall(rf"^   ~{re.escape(module)}\.(\w+)$", REFERENCES, re.MULTILINE)
        assert len(listed) == len(set(listed))
        assert set(listed) <= set(described)

    def test_every_page_is_in_the_index(self) -> None:
        """The index is also the table of contents of the HTML."""
        index = ROOT / "docs" / "index.md"
        links = re.findall(r"^- \[[^]]*\]\(([^):#]+)\)", index.read_text(), re.MULTILINE)
        pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
        pages = {page for page in pages if not page.startswith("images/")} - {"index.md"}
        assert sorted(links) == sorted(pages | {f"../{path.name}" for path in ROOT.glob("*.md")})


class TestDocumentation:
    @pytest.mark.parametrize("module", ["milepost", *MODULES])
    def test_examples_in_docstrings_run(self, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The examples in a module's docstrings give what they say."""
        monkeypatch.chdir(tmp_path)
        loaded = load(module)
        for framework in re.findall(r"^ *>>> (?:import|from) (\w+)", inspect.getsource(loaded), re.MULTILINE):
            if framework in FRAMEWORKS and importlib.util.find_spec(framework) is None:
                pytest.skip(f"{framework} is not installed")
        with adapters_of_examples():
            failures, _ = doctest.testmod(loaded, optionflags=DOCTEST_OPTIONS)
        assert failures == 0

    @pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
    def test_code_blocks_run(self, document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A Python block in the documentation runs, one after the other in one directory, or says why not."""
        monkeypatch.chdir(tmp_path)
        parsers: list[Any] = [PythonCodeBlockParser(doctest_optionflags=DOCTEST_OPTIONS), SkipParser()]
        parsed = sybil.Sybil(parsers, path=str(ROOT)).parse(document)
        parsed.namespace["installed"] = lambda name: importlib.util.find_spec(name) is not None
        with adapters_of_examples():
            for example in parsed.examples():
                try:
                    example.evaluate()
                except SkipTest as reason:
                    print(f"{relative(document)}:{example.line}: skipped: {reason}")

    @pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
    def test_skipped_code_blocks_say_why(self, document: Path) -> None:
        """A block is not kept from running without a reason, and every block names its language."""
        text = document.read_text()
        assert re.findall(r"<!--+ *;? *skip: *(?:next|start) *--+>", text) == []
        fences = re.findall(r"^ *(?:```|~~~)(.*)$", text, re.MULTILINE)
        assert all(fences[::2]), "write ```text for what is not code"

    @pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
    def test_links_lead_somewhere(self, document: Path) -> None:
        """Each relative link names a file that exists, and a heading in it if it names one."""
        links = re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)", document.read_text())
        broken = []
        for path, anchor in links:
            target = document.parent / path if path else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{path}#{anchor}")
        assert broken == []


@pytest.fixture(scope="class")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of the sources, or those of a release that are to be checked."""
    if packages := os.environ.get("MILEPOST_PACKAGES"):
        return ROOT / packages
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


class TestPackages:
    def test_the_wheel_holds_the_package_and_its_licence_only(self, built: Path) -> None:
        """What gets installed is the sources, the type marker and the metadata."""
        (wheel,) = built.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            metadata = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
            licence = archive.read(f"{metadata}/licenses/LICENSE").decode()
        assert "Apache License" in licence
        assert "milepost/py.typed" in names
        assert {f"milepost/{relative(source)[len('src/milepost/') :]}" for source in SOURCES} <= set(names)
        page = ROOT / "src" / "milepost" / "tools" / "report" / "page"
        assert {f"milepost/tools/report/page/{each.name}" for each in page.iterdir()} <= set(names)
        strange = [
            name
            for name in names
            if not name.startswith(f"{metadata}/")
            and not (name.startswith("milepost/") and Path(name).suffix in SHIPPED)
        ]
        assert strange == []

    def test_the_source_distribution_can_be_built_and_tested(self, built: Path) -> None:
        """Sources, tests, licence and recipes are in it; results, caches and environments are not."""
        (sdist,) = built.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        needed = {"LICENSE", "README.md", "pyproject.toml", "Makefile", ".ci/run", "src/milepost/py.typed"}
        needed |= {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", "conda/recipe.yaml"}
        needed |= {".github/workflows/tests.yml", ".github/workflows/release.yml"}
        assert needed | {relative(Path(__file__)), *map(relative, SOURCES)} <= names
        allowed = needed | {"PKG-INFO", ".gitignore"}
        folders = {".ci", ".github", "benchmarks", "conda", "docs", "examples", "src", "tests"}
        assert [name for name in names - allowed if name.partition("/")[0] not in folders] == []
        assert [name for name in names if "__pycache__" in name or name.startswith("benchmarks/results")] == []

    @pytest.mark.parametrize("repository", ["", "https://example.org/milepost/"])
    def test_the_readme_of_a_package_has_links_to_the_repository_that_the_project_names(
        self, repository: str, tmp_path: Path
    ) -> None:
        """An index of packages has no other files, so relative links lead nowhere there."""
        project = re.sub(r"^Repository = .*\n", "", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
        named = f"[project.urls]\nRepository = {repository!r}\n" if repository else "[project.urls]\n"
        (tmp_path / "pyproject.toml").write_text(project.replace("[project.urls]\n", named))
        for name in ("README.md", "LICENSE", ".ci/package_readme.py", "src/milepost/__init__.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
        command = [sys.executable, "-m", "hatchling", "metadata"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        metadata = json.loads(done.stdout)
        text, readme = metadata["readme"]["text"], (ROOT / "README.md").read_text(encoding="utf-8")
        if not repository:
            assert (text, metadata.get("urls", {})) == (readme, {})
            return
        at = f"v{milepost.__version__}"
        assert metadata["urls"] == {"Repository": repository}
        assert re.findall(r"\]\((?!https://|#)[^)]*\)", text) == []
        assert f"](https://example.org/milepost/blob/{at}/docs/start.md)" in text
        assert f"](https://example.org/milepost/raw/{at}/docs/images/guide_resumes.svg)" in text
        assert text.count("](") == readme.count("](")


PROJECT = CONFIGURATION["project"]
CITATION = (ROOT / "CITATION.cff").read_text()
RECIPE = (ROOT / "conda" / "recipe.yaml").read_text()
WORKFLOWS = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def entries(text: str, key: str) -> list[str]:
    """The items of a list in a file of YAML."""
    (lines,) = re.findall(rf"^ *{key}:\n((?: *- .*\n)+)", text, re.MULTILINE)
    return re.findall(r"- (.*)", lines)


def entry(text: str, key: str) -> str | None:
    """A value in a file of YAML."""
    values = re.findall(rf"^ *{key}: (.*)$", text, re.MULTILINE)
    return values[0].strip('"') if values else None


def bound(requirement: str) -> str:
    """A requirement of the project, as one of conda."""
    return re.sub(r"(?<=\w)>=", " >=", requirement.partition(";")[0])


class TestRelease:
    """What is written in several files, because each of them is read by another program."""

    def test_the_version_is_the_same_everywhere(self) -> None:
        assert (entry(CITATION, "version"), entry(RECIPE, "version")) == (milepost.__version__,) * 2

    def test_the_changelog_has_the_version_below_what_is_unreleased(self) -> None:
        headings = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
        assert headings[:2] == ["Unreleased", milepost.__version__]

    def test_the_citation_says_what_the_project_says(self) -> None:
        assert entry(CITATION, "title") == PROJECT["name"]
        assert entry(CITATION, "abstract") == PROJECT["description"]
        assert entry(CITATION, "license") == PROJECT["license"]
        assert entry(CITATION, "repository-code") == PROJECT["urls"].get("Repository")
        assert entries(CITATION, "keywords") == PROJECT["keywords"]
        assert entries(CITATION, "authors") == [f"name: {each['name']}" for each in PROJECT["authors"]]

    def test_the_recipe_of_conda_says_what_the_project_says(self) -> None:
        """Conda has no condition for one version of Python in such a package: the first bound of each name is the lowest."""
        lowest: dict[str, str] = {}
        for each in map(bound, PROJECT["dependencies"]):
            lowest.setdefault(each.partition(" ")[0], each)
        assert entries(RECIPE, "run") == [f"python {PROJECT['requires-python']}", *lowest.values()]
        assert set(map(bound, CONFIGURATION["build-system"]["requires"])) <= set(entries(RECIPE, "host"))
        assert entries(RECIPE, "entry_points") == [f"{name} = {value}" for name, value in PROJECT["scripts"].items()]
        assert (entry(RECIPE, "summary"), entry(RECIPE, "license")) == (PROJECT["description"], PROJECT["license"])
        assert entry(RECIPE, "repository") == PROJECT["urls"].get("Repository")

    @pytest.mark.parametrize("workflow", ["release.yml", "tests.yml"])
    def test_workflows_try_every_python_that_the_project_names(self, workflow: str) -> None:
        named = re.findall(
            r"^Programming Language :: Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE
        )
        assert PROJECT["requires-python"] == f">={named[0]}"
        matrices = re.findall(r"^ +python: (\[.*\])$", WORKFLOWS[workflow], re.MULTILINE)
        assert named in [json.loads(each) for each in matrices]

    @pytest.mark.parametrize("workflow", sorted(WORKFLOWS))
    def test_workflows_name_actions_by_their_contents(self, workflow: str) -> None:
        """A tag can be moved to other code; a digest cannot. The comment says which version it is."""
        used = re.findall(r"uses: ([^.\s].*)$", WORKFLOWS[workflow], re.MULTILINE)
        assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each)] == []

    def test_each_action_has_one_version(self) -> None:
        used = set(re.findall(r"uses: ([^.\s]\S*)", "\n".join(WORKFLOWS.values())))
        assert len({each.partition("@")[0] for each in used}) == len(used)

    @pytest.mark.parametrize(
        ("tag", "address", "heading", "unreleased", "words"),
        [
            ("v{version}", "https://example.org/a", "## [{version}] - 2026-12-01", "", ""),
            ("v9.9.9", "https://example.org/a", "## [{version}] - 2026-12-01", "", "The tag is v9.9.9"),
            ("v{version}", "https://example.org/a", "## [{version}]", "", "no heading of {version} with the day"),
            (
                "v{version}",
                "https://example.org/a",
                "## [{version}] - 2026-12-01",
                "- new",
                "entries under 'Unreleased'",
            ),
            ("v{version}", "https://example.org/b", "## [{version}] - 2026-12-01", "", "write Repository = "),
        ],
    )
    def test_a_tag_is_published_only_if_the_sources_say_the_same(
        self, tag: str, address: str, heading: str, unreleased: str, words: str, tmp_path: Path
    ) -> None:
        """The workflow asks this first. Whatever is wrong is told with what to write."""
        version = milepost.__version__
        for name in (".ci/release/tag.py", "src/milepost/__init__.py"):
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
        (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/a/"\n')
        changes = f"# Changelog\n\n## [Unreleased]\n\n{unreleased}\n\n{heading.format(version=version)}\n\n- old\n"
        (tmp_path / "CHANGELOG.md").write_text(changes)
        command = [sys.executable, str(tmp_path / ".ci/release/tag.py"), tag.format(version=version), address]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == ((1, 1) if words else (0, 0))
        assert words.format(version=version) in done.stderr
