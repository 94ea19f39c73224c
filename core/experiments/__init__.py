"""Methods compared on graphs: experiments, their statistics, resuming, and grid search."""
