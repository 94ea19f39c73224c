"""Sphinx: the Markdown of this folder as a site; `sphinx-build -W -b html docs build/docs`."""

from importlib.metadata import version as installed

project = "schedopt"
author = "the authors of schedopt"
version = release = installed("schedopt")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md"]
html_theme = "furo"
html_title = f"schedopt {version}"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # `page.md#a-heading` is the forge's way to name a heading

autodoc_typehints = "none"  # the signature is in the text of the parameters
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
