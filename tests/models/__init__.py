"""Tests of the models in models/."""
