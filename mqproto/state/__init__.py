"""Machines and flows: inputs and times in, bytes and actions out (docs/architecture.md has the map)."""
