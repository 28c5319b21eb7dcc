"""The kinds of runs: one file each, and the only place that knows a task."""
