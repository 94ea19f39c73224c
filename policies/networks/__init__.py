"""Networks, as both papers' methods use them: messages along edges, their files, the shipped weights."""
