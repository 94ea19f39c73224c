"""Methods that run ops again."""
