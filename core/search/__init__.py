"""The tools of a method: the search, the registry, parameters, settings, tuned values."""
