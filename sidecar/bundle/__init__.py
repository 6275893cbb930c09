"""`oomguard bundle`: what to attach to a bug report, with names hidden."""
