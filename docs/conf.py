"""Sphinx configuration: the manual is the README, the design page and the docstrings."""

from importlib.metadata import version as installed

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
