"""The lab: real cgroups, real namespaces, a real kernel to press on. See docs/lab.md."""
