"""`make demo`: the main job played on a real torch model server under a real memory limit (docs/demo.md)."""
