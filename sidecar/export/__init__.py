"""`oomguard export`: the record as one flat table on one clock."""
