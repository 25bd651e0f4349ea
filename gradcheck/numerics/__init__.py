"""Arrays in, numbers out. Knows recurrences as data (`Recurrence`), nothing of suites, kernels or files."""
