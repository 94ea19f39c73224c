"""Learned methods: features, encoders, decoders, trainers and shipped weights."""
