"""How fast `oomguard explain` reads, beside a plain grep and a cAdvisor-like regex over the same file."""
