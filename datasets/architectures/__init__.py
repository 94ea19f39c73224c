"""Published networks written out layer by layer."""
