"""`make bench-guard`: what the guard costs a server on its hot paths, beside tools that watch memory too."""
