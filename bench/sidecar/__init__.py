"""`make bench`: what the sidecar and the guard cost, and how soon they speak (docs/benchmarks.md)."""
