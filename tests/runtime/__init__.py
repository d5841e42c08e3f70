"""Tests of tpuc.runtime."""
