"""Sphinx configuration: the manual is the README, the design page and the docstrings."""

import re
from importlib.metadata import version as installed
from typing import Any

project = "fastconv"
author = "the fastconv developers"
release = version = installed("fastconv")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Convolution at machine speed for Python", "page_width": "1100px"}

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures say what is passed, docstrings what it means
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # the README's links to files that are no part of the manual


def as_typed(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with formulas: after their first paragraph they are shown as they stand."""
    end = lines.index("") if "" in lines else len(lines)
    summary = [re.sub(r"([*|_])", r"\\\1", line) for line in lines[:end]]
    lines[:] = [*summary, "", ".. code-block:: text", "", *(f"   {line}" for line in lines[end:]), ""] if any(lines[end:]) else summary


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", as_typed)
