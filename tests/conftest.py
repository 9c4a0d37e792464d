"""Fixtures shared by all suites."""

from __future__ import annotations
