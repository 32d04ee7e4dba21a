"""What `import posttrain` offers: the same answers that the command line prints, as objects.

Each module has the functions of one subject. They are imported when they are used.
"""
