"""Predictions from stored measurements: operators, networks, convolution libraries and schedules."""
