"""Addresses: where in its device's arena each tensor lies, so that what lives at the same time never overlaps."""
