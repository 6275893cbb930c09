"""What the guard asks of torch's CUDA allocator, and what it may set in it. torch is never imported by us."""
