"""Drawing: schedules as charts, as a web page and as a trace, and comparisons of methods as charts."""
