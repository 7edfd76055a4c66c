"""Graphs and programs drawn by Hypothesis."""
