"""How the model's cgroup and processes are seen; four ways, best first."""
