"""What is true of every order of one device: the partial order, stretches, and proofs."""
