"""Noise or defect: what rounding explains, what defects measure, and the tolerance between them. No I/O."""
