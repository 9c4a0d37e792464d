"""Interfaces of the broker: what its rooms ask each other for, so that each can be tried without a broker."""
