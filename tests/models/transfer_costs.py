"""What transfers cost in tests of bounds: latency, bandwidth, both, much or nothing."""

COSTS = ({"latency": 0.5}, {"bandwidth": 1e6, "latency": 0.5}, {"bandwidth": 2e5}, {"latency": 20.0}, {})
