"""The story of the line, as measurements: what each way of remembering can do, and why."""
