"""Parts for anything that needs a real cgroup: tests, benchmarks, the demo.

* `cgroups`: a cgroup with limits as a context manager, on pure v2 or on v1 with the v2 tree beside it.
* `namespaces`: run a command as another user in its own PID, mount and cgroup namespace.
* `loads`: small programs that press on the kernel in one known way each.
* `offer`: what this kernel and these rights offer, in one line.
* `wait`: poll with a deadline.
"""
