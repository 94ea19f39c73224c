"""The front of peak memory against time: points, bounds, and the sweep of memory limits that finds them."""
