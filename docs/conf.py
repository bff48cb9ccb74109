"""How `make docs` makes HTML of the pages: README.md, what lies beside it, docs/, and the docstrings of what is public.

The directory of the sources is the root of the project, so links between pages are the same here as in the repository. The list
in docs/index.md is the table of contents.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "src")]

import framework_modules  # noqa: E402 - it is beside this file

import milepost  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "milepost"
author = "the contributors of milepost"
project_copyright = author
version = release = milepost.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = ["docs/images/*.md"]

myst_heading_anchors = 4
myst_links_external_new_tab = False
default_role = "py:obj"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
autosummary_generate = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"milepost {version}"
html_show_sourcelink = False
html_copy_source = False


def contents(index: str) -> str:
    """The table of contents that the sections and links of docs/index.md make, as directives of MyST."""
    parts = ["\n```{toctree}\n:hidden:\n\ndocs/index\n```\n"]
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        caption, _, body = section.partition("\n")
        entries = []
        for title, page in re.findall(r"^- \[([^]]*)\]\(([^):#]+)\.md\)", body, re.MULTILINE):
            name = f"docs/{page}".replace("docs/../", "")
            if name != root_doc:
                entries.append(f"{title.replace('`', '')} </{name}>\n")
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{''.join(entries)}```\n")
    return "".join(parts)


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Appends the table of contents to the first page, which shows no trace of it elsewhere."""
    if name == root_doc:
        source[0] += contents((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))


def copy_first_page(app: Sphinx, failure: Exception | None) -> None:
    """Gives the first page the name under which a web server looks for it."""
    if failure is None and app.builder.name == "html":
        shutil.copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


_COLON: Final = "\0"


def hide_colon(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Napoleon takes what is before a colon in the first line of a property for its type. Here it is prose."""
    if lines and what in ("attribute", "data", "property"):
        lines[0] = lines[0].replace(":", _COLON)


def show_colon(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Puts the colons back."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def constants() -> dict[str, str]:
    """The texts below the constants of all modules, by name."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    return dict(re.findall(r'^([A-Za-z]\w*)(?:: [^=\n]+)? = .*\n"""((?:.|\n)*?)"""', text, re.MULTILINE))


def describe_constant(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Autodoc finds the text below a constant only in the module that makes it, and most are public in another."""
    if what == "data":
        lines[:] = CONSTANTS[name.rpartition(".")[2]].splitlines()


def hide_signature(
    app: Sphinx, what: str, name: str, value: object, options: object, signature: str, returned: str
) -> tuple[str, str] | None:
    """Nobody makes an instance of a protocol."""
    return ("", "") if getattr(value, "_is_protocol", False) and what == "class" else None


def skip_fields(app: Sphinx, what: str, name: str, value: object, skip: bool, options: object) -> bool | None:
    """The docstring of a named tuple describes its fields."""
    return True if type(value).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    """Connects the functions of this file."""
    app.connect("autodoc-process-docstring", describe_constant, priority=300)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-docstring", hide_colon, priority=400)
    app.connect("autodoc-process-docstring", show_colon, priority=600)
    app.connect("source-read", add_contents)
    app.connect("build-finished", copy_first_page)


CONSTANTS: Final = constants()
for name in framework_modules.NAMES:
    framework_modules.describe(name)
