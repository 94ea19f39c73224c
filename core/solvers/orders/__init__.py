"""Methods that order the ops of one device."""
