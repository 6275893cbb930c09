"""The kernel's reports of OOM kills, read from any log: one parser for the live kernel log and for files. Pure."""
