"""Tests of tpuc.lowerings."""
