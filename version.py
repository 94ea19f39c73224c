"""The one place that states the version."""

VERSION = "0.3.0"
