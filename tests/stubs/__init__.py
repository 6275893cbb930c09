"""Stand-ins for CUDA and NVML, so that torch's own CUDA code runs where there is no GPU."""
