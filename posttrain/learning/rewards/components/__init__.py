"""Reward components, one file each: parts that say one thing of an answer in numbers."""
