"""Graph generators, augmentation, filters, splits and dataset folders."""
