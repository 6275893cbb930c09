"""IO edges: read the kernel and the model, return values. No decisions."""
