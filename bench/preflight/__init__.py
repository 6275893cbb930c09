"""Measures what each load path costs in memory that cannot be reclaimed, and what the box says when one is killed."""
