"""The socket between guard and sidecar."""
