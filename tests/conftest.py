"""What all tests share: hypothesis runs the same examples each time, without a clock or a database."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "schedopt",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("schedopt")
