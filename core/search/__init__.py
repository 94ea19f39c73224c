"""What a method works with: the search, the registry, parameters, settings, tuned values."""
