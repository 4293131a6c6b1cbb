"""For tools that ask for this file; everything is said in pyproject.toml."""

from setuptools import setup

setup()
