"""One file a hook, one owner each. Nothing here runs before `guard.install()`."""
