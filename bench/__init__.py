"""The demo and the benchmarks; neither is part of the product. See docs/demo.md and docs/benchmarks.md."""
