"""The record as others see it: reading it from outside, and hiding what it tells about people and places."""
