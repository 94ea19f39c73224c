"""One file per algorithm, named as the field names it."""
