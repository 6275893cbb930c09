"""Recorded kernel files. See README.md here."""
