"""Lower bounds of every schedule, and the common properties of all orders of one device."""
