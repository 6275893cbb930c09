"""oomguard's half inside the model server. Importing this package changes nothing; call `install()`."""
