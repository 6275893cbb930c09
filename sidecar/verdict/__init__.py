"""Why did it end: evidence in, class, confidence and reasons out. No IO, no clock."""
