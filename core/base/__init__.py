"""Arrays, errors, names, units: the ground."""
