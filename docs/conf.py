"""Sphinx: the Markdown of this folder as a site; `sphinx-build -W -b html docs build/docs`."""

from schedopt import __version__

project = "schedopt"
author = "the schedopt contributors"
copyright = f"2026, {author}"
version = release = __version__

nitpicky = True
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = f"schedopt {version}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]

default_role = "code"  # what docstrings put in single backticks

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # `page.md#a-heading` is the forge's way to name a heading

autodoc_typehints = "none"  # the signature is in the text of the parameters
autodoc_member_order = "bysource"
autosummary_generate = False
numpydoc_show_class_members = False
