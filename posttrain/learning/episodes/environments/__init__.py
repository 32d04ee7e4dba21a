"""The environments that ship with posttrain, one file each."""
