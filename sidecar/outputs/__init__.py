"""What leaves the sidecar: HTTP, metrics, logs, the record. No decisions."""
