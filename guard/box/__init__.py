"""The black box: a small file that says what the process was doing, also after SIGKILL."""
