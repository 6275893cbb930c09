"""The judge, pure: evidence in, state and answers out. No IO, no clock."""
