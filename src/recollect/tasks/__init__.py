"""The tasks, one file each: no other part of the package depends on a task."""
