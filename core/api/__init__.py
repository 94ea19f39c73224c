"""The public verbs of Python, which take what people write: paths, texts with units, objects of other libraries."""
