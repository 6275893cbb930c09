"""Tests. A package, so that the lab's kit imports as `tests.lab.kit` from pytest, benchmarks and the demo alike."""
