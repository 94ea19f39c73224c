"""Methods that place ops on devices and order them, and the parts that they share."""
