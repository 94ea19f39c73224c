"""The public verbs of Python, which take paths, texts with units, and objects of other libraries."""
