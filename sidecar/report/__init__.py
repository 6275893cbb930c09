"""`oomguard report`: one end as a page that explains itself and as text for a terminal (docs/report.md)."""
