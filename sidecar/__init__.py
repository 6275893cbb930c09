"""oomguard's half beside the model server: a daemon that watches, answers probes and explains every end."""
