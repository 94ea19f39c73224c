"""What offsets are multiples of: the default, and the most."""

DEFAULT_ALIGNMENT = 64
LARGEST_ALIGNMENT = 2**31
