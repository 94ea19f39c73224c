"""A problem and a method in, a verified result out."""
