"""`make bench-health`: three judges on the same server, where it is well and where it hangs (docs/health.md)."""
