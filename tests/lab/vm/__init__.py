"""A machine with pure cgroup v2 out of Debian packages: most users are on v2, many test hosts are not.

`kernel` fetches and unpacks a Debian kernel and makes the initramfs, `machine` boots it under qemu's own emulation
with the host's file system below a memory overlay, `python -m tests.lab.vm -- COMMAND` runs a command in it.
"""
